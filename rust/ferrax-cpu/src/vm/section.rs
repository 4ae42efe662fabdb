//! A body made ready for tiles of one shape: loads, block instructions over
//! numbered places, stores.
//!
//! Loads at computed indices have these in places, too, and are done in order like instructions. Where indices are
//! the same over a tile, or along its rows, the load is one like others, begun elsewhere.
//!
//! Places are entries of a pointer table: scratch slots that are reused as
//! values die, constants, and pointers into operands that move with the tile.
//! A value that is stored densely is computed straight into the operand, unless
//! the operand may share memory with one that is read.

use ferrax_compile::schedule::{Map, Nest, PerAxis, Span, Tile};
use ferrax_compile::{Jumps, Kernel};
use ferrax_ir::scalar::{Body, Instruction, Reg, ScalarOp, ScalarType};
use ferrax_ir::{Result, Scalar, internal_error};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::Place;
use super::chains::{ChainStep, Open};
use super::isa::BlockFn;
use super::ops;
use super::pick::{JumpStep, PickFn, Picks};
use super::rect::TransferFn;
use super::transfer::{is_native, load_fn, part_size};
use crate::code::Isa;

/// The work of a load at an index of its own, in additions.
const PICKED: f64 = 8.0;

/// What a table entry points to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    Scratch(usize),
    Constant(usize),
    /// Set for each tile.
    Moving,
}

/// Memory that a section's places lie in, shared by the sections of a kernel.
#[derive(Debug, Default)]
pub struct Layout {
    pub entries: Vec<Entry>,
    pub constants: Vec<u64>,
    pub scratch: usize,
}

impl Layout {
    pub fn entry(&mut self, entry: Entry) -> Place {
        self.entries.push(entry);
        self.entries.len() as Place - 1
    }

    /// `bytes` of scratch, apart from all else.
    pub fn slot(&mut self, bytes: usize) -> Place {
        let offset = self.scratch;
        self.scratch += bytes.next_multiple_of(64);
        self.entry(Entry::Scratch(offset))
    }

    /// A constant of `size` bytes, `count` times.
    pub fn constant(&mut self, bits: u64, size: usize, count: usize) -> Place {
        let start = self.constants.len();
        self.constants.resize(start + (count * size).div_ceil(8).next_multiple_of(8), 0);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.constants[start..]);
        for chunk in bytes.chunks_exact_mut(size).take(count) {
            chunk.copy_from_slice(&bits.to_le_bytes()[..size]);
        }
        self.entry(Entry::Constant(start * 8))
    }
}

/// A walk over an operand: where the tile's first element is.
#[derive(Clone, Debug)]
pub struct Walk {
    pub operand: u32,
    pub offset: isize,
    /// Byte strides of the axes that move it.
    pub strides: SmallVec<[(u32, isize); 4]>,
}

/// How elements get between operand and block.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    pub function: TransferFn,
    pub row_stride: isize,
    pub col_stride: isize,
    /// Elements between rows of the block, if they do not follow one another.
    pub block_stride: Option<usize>,
}

#[derive(Clone, Debug)]
pub struct LoadStep {
    pub walk: Walk,
    pub place: Place,
    /// Copied to `place`; else `place` points at the operand.
    pub transfer: Option<Transfer>,
    pub guards: Option<Guards>,
    /// The block of a load whose `place` points at the operand where the tile is inside the guards, and else at this block.
    pub block: Option<Place>,
    /// One element serves the whole tile.
    pub uniform: bool,
    pub jumps: SmallVec<[JumpStep; 1]>,
    pub picks: Picks,
}

#[derive(Clone, Debug)]
pub struct Guards {
    pub ranges: PerAxis<(i64, i64)>,
    /// Fills what the guards leave out, from this constant.
    pub fill: BlockFn,
    pub value: Place,
    pub element: usize,
}

#[derive(Clone, Debug)]
pub struct StoreStep {
    pub walk: Walk,
    pub place: Place,
    /// Copied from this place; else `place` points at the operand.
    pub transfer: Option<(Transfer, Place)>,
}

#[derive(Clone, Copy, Debug)]
pub enum Instr {
    Apply {
        function: BlockFn,
        to: Place,
        a: Place,
        b: Place,
        c: Place,
        one: bool,
    },
    /// Several operations at once.
    Chain {
        step: u32,
    },
    /// A load that is copied, or one at computed indices.
    Load {
        step: u32,
    },
    /// Loop indices, integers of 32 or of 64 bits: of the tile's rows, its columns, or of one axis outside.
    Rows {
        to: Place,
        axis: u32,
        long: bool,
    },
    Cols {
        to: Place,
        axis: u32,
        long: bool,
    },
    Outside {
        to: Place,
        axis: u32,
        long: bool,
    },
}

#[derive(Debug, Default)]
pub struct Section {
    /// Rows and columns of a whole tile.
    pub tile: (usize, usize),
    /// Done once before the first tile.
    pub before: Vec<Instr>,
    pub loads_before: Vec<LoadStep>,
    pub loads: Vec<LoadStep>,
    pub instrs: Vec<Instr>,
    pub chains: Vec<ChainStep>,
    pub stores: Vec<StoreStep>,
    /// Where each register that was asked for is, and whether it is uniform.
    pub results: Vec<Place>,
    /// Rough cost per lane, in additions.
    pub cost: f64,
}

pub struct Context<'a> {
    pub kernel: &'a Kernel,
    /// The bits of the kernel's parameters.
    pub params: &'a [u64],
    /// Of each load.
    pub jumps: &'a [Jumps],
    pub nest: &'a Nest,
    pub tile: Tile,
    /// Of which axes parts may be run: a tile then ends before they do.
    pub is_cut: &'a [bool],
    /// Rows of loads need not follow one another, nor are they broadcast: only reductions take them.
    pub direct: bool,
    /// Places of accumulators, for the epilogue.
    pub accumulators: &'a [Place],
    /// Whether operand `store` may share memory with an operand that is read.
    pub shares: &'a [bool],
    /// The instructions of which operations become chains, if they do.
    pub code: Option<Isa>,
}

/// A store that a value is computed or copied to: its entry, and the elements between rows that are apart.
#[derive(Clone, Copy)]
pub(super) struct Direct {
    pub place: Place,
    pub row: Option<usize>,
}

pub(super) struct Builder<'a> {
    pub context: &'a Context<'a>,
    pub body: &'a Body,
    pub layout: &'a mut Layout,
    pub section: Section,
    pub places: Vec<Option<Place>>,
    pub uniform: Vec<bool>,
    /// The same along the columns of a tile.
    by_rows: Vec<bool>,
    invariant: Vec<bool>,
    pub last_use: Vec<usize>,
    free: [Vec<Place>; 4],
    owned: FxHashMap<Place, usize>,
    pub lanes: usize,
    pub open: Open,
    /// Registers that chains compute, which have places of their own.
    pub chained: Vec<bool>,
}

/// Prepares `body`. `wanted` registers are kept in places; stores are those of
/// `stores` (indices into the kernel's).
pub fn build(
    context: &Context<'_>,
    body: &Body,
    layout: &mut Layout,
    stores: &[usize],
    wanted: &[Reg],
) -> Result<Section> {
    let count = body.instructions().len();
    let mut builder = Builder {
        context,
        body,
        layout,
        section: Section { tile: whole_tile(context.tile), ..Section::default() },
        places: vec![None; count],
        uniform: vec![false; count],
        by_rows: vec![false; count],
        invariant: vec![false; count],
        last_use: vec![0; count],
        free: Default::default(),
        owned: FxHashMap::default(),
        lanes: context.tile.lanes(),
        open: Open::default(),
        chained: vec![false; count],
    };
    builder.analyse(stores, wanted);
    builder.emit(stores, wanted)?;
    builder.finish(stores, wanted)
}

fn whole_tile(tile: Tile) -> (usize, usize) {
    let length = |span: Option<Span>| span.map_or(1, |span| span.length);
    (length(tile.row), length(tile.col))
}

impl Builder<'_> {
    pub(super) fn load_map(&self, operand: u32) -> Option<&Map> {
        self.context.nest.loads.get(operand as usize)
    }

    fn spans(&self, axis: usize) -> bool {
        let tile = self.context.tile;
        [tile.row, tile.col].into_iter().flatten().any(|span| span.axis == axis)
    }

    /// The same element over the whole tile.
    fn fixed_in_tile(&self, map: &Map) -> bool {
        (0..map.strides.len()).filter(|&axis| self.spans(axis)).all(|axis| self.stands_still(map, axis))
    }

    /// The same element along an axis.
    fn stands_still(&self, map: &Map, axis: usize) -> bool {
        let full = (0, self.context.nest.extents[axis] as i64);
        map.strides[axis] == 0 && map.guards.as_ref().is_none_or(|guards| guards[axis] == full)
    }

    /// The same elements in all tiles, at the same places of a block: those of axes that a tile spans as a whole, where
    /// columns, which say where a row begins in the block, are as many in all.
    fn same_in_tiles(&self, map: &Map) -> bool {
        let tile = self.context.tile;
        let nest = self.context.nest;
        // Of terms that are folded a tile may have a part.
        let is_whole = |span: Span| {
            let all = span.length == nest.extents[span.axis] && !self.context.is_cut[span.axis];
            all && !nest.reduced[span.axis]
        };
        let spans = [tile.row, tile.col].into_iter().flatten();
        let moves = |axis: &usize| map.strides[*axis] != 0;
        map.guards.is_none()
            && tile.col.is_none_or(is_whole)
            && (0..map.strides.len())
                .filter(moves)
                .all(|axis| spans.clone().any(|span| span.axis == axis && is_whole(span)))
    }

    /// How the indices of a load differ within a tile.
    fn picks(&self, instruction: &Instruction, element: usize, pick: PickFn) -> Picks {
        let all = |flags: &[bool]| instruction.args.iter().all(|arg| flags[arg.0 as usize]);
        if self.lanes == 1 || all(&self.uniform) {
            Picks::Tile
        } else if all(&self.by_rows) {
            Picks::Rows(element)
        } else {
            Picks::Lanes(pick)
        }
    }

    fn analyse(&mut self, stores: &[usize], wanted: &[Reg]) {
        let instructions = self.body.instructions();
        let accumulator_uniform = self.context.tile.col.is_none();
        for (index, instruction) in instructions.iter().enumerate() {
            let all = |flags: &[bool]| instruction.args.iter().all(|arg| flags[arg.0 as usize]);
            self.by_rows[index] = self.context.tile.col.is_none_or(|col| match instruction.op {
                ScalarOp::Input { operand, .. } => {
                    let map = self.load_map(operand);
                    all(&self.by_rows) && map.is_some_and(|map| self.stands_still(map, col.axis))
                }
                ScalarOp::Index { axis } => self.context.nest.axis_of[axis as usize] != col.axis,
                _ => all(&self.by_rows),
            });
            (self.uniform[index], self.invariant[index]) = match instruction.op {
                ScalarOp::Input { operand, .. } => match self.load_map(operand) {
                    Some(map) => {
                        let still = map.strides.iter().all(|&stride| stride == 0) && map.guards.is_none();
                        // What is done once is done before any indices are known.
                        let still = still && instruction.args.is_empty();
                        (self.fixed_in_tile(map) && all(&self.uniform), still)
                    }
                    None => (accumulator_uniform, false),
                },
                ScalarOp::Index { axis } => {
                    let axis = self.context.nest.axis_of[axis as usize];
                    (!self.spans(axis), false)
                }
                ScalarOp::Const { .. } | ScalarOp::Param { .. } => (true, true),
                // A single element is computed where it belongs, like any block.
                _ if self.lanes == 1 => (false, false),
                _ => (all(&self.uniform), all(&self.invariant)),
            };
        }
        let end = instructions.len();
        for reg in wanted {
            self.last_use[reg.0 as usize] = end;
        }
        for &store in stores {
            for reg in ferrax_compile::registers(self.context.kernel.stores[store].value) {
                self.last_use[reg.0 as usize] = end;
            }
        }
        for (index, instruction) in instructions.iter().enumerate().rev() {
            if self.last_use[index] == 0 {
                continue;
            }
            // A value that needs no code lives as long as what it renames.
            let through = self.renames(instruction);
            for arg in &instruction.args {
                let until = if through { self.last_use[index].max(index) } else { index };
                let last = &mut self.last_use[arg.0 as usize];
                *last = (*last).max(until);
            }
        }
    }

    /// Whether the result has the bits of the argument.
    pub(super) fn renames(&self, instruction: &Instruction) -> bool {
        match instruction.op {
            ScalarOp::Bitcast => true,
            ScalarOp::Convert => {
                let from = self.body.type_of(instruction.args[0]);
                let to = instruction.ty;
                !from.is_float() && !to.is_float() && from.size() == to.size() && to != ScalarType::Bool
            }
            _ => false,
        }
    }

    /// The bits of what is a constant once a kernel has its sizes.
    pub(super) fn known(&self, op: ScalarOp) -> Option<u64> {
        match op {
            ScalarOp::Const { bits } => Some(bits),
            ScalarOp::Param { index } => self.context.params.get(index as usize).copied(),
            _ => None,
        }
    }

    /// A scratch slot for a block of elements of `size` bytes.
    pub(super) fn take(&mut self, size: usize) -> Place {
        let class = size.trailing_zeros() as usize;
        let place = match self.free[class].pop() {
            Some(place) => place,
            None => self.layout.slot(size * self.lanes),
        };
        self.owned.insert(place, class);
        place
    }

    pub(super) fn release(&mut self, place: Place) {
        if let Some(class) = self.owned.remove(&place) {
            self.free[class].push(place);
        }
    }

    pub(super) fn place(&self, reg: Reg) -> Result<Place> {
        self.places[reg.0 as usize].ok_or_else(|| internal_error!("register {} has no place", reg.0))
    }

    fn emit(&mut self, stores: &[usize], wanted: &[Reg]) -> Result<()> {
        let instructions = self.body.instructions();
        let direct = self.direct_stores(stores, wanted)?;
        let mut dying: FxHashMap<usize, SmallVec<[Reg; 4]>> = FxHashMap::default();
        for (index, &last) in self.last_use.iter().enumerate() {
            dying.entry(last.max(index)).or_default().push(Reg(index as u32));
        }
        for (index, instruction) in instructions.iter().enumerate() {
            // Factors of products may be all that is asked for.
            if self.last_use[index] == 0 {
                continue;
            }
            let dies = dying.remove(&index).unwrap_or_default();
            if self.joins(index, instruction) {
                self.join(index, instruction)?;
                self.open.outlive(dies);
                continue;
            }
            if self.open.has(instruction) {
                self.close(index, &direct)?;
            }
            let place = match instruction.op {
                op if let Some(bits) = self.known(op) => self.layout.constant(bits, instruction.ty.size(), 1),
                ScalarOp::Input { operand, part } => {
                    self.input(operand, part, index, direct.get(&(index as u32)).copied())?
                }
                ScalarOp::Index { axis } => self.index(axis, instruction.ty)?,
                _ if self.renames(instruction) => self.place(instruction.args[0])?,
                _ => {
                    let direct = direct.get(&(index as u32)).map(|direct| direct.place);
                    self.apply(index, instruction, direct)?
                }
            };
            self.places[index] = Some(place);
            if self.open.is_empty() {
                self.release_all(dies);
            } else {
                self.open.outlive(dies);
            }
        }
        self.close(instructions.len(), &direct)
    }

    /// Lets go of the places of registers that are needed no more.
    pub(super) fn release_all(&mut self, registers: impl IntoIterator<Item = Reg>) {
        for reg in registers {
            let number = reg.0 as usize;
            // Renamed values share a place, which the first holder outlives.
            let owns = self.chained[number] || !self.renames(&self.body.instructions()[number]);
            if owns && let Some(place) = self.places[number] {
                self.release(place);
            }
        }
    }

    pub(super) fn walk(&self, operand: u32, map: &Map, part: u8, element: usize, part_bytes: usize) -> Walk {
        Walk {
            operand,
            offset: map.offset as isize * element as isize + isize::from(part) * part_bytes as isize,
            strides: map
                .strides
                .iter()
                .enumerate()
                .filter(|(_, stride)| **stride != 0)
                .map(|(axis, &stride)| (axis as u32, stride as isize * element as isize))
                .collect(),
        }
    }

    /// Byte strides of a map along the rows and columns of a tile.
    pub(super) fn tile_strides(&self, map: &Map, element: usize) -> (isize, isize) {
        let along =
            |span: Option<Span>| span.map_or(0, |span| map.strides[span.axis] as isize * element as isize);
        (along(self.context.tile.row), along(self.context.tile.col))
    }

    /// Whether a tile is one dense run of elements of `element` bytes, wherever it lies and however it is cut.
    pub(super) fn is_dense(&self, strides: (isize, isize), element: usize) -> bool {
        let tile = self.context.tile;
        let Some(col) = tile.col else { return true };
        let extent = self.context.nest.extents[col.axis];
        let whole = col.length == extent && !self.context.is_cut[col.axis];
        strides.1 == element as isize
            && tile
                .row
                .is_none_or(|row| row.length == 1 || (whole && strides.0 == (extent * element) as isize))
    }

    /// Whether a load is read where it lies.
    pub(super) fn lies(&self, operand: u32, instruction: &Instruction, map: &Map, uniform: bool) -> bool {
        map.guards.is_none() && self.may_lie(operand, instruction, map, uniform)
    }

    /// The same, where its guards hold.
    fn may_lie(&self, operand: u32, instruction: &Instruction, map: &Map, uniform: bool) -> bool {
        let apart = |arg: &Reg| self.lanes > 1 && !self.uniform[arg.0 as usize];
        if instruction.args.iter().any(apart) {
            return false;
        }
        let dtype =
            self.context.kernel.operands[self.context.kernel.loads[operand as usize].operand as usize].dtype;
        let (element, strides) = (dtype.size(), self.tile_strides(map, dtype.size()));
        let rows = self.is_dense(strides, element)
            || (self.context.direct && (strides.1 == element as isize || strides.1 == 0));
        let dense = uniform || (rows && element == part_size(dtype));
        dense && is_native_or_part(dtype, uniform)
    }

    fn input(&mut self, operand: u32, part: u8, index: usize, direct: Option<Direct>) -> Result<Place> {
        let Some(map) = self.load_map(operand).cloned() else {
            let accumulator = operand as usize - self.context.nest.loads.len();
            return self
                .context
                .accumulators
                .get(accumulator)
                .copied()
                .ok_or_else(|| internal_error!("load {operand} does not exist"));
        };
        let load = self.context.kernel.loads[operand as usize];
        let dtype = self.context.kernel.operands[load.operand as usize].dtype;
        let (element, part_bytes) = (dtype.size(), part_size(dtype));
        let ty = ScalarType::of(dtype)?;
        let strides = self.tile_strides(&map, element);
        let uniform = self.uniform[index];
        let walk = self.walk(load.operand, &map, part, element, part_bytes);
        let instruction = &self.body.instructions()[index];
        let lies = self.lies(operand, instruction, &map, uniform);
        let lies_inside = !uniform
            && direct.is_none()
            && !self.context.direct
            && instruction.args.is_empty()
            && self.may_lie(operand, instruction, &map, uniform);
        let lasts = !uniform
            && !lies
            && direct.is_none()
            && !self.context.direct
            && instruction.args.is_empty()
            && self.same_in_tiles(&map);
        let load_fns = load_fn(dtype)?;
        let picks = self.picks(instruction, ty.size(), load_fns.pick);
        let mut jumps: SmallVec<[JumpStep; 1]> = SmallVec::new();
        for (&arg, jump) in instruction.args.iter().zip(&self.context.jumps[operand as usize]) {
            jumps.push(JumpStep {
                place: self.place(arg)?,
                wide: self.body.type_of(arg).size() == 8,
                one: self.uniform[arg.0 as usize],
                stride: jump.stride as isize * element as isize,
                last: jump.last,
            });
        }
        let moves = !jumps.is_empty();
        self.section.cost += match picks {
            _ if uniform => 0.0,
            Picks::Lanes(_) => PICKED,
            _ if lies => 0.5,
            _ => 2.0,
        };
        let step = if lies {
            let place = self.layout.entry(Entry::Moving);
            LoadStep { walk, place, transfer: None, guards: None, block: None, uniform, jumps, picks }
        } else {
            let block = lies_inside.then(|| self.layout.slot(ty.size() * self.lanes));
            let place = match direct {
                _ if lies_inside => self.layout.entry(Entry::Moving),
                _ if lasts => self.layout.slot(ty.size() * self.lanes),
                _ if uniform => self.layout.slot(8),
                Some(direct) => direct.place,
                None => self.take(ty.size()),
            };
            let guards = match &map.guards {
                None => None,
                Some(ranges) => {
                    let value = load.fill.unwrap_or(Scalar::zero(ty.dtype()));
                    let value = match self.fill_bits(value, part, ty) {
                        Some(bits) => self.layout.constant(bits, ty.size(), 1),
                        None => return Err(internal_error!("a load has a fill that is not a number")),
                    };
                    Some(Guards {
                        ranges: ranges.clone(),
                        fill: ops::copy(ty.size(), true),
                        value,
                        element: ty.size(),
                    })
                }
            };
            let transfer = Transfer {
                function: load_fns.rect,
                row_stride: strides.0,
                col_stride: strides.1,
                block_stride: direct.and_then(|direct| direct.row),
            };
            LoadStep { walk, place, transfer: Some(transfer), guards, block, uniform, jumps, picks }
        };
        let place = step.place;
        if self.invariant[index] || lasts {
            self.section.loads_before.push(step);
        } else {
            if step.transfer.is_some() || moves {
                // In order, for its slot may have held another value, and its indices are known only then.
                self.section.instrs.push(Instr::Load { step: self.section.loads.len() as u32 });
            }
            self.section.loads.push(step);
        }
        Ok(place)
    }

    fn fill_bits(&self, value: Scalar, part: u8, ty: ScalarType) -> Option<u64> {
        if value.dtype().parts() == 2 {
            let half = value.dtype().size() as u32 * 4;
            let bits = value.bits() >> (u32::from(part) * half);
            return Some((bits & ((1u128 << half) - 1)) as u64);
        }
        if value.dtype().is_key() || value.dtype() == ty.dtype() {
            return Some(value.bits() as u64);
        }
        let mut body = Body::default();
        let reg = body.constant(value);
        match body.instructions()[reg.0 as usize].op {
            ScalarOp::Const { bits } => Some(bits),
            _ => None,
        }
    }

    fn index(&mut self, axis: u32, ty: ScalarType) -> Result<Place> {
        let long = match ty {
            ScalarType::I32 => false,
            ScalarType::I64 => true,
            ty => return Err(internal_error!("a loop's index as {ty:?}")),
        };
        let axis = self.context.nest.axis_of[axis as usize];
        let tile = self.context.tile;
        let is = |span: Option<Span>| span.is_some_and(|span| span.axis == axis);
        let number = axis as u32;
        Ok(if is(tile.row) || is(tile.col) {
            let to = self.take(ty.size());
            self.section.cost += 1.0;
            self.section.instrs.push(if is(tile.row) {
                Instr::Rows { to, axis: number, long }
            } else {
                Instr::Cols { to, axis: number, long }
            });
            to
        } else {
            let to = self.layout.slot(ty.size());
            self.section.instrs.push(Instr::Outside { to, axis: number, long });
            to
        })
    }

    pub(super) fn apply(
        &mut self,
        index: usize,
        instruction: &Instruction,
        direct: Option<Place>,
    ) -> Result<Place> {
        let args = &instruction.args;
        let mut places: SmallVec<[Place; 3]> = SmallVec::new();
        for &arg in args {
            places.push(self.place(arg)?);
        }
        let typed = if instruction.op == ScalarOp::Select { args[1] } else { args[0] };
        let arg = self.body.type_of(typed);
        let to_ty = instruction.ty;
        if self.uniform[index] {
            let Some(function) = ops::block_fn(instruction.op, to_ty, arg, [false; 3])? else {
                return Err(internal_error!("{:?} has no code", instruction.op));
            };
            let to = self.layout.slot(8);
            let instr = make(function, to, &places, true);
            if self.invariant[index] {
                self.section.before.push(instr)
            } else {
                self.section.instrs.push(instr)
            }
            return Ok(to);
        }
        let mut flags = [false; 3];
        // One element is a whole block of one.
        for (flag, arg) in flags.iter_mut().zip(args).filter(|_| self.lanes > 1) {
            *flag = self.uniform[arg.0 as usize];
        }
        let mut temporary: SmallVec<[Place; 3]> = SmallVec::new();
        let mut function = ops::block_fn(instruction.op, to_ty, arg, flags)?;
        if function.is_none() && args.len() == 2 && flags[0] && !flags[1] {
            function = ops::swapped(instruction.op, arg)?;
            if function.is_some() {
                places.swap(0, 1);
            }
        }
        if function.is_none() {
            for (position, &arg) in args.iter().enumerate().filter(|(position, _)| flags[*position]) {
                places[position] = self.splat(arg, places[position], &mut temporary);
            }
            function = ops::block_fn(instruction.op, to_ty, arg, [false; 3])?;
        }
        let Some(function) = function else {
            return Err(internal_error!("{:?} has no code", instruction.op));
        };
        let to = direct.unwrap_or_else(|| self.take(to_ty.size()));
        self.section.instrs.push(make(function, to, &places, false));
        self.section.cost += self.cost(index);
        for place in temporary {
            self.release(place);
        }
        Ok(to)
    }

    /// The work of an instruction for a lane, in additions of four bytes.
    pub(super) fn cost(&self, index: usize) -> f64 {
        let instruction = &self.body.instructions()[index];
        let of = instruction.args.iter().map(|&arg| self.body.type_of(arg).size());
        work(instruction.op) * (of.fold(instruction.ty.size(), usize::max) as f64 / 4.0)
    }

    /// A uniform value as a block.
    pub(super) fn splat(&mut self, reg: Reg, place: Place, temporary: &mut SmallVec<[Place; 3]>) -> Place {
        let size = self.body.type_of(reg).size();
        if let Some(bits) = self.known(self.body.instructions()[reg.0 as usize].op) {
            return self.layout.constant(bits, size, self.lanes);
        }
        let to = self.take(size);
        temporary.push(to);
        self.section.instrs.push(make(ops::copy(size, true), to, &[place], false));
        to
    }
}

/// The work of an operation, in additions.
pub(super) fn work(op: ScalarOp) -> f64 {
    match op {
        ScalarOp::Input { .. } | ScalarOp::Index { .. } | ScalarOp::Const { .. } | ScalarOp::Param { .. } => {
            0.0
        }
        ScalarOp::Math(_) => 12.0,
        ScalarOp::Div | ScalarOp::Rem | ScalarOp::Sqrt => 4.0,
        _ => 1.0,
    }
}

/// Whether registers can be read where the element lies.
fn is_native_or_part(dtype: ferrax_ir::DType, uniform: bool) -> bool {
    is_native(dtype) || (uniform && dtype.parts() == 2)
}

pub(super) fn make(function: BlockFn, to: Place, sources: &[Place], one: bool) -> Instr {
    let a = sources.first().copied().unwrap_or(to);
    let b = sources.get(1).copied().unwrap_or(a);
    let c = sources.get(2).copied().unwrap_or(b);
    Instr::Apply { function, to, a, b, c, one }
}
