//! Runs native programs, value by value: the oracle of emitters.

use ferrax_ir::math::{apply_f32, apply_f64};
use ferrax_ir::scalar::reference::{Inputs, evaluate};
use ferrax_ir::scalar::{Body, Reg, ScalarOp, ScalarType, Value};
use ferrax_ir::{Result, internal_error};

use super::{Address, Code, Id, Native};

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
                let size = self.native.type_of(*to).size();
                let mut bytes = [0; 8];
                bytes[..size].copy_from_slice(self.place(from, size)?);
                self.values[to.0 as usize] = u64::from_le_bytes(bytes);
            }
            Code::Store { from, to } => {
                let size = self.native.type_of(*from).size();
                let bytes = self.value(*from).to_le_bytes();
                self.place(to, size)?.copy_from_slice(&bytes[..size]);
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

    fn place(&mut self, address: &Address, size: usize) -> Result<&mut [u8]> {
        let bytes = address.bytes.map_or(0, |id| self.value(id) as i64);
        let at = bytes.wrapping_add(address.offset.into());
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
