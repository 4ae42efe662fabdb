//! Runs native programs, value by value: the oracle of emitters.

use ferrax_ir::math::{apply_f32, apply_f64};
use ferrax_ir::scalar::reference::{Inputs, evaluate};
use ferrax_ir::scalar::{Body, Reg, ScalarOp, ScalarType, Value};
use ferrax_ir::{Result, internal_error};

use super::{Address, Code, GROUP, Id, Lane, Native};
use crate::chain::Chain;

/// Runs the function over these memories, to each of which an entry of its table points.
pub fn interpret(native: &Native, memories: &mut [Vec<u8>]) -> Result<()> {
    let mut machine = Machine { native, values: vec![0; native.types.len()], memories };
    let mut at = 0;
    while let Some(code) = native.code.get(at) {
        at = machine.step(code, at)?;
    }
    Ok(())
}

struct Machine<'a> {
    native: &'a Native,
    values: Vec<u64>,
    memories: &'a mut [Vec<u8>],
}

impl Machine<'_> {
    fn value(&self, id: Id) -> u64 {
        self.values[id.0 as usize]
    }

    /// Runs an instruction; the place of the next.
    fn step(&mut self, code: &Code, at: usize) -> Result<usize> {
        match code {
            Code::Compute { to, op, args } => self.values[to.0 as usize] = self.compute(*to, *op, args)?,
            Code::Set { to, from } => self.values[to.0 as usize] = self.value(*from),
            Code::Load { to, from } => {
                self.values[to.0 as usize] = self.load(from, self.native.type_of(*to), 0)?;
            }
            Code::Store { from, to } => self.store(to, self.native.type_of(*from), 0, self.value(*from))?,
            Code::Lanes { chain, inputs, outputs, count } => {
                let chain = &self.native.chains[*chain as usize];
                for first in (0..*count as usize).step_by(GROUP) {
                    // All lanes of a group are read before one is written.
                    let results: Vec<Vec<u64>> = (first..first + GROUP)
                        .map(|lane| self.lane(chain, inputs, lane))
                        .collect::<Result<_>>()?;
                    for (lane, values) in (first..).zip(results) {
                        for ((to, reg), value) in outputs.iter().zip(&chain.outputs).zip(values) {
                            self.store(to, chain.body.type_of(*reg), lane, value)?;
                        }
                    }
                }
            }
            Code::Leave { unless } if self.value(*unless) == 0 => {
                return self.end(at, |code| matches!(code, Code::Again { .. } | Code::Forever));
            }
            Code::Again { count } => {
                self.values[count.0 as usize] -= 1;
                if self.value(*count) != 0 {
                    return self.begin(at);
                }
            }
            Code::Forever => return self.begin(at),
            Code::If { holds } if self.value(*holds) == 0 => {
                return self.end(at, |code| matches!(code, Code::Else));
            }
            Code::Else => return self.end(at, |code| matches!(code, Code::End)),
            _ => {}
        }
        Ok(at + 1)
    }

    /// What a chain computes in a lane.
    fn lane(&mut self, chain: &Chain, inputs: &[Lane], lane: usize) -> Result<Vec<u64>> {
        let mut body = Body::default();
        let mut regs: Vec<Reg> = Vec::new();
        for instruction in chain.body.instructions() {
            let args: Vec<Reg> = instruction.args.iter().map(|arg| regs[arg.0 as usize]).collect();
            let op = match instruction.op {
                ScalarOp::Input { operand, .. } => ScalarOp::Const {
                    bits: match inputs[operand as usize] {
                        Lane::Block(from) => self.load(&from, instruction.ty, lane)?,
                        Lane::Each(id) => self.value(id),
                    },
                },
                op => op,
            };
            regs.push(body.push(op, instruction.ty, &args));
        }
        let results: Vec<Value> = chain.outputs.iter().map(|reg| Value::Real(regs[reg.0 as usize])).collect();
        let values = evaluate(&body, &Inputs::default(), &results)?;
        Ok(values.iter().map(|value| value[0].bits() as u64).collect())
    }

    /// An element beyond a place in memory.
    fn load(&mut self, from: &Address, ty: ScalarType, element: usize) -> Result<u64> {
        let mut bytes = [0; 8];
        bytes[..ty.size()].copy_from_slice(self.place(from, ty.size(), element)?);
        Ok(u64::from_le_bytes(bytes))
    }

    fn store(&mut self, to: &Address, ty: ScalarType, element: usize, value: u64) -> Result<()> {
        let bytes = value.to_le_bytes();
        self.place(to, ty.size(), element)?.copy_from_slice(&bytes[..ty.size()]);
        Ok(())
    }

    /// Behind the end of the list that an instruction is in, which `is_end` tells. Of an `Else` and an `If` it is what
    /// they begin.
    fn end(&self, at: usize, is_end: impl Fn(&Code) -> bool) -> Result<usize> {
        let mut depth = 0usize;
        for (place, code) in self.native.code.iter().enumerate().skip(at + 1) {
            if depth == 0 && is_end(code) {
                return Ok(place + 1);
            }
            match code {
                Code::Loop | Code::If { .. } => depth += 1,
                // A `Leave` is within choices that end before its loop does.
                Code::Again { .. } | Code::Forever | Code::End => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        Err(internal_error!("a list does not end"))
    }

    /// The first instruction of the loop that ends here.
    fn begin(&self, at: usize) -> Result<usize> {
        let mut depth = 0usize;
        for (place, code) in self.native.code.iter().enumerate().take(at).rev() {
            match code {
                Code::Again { .. } | Code::Forever => depth += 1,
                Code::Loop if depth == 0 => return Ok(place + 1),
                Code::Loop => depth -= 1,
                _ => {}
            }
        }
        Err(internal_error!("a loop does not begin"))
    }

    fn place(&mut self, address: &Address, size: usize, element: usize) -> Result<&mut [u8]> {
        let bytes = address.bytes.map_or(0, |id| self.value(id) as i64);
        let at = bytes.wrapping_add(address.offset.into()).wrapping_add((element * size) as i64);
        usize::try_from(at)
            .ok()
            .and_then(|at| {
                self.memories.get_mut(address.pointer as usize)?.get_mut(at..at.checked_add(size)?)
            })
            .ok_or_else(|| internal_error!("{address:?} is outside of its memory: byte {at}"))
    }

    fn compute(&self, to: Id, op: ScalarOp, args: &[Id]) -> Result<u64> {
        let ty = self.native.type_of(to);
        if let ScalarOp::Math(function) = op {
            // With the bits of the algorithms that machines run.
            let float = |id: &Id| self.value(*id);
            let y = args.get(1).map_or(0, float);
            return Ok(match ty {
                ScalarType::F32 => {
                    let (x, y) = (f32::from_bits(float(&args[0]) as u32), f32::from_bits(y as u32));
                    apply_f32(function, x, y).to_bits().into()
                }
                _ => apply_f64(function, f64::from_bits(float(&args[0])), f64::from_bits(y)).to_bits(),
            });
        }
        let mut body = Body::default();
        let regs: Vec<Reg> = args
            .iter()
            .map(|&id| body.push(ScalarOp::Const { bits: self.value(id) }, self.native.type_of(id), &[]))
            .collect();
        let result = body.push(op, ty, &regs);
        let value = evaluate(&body, &Inputs::default(), &[Value::Real(result)])?;
        Ok(value[0][0].bits() as u64)
    }
}
