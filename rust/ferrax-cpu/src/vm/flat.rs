//! Small kernels as straight lines of block calls: what is left of a kernel of
//! one tile when there is nothing to loop over and nothing to decide.

use smallvec::SmallVec;

use super::Place;
use super::chains::ChainStep;
use super::isa::BlockFn;
use super::pick::{Indices, JumpStep, Picks};
use super::rect::{Rect, TransferFn};
use super::section::{Entry, Instr, LoadStep, Section, Transfer};

/// A call over entries of a pointer table.
#[derive(Debug)]
pub enum Line {
    Apply {
        function: BlockFn,
        lanes: usize,
        to: Place,
        a: Place,
        b: Place,
        c: Place,
    },
    Transfer {
        function: TransferFn,
        rect: Rect,
        from: Place,
        to: Place,
    },
    /// Entry `to` becomes entry `from`, moved on by an index.
    Jump {
        jump: JumpStep,
        from: Place,
        to: Place,
    },
    Pick(Box<PickLine>),
    Chain {
        step: Box<ChainStep>,
        lanes: usize,
    },
}

/// A transfer at indices that differ between elements.
#[derive(Debug)]
pub struct PickLine {
    function: TransferFn,
    picks: Picks,
    rect: Rect,
    jumps: SmallVec<[JumpStep; 1]>,
    /// Of the tile.
    cols: usize,
    from: Place,
    to: Place,
}

impl Line {
    /// The same call where a table begins at entry `first` of a larger one.
    pub fn shifted(self, first: Place) -> Line {
        match self {
            Line::Apply { function, lanes, to, a, b, c } => {
                Line::Apply { function, lanes, to: to + first, a: a + first, b: b + first, c: c + first }
            }
            Line::Transfer { function, rect, from, to } => {
                Line::Transfer { function, rect, from: from + first, to: to + first }
            }
            Line::Jump { jump, from, to } => {
                let jump = JumpStep { place: jump.place + first, ..jump };
                Line::Jump { jump, from: from + first, to: to + first }
            }
            Line::Chain { step, lanes } => Line::Chain { step: Box::new(step.shifted(first)), lanes },
            Line::Pick(mut line) => {
                (line.from, line.to) = (line.from + first, line.to + first);
                line.jumps.iter_mut().for_each(|jump| jump.place += first);
                Line::Pick(line)
            }
        }
    }

    /// Makes the call.
    ///
    /// # Safety
    /// The table's entries are valid for the kernel that the line is from, and nobody else's; of those that lines
    /// set, once these lines were run.
    #[inline(always)]
    pub unsafe fn run(&self, table: *mut *mut u8) {
        // SAFETY: `function` is a block function or a transfer, and the caller promises that the table has
        // the entries of the line's places, each valid for the lanes or the rectangle that `Flat::new`
        // wrote. Where indices lead, operands are valid: that is part of what a kernel reads.
        unsafe {
            let at = |place: Place| *table.add(place as usize);
            match self {
                Line::Chain { step, lanes } => step.run(table, *lanes),
                &Line::Apply { function, lanes, to, a, b, c } => function(lanes, at(to), at(a), at(b), at(c)),
                Line::Transfer { function, rect, from, to } => function(rect, at(*from), at(*to)),
                &Line::Jump { jump, from, to } => {
                    let jumped = jump.indices(at(jump.place), 0, 1).offset(0);
                    *table.add(to as usize) = at(from).wrapping_offset(jumped);
                }
                Line::Pick(line) => {
                    let of = |jump: &JumpStep| jump.indices(at(jump.place), 0, line.cols);
                    let indices: SmallVec<[Indices; 2]> = line.jumps.iter().map(of).collect();
                    line.picks.read(line.function, &line.rect, &indices, at(line.from), at(line.to));
                }
            }
        }
    }
}

/// An entry that points into an operand, at a byte offset.
#[derive(Clone, Copy, Debug)]
pub struct Moving {
    pub place: Place,
    pub operand: u32,
    pub offset: isize,
}

#[derive(Debug)]
pub struct Flat {
    /// All entries; those of `moving` are set from operands.
    pub entries: Vec<Entry>,
    pub moving: Vec<Moving>,
    pub lines: Vec<Line>,
}

impl Flat {
    /// The lines of a section over one tile, if it can be written so.
    pub fn new(section: &Section, entries: &[Entry], rows: usize, cols: usize) -> Option<Flat> {
        let mut flat = Flat { entries: entries.to_vec(), moving: Vec::new(), lines: Vec::new() };
        for step in &section.loads_before {
            flat.point(step);
            flat.copy(step, (rows, cols))?;
        }
        for instr in &section.before {
            flat.apply(section, instr, 1, (1, 1))?;
        }
        for step in &section.loads {
            flat.point(step);
        }
        for step in section.stores.iter() {
            flat.moving.push(Moving {
                place: step.place,
                operand: step.walk.operand,
                offset: step.walk.offset,
            });
        }
        for instr in &section.instrs {
            flat.apply(section, instr, rows * cols, (rows, cols))?;
        }
        for step in &section.stores {
            if let Some((transfer, from)) = &step.transfer {
                flat.transfer(transfer, (rows, cols), *from, step.place);
            }
        }
        Some(flat)
    }

    /// A load that is read where it lies, at no computed index.
    fn point(&mut self, step: &LoadStep) {
        if step.transfer.is_none() && step.jumps.is_empty() {
            self.moving.push(Moving {
                place: step.place,
                operand: step.walk.operand,
                offset: step.walk.offset,
            });
        }
    }

    /// A load that is copied, or one at computed indices.
    fn copy(&mut self, step: &LoadStep, tile: (usize, usize)) -> Option<()> {
        if step.transfer.is_none() && step.jumps.is_empty() {
            return Some(());
        }
        if step.guards.is_some() {
            return None;
        }
        let tile = if step.uniform { (1, 1) } else { tile };
        let from = self.entries.len() as Place;
        self.entries.push(Entry::Moving);
        self.moving.push(Moving { place: from, operand: step.walk.operand, offset: step.walk.offset });
        match (step.picks, &step.transfer) {
            (Picks::Tile, transfer) => {
                let mut at = from;
                for &jump in &step.jumps {
                    let to = self.entries.len() as Place;
                    self.entries.push(Entry::Moving);
                    self.lines.push(Line::Jump { jump, from: at, to });
                    at = to;
                }
                match (transfer, self.lines.last_mut()) {
                    (Some(transfer), _) => self.transfer(transfer, tile, at, step.place),
                    (None, Some(Line::Jump { to, .. })) => *to = step.place,
                    _ => return None,
                }
            }
            (picks, Some(transfer)) => {
                let rect = rect(transfer, tile);
                let (function, jumps, cols) = (transfer.function, step.jumps.clone(), tile.1);
                let line = PickLine { function, picks, rect, jumps, cols, from, to: step.place };
                self.lines.push(Line::Pick(Box::new(line)));
            }
            (_, None) => return None,
        }
        Some(())
    }

    fn transfer(&mut self, transfer: &Transfer, tile: (usize, usize), from: Place, to: Place) {
        let rect = rect(transfer, tile);
        self.lines.push(Line::Transfer { function: transfer.function, rect, from, to });
    }

    fn apply(&mut self, section: &Section, instr: &Instr, lanes: usize, tile: (usize, usize)) -> Option<()> {
        match *instr {
            Instr::Apply { function, to, a, b, c, one } => {
                let lanes = if one { 1 } else { lanes };
                self.lines.push(Line::Apply { function, lanes, to, a, b, c });
                Some(())
            }
            Instr::Chain { step } => {
                let step = Box::new(section.chains[step as usize].clone());
                self.lines.push(Line::Chain { step, lanes });
                Some(())
            }
            Instr::Load { step } => self.copy(&section.loads[step as usize], tile),
            Instr::Rows { .. } | Instr::Cols { .. } | Instr::Outside { .. } => None,
        }
    }
}

/// A transfer over a tile of so many rows and columns.
fn rect(transfer: &Transfer, (rows, cols): (usize, usize)) -> Rect {
    Rect {
        rows,
        cols,
        row_stride: transfer.row_stride,
        col_stride: transfer.col_stride,
        block_stride: transfer.block_stride.unwrap_or(cols),
    }
}
