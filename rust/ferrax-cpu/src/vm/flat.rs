//! Small kernels as straight lines of block calls: what is left of a kernel of
//! one tile when there is nothing to loop over and nothing to decide.

use super::isa::BlockFn;
use super::section::{Entry, Instr, LoadStep, Place, Section, Transfer};
use super::transfer::{Rect, TransferFn};

/// A call over entries of a pointer table.
#[derive(Clone, Copy, Debug)]
pub enum Line {
    Apply { function: BlockFn, lanes: usize, to: Place, a: Place, b: Place, c: Place },
    Transfer { function: TransferFn, rect: Rect, from: Place, to: Place },
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
        }
    }

    /// Makes the call.
    ///
    /// # Safety
    /// The table's entries are valid for the kernel that the line is from.
    #[inline(always)]
    pub unsafe fn run(&self, table: *const *mut u8) {
        // SAFETY: `function` is a block function or a transfer, and the caller promises that the table has
        // the entries of the line's places, each valid for the lanes or the rectangle that `Flat::new`
        // wrote.
        unsafe {
            let at = |place: Place| *table.add(place as usize);
            match self {
                &Line::Apply { function, lanes, to, a, b, c } => function(lanes, at(to), at(a), at(b), at(c)),
                Line::Transfer { function, rect, from, to } => function(rect, at(*from), at(*to)),
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
            flat.copy(step, (1, 1))?;
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

    /// A load that is read where it lies.
    fn point(&mut self, step: &LoadStep) {
        if step.transfer.is_none() {
            self.moving.push(Moving {
                place: step.place,
                operand: step.walk.operand,
                offset: step.walk.offset,
            });
        }
    }

    /// A load that is copied.
    fn copy(&mut self, step: &LoadStep, tile: (usize, usize)) -> Option<()> {
        let Some(transfer) = &step.transfer else { return Some(()) };
        if step.guards.is_some() {
            return None;
        }
        let from = self.entries.len() as Place;
        self.entries.push(Entry::Moving);
        self.moving.push(Moving { place: from, operand: step.walk.operand, offset: step.walk.offset });
        self.transfer(transfer, if step.uniform { (1, 1) } else { tile }, from, step.place);
        Some(())
    }

    fn transfer(&mut self, transfer: &Transfer, (rows, cols): (usize, usize), from: Place, to: Place) {
        let rect = Rect {
            rows,
            cols,
            row_stride: transfer.row_stride,
            col_stride: transfer.col_stride,
            block_stride: cols,
        };
        self.lines.push(Line::Transfer { function: transfer.function, rect, from, to });
    }

    fn apply(&mut self, section: &Section, instr: &Instr, lanes: usize, tile: (usize, usize)) -> Option<()> {
        match *instr {
            Instr::Apply { function, to, a, b, c, one } => {
                let lanes = if one { 1 } else { lanes };
                self.lines.push(Line::Apply { function, lanes, to, a, b, c });
                Some(())
            }
            Instr::Load { step } => self.copy(&section.loads[step as usize], tile),
            Instr::Rows { .. } | Instr::Cols { .. } | Instr::Outside { .. } => None,
        }
    }
}
