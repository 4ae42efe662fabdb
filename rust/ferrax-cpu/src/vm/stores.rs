//! The stores of a section: what is computed where it is stored, and what is copied there.

use ferrax_ir::Result;
use ferrax_ir::scalar::{Reg, ScalarOp, Value};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::ops;
use super::section::{Builder, Direct, Entry, Section, StoreStep, Transfer, make};
use super::transfer::{is_native, part_size, store_fn};

impl Builder<'_> {
    /// Where a store goes densely and alone, the value is computed, or copied by its load, in place:
    /// for each register that can be, where. Rows of a load that nothing else uses may be apart.
    pub(super) fn direct_stores(
        &mut self,
        stores: &[usize],
        wanted: &[Reg],
    ) -> Result<FxHashMap<u32, Direct>> {
        let mut direct = FxHashMap::default();
        for &index in stores {
            let store = self.context.kernel.stores[index];
            let dtype = self.context.kernel.operands[store.operand as usize].dtype;
            let Value::Real(reg) = store.value else { continue };
            let map = &self.context.nest.stores[index];
            let element = dtype.size();
            let instruction = &self.body.instructions()[reg.0 as usize];
            let uniform = self.uniform[reg.0 as usize];
            let strides = self.tile_strides(map, element);
            let dense = self.is_dense(strides, element);
            let (fits, row) = match instruction.op {
                ScalarOp::Input { operand, .. } => match self.load_map(operand) {
                    Some(load) if !self.lies(operand, instruction, load, uniform) => {
                        let apart = usize::try_from(strides.0).ok().map(|stride| stride / element);
                        let alone = load.guards.is_none() && self.uses(reg, stores, wanted) == 1;
                        let by_rows = !dense && alone && strides.1 == element as isize && strides.0 > 0;
                        (dense || by_rows, apart.filter(|_| by_rows))
                    }
                    _ => (false, None),
                },
                ScalarOp::Const { .. } | ScalarOp::Param { .. } | ScalarOp::Index { .. } => (false, None),
                _ => (dense && !self.renames(instruction), None),
            };
            if fits
                && !uniform
                && is_native(dtype)
                && !self.context.shares[store.operand as usize]
                && !direct.contains_key(&reg.0)
            {
                let place = self.layout.entry(Entry::Moving);
                let walk = self.walk(store.operand, map, 0, element, element);
                self.section.stores.push(StoreStep { walk, place, transfer: None });
                direct.insert(reg.0, Direct { place, row });
            }
        }
        Ok(direct)
    }

    /// How many instructions, stores and accumulators use a register.
    fn uses(&self, reg: Reg, stores: &[usize], wanted: &[Reg]) -> usize {
        let args = self.body.instructions().iter().flat_map(|instruction| &instruction.args);
        let stored = stores
            .iter()
            .flat_map(|&store| ferrax_compile::registers(self.context.kernel.stores[store].value));
        args.chain(wanted).copied().chain(stored).filter(|&used| used == reg).count()
    }

    pub(super) fn finish(mut self, stores: &[usize], wanted: &[Reg]) -> Result<Section> {
        let mut results = Vec::new();
        for &reg in wanted {
            let place = self.place(reg)?;
            results.push(if self.uniform[reg.0 as usize] && !self.context.direct {
                let mut temporary = SmallVec::new();
                self.splat(reg, place, &mut temporary)
            } else {
                place
            });
        }
        // Stores over memory that is also read come last, and from places of their own.
        let mut ordered: SmallVec<[usize; 8]> = stores.into();
        ordered.sort_by_key(|&index| self.context.shares[self.context.kernel.stores[index].operand as usize]);
        for index in ordered {
            let store = self.context.kernel.stores[index];
            let dtype = self.context.kernel.operands[store.operand as usize].dtype;
            let map = self.context.nest.stores[index].clone();
            let (element, part_bytes) = (dtype.size(), part_size(dtype));
            let strides = self.tile_strides(&map, element);
            for (part, reg) in (0u8..).zip(ferrax_compile::registers(store.value)) {
                let place = self.place(reg)?;
                let walk = self.walk(store.operand, &map, part, element, part_bytes);
                // Computed in place already?
                let done = |step: &StoreStep| {
                    step.transfer.is_none()
                        && step.place == place
                        && step.walk.operand == walk.operand
                        && step.walk.offset == walk.offset
                };
                if self.section.stores.iter().any(done) {
                    continue;
                }
                let size = self.body.type_of(reg).size();
                let uniform = self.uniform[reg.0 as usize];
                let dense = self.is_dense(strides, element) && element == part_bytes && is_native(dtype);
                let shared = self.context.shares[store.operand as usize];
                self.section.cost += if dense { 0.5 } else { 2.0 };
                if dense && !shared {
                    let to = self.layout.entry(Entry::Moving);
                    self.section.stores.push(StoreStep { walk, place: to, transfer: None });
                    let one = self.context.tile.col.is_none();
                    self.section.instrs.push(make(ops::copy(size, uniform && !one), to, &[place], one));
                    continue;
                }
                let moving = matches!(self.layout.entries[place as usize], Entry::Moving);
                let from = if uniform && self.lanes > 1 {
                    let mut temporary = SmallVec::new();
                    self.splat(reg, place, &mut temporary)
                } else if shared && moving {
                    let own = self.take(size);
                    self.section.instrs.push(make(ops::copy(size, false), own, &[place], uniform));
                    own
                } else {
                    place
                };
                let transfer = Transfer {
                    function: store_fn(dtype)?,
                    row_stride: strides.0,
                    col_stride: strides.1,
                    block_stride: None,
                };
                let place = self.layout.entry(Entry::Moving);
                self.section.stores.push(StoreStep { walk, place, transfer: Some((transfer, from)) });
            }
        }
        self.section.results = results;
        Ok(self.section)
    }
}
