//! Handlers in Rust that tests of foreign functions call.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use ferrax_ffi::{Attributes, BF16, Call, Code, Complex, Error, Result, ffi_handler, ffi_state};

ffi_handler! {
    /// Rows divided by their root mean square, and what they were divided by.
    pub fn rust_norm(call: &Call<'_>) -> Result<()> {
        let eps: f32 = call.attribute("eps")?;
        let x = call.operand::<f32>(0)?;
        let (rows, length) = x.ty.rows();
        let (mut y, mut scales) = (call.result::<f32>(0)?, call.result::<f32>(1)?);
        if scales.len() != rows {
            return Err(Error::invalid_argument(format!("{} scales of {rows} rows", scales.len())));
        }
        for row in 0..rows {
            let part = row * length..(row + 1) * length;
            let total: f32 = x[part.clone()].iter().map(|x| x * x).sum();
            scales[row] = (total / length as f32 + eps).sqrt();
            y[part.clone()].iter_mut().zip(&x[part]).for_each(|(y, x)| *y = x / scales[row]);
        }
        Ok(())
    }
}

ffi_handler! {
    /// Squares, by the caller's threads.
    pub fn rust_squares(call: &Call<'_>) -> Result<()> {
        let x = call.operand::<f32>(0)?;
        let parts: Vec<_> = call.result::<f32>(0)?.into_elements().chunks_mut(16).map(Mutex::new).collect();
        call.parallel(parts.len(), &|part| {
            let mut y = parts[part].lock().unwrap();
            y.iter_mut().zip(&x[16 * part..]).for_each(|(y, x)| *y = x * x);
        })
    }
}

ffi_handler! {
    /// Adds one to what an operand and a result have in common.
    pub fn rust_in_place(call: &Call<'_>) -> Result<()> {
        if call.operand::<f32>(0).is_ok() {
            return Err(Error::new(Code::FailedPrecondition, "not in place"));
        }
        call.result::<f32>(0)?.iter_mut().for_each(|y| *y += 1.0);
        Ok(())
    }
}

ffi_handler! {
    /// Conjugates, and a bfloat16 made a float32.
    pub fn rust_dtypes(call: &Call<'_>) -> Result<()> {
        let (z, h) = (call.operand::<Complex<f32>>(0)?, call.operand::<BF16>(1)?);
        let conjugates = call.result::<Complex<f32>>(0)?.into_elements();
        conjugates.iter_mut().zip(z.iter()).for_each(|(y, z)| *y = Complex { re: z.re, im: -z.im });
        call.result::<f32>(1)?.iter_mut().zip(h.iter()).for_each(|(y, h)| *y = h.to_f32());
        Ok(())
    }
}

ffi_handler! {
    /// The sum of attributes of each kind.
    pub fn rust_attributes(call: &Call<'_>) -> Result<()> {
        let array: &[i32] = call.attribute("array")?;
        let text: &str = call.attribute("text")?;
        let flag: bool = call.attribute("flag")?;
        let whole: i64 = call.attribute("whole")?;
        let scale: f64 = call.attribute::<Attributes<'_>>("inner")?.get("scale")?;
        let sum = array.iter().sum::<i32>() as f32 + text.len() as f32 + f32::from(u8::from(flag)) + whole as f32;
        call.result::<f32>(0)?[0] = sum * scale as f32;
        Ok(())
    }
}

static ALIVE: AtomicUsize = AtomicUsize::new(0);

pub struct Counter(AtomicI32);

impl Drop for Counter {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

ffi_state!(Counter, rust_counter_id, rust_counter_info);

/// How many states there are.
#[unsafe(no_mangle)]
pub extern "C" fn rust_counters_alive() -> usize {
    ALIVE.load(Ordering::Relaxed)
}

ffi_handler! {
    instantiate pub fn rust_make_counter(_call: &Call<'_>) -> Result<Counter> {
        ALIVE.fetch_add(1, Ordering::Relaxed);
        Ok(Counter(AtomicI32::new(0)))
    }
}

ffi_handler! {
    /// How often the compiled function was called.
    pub fn rust_count(call: &Call<'_>) -> Result<()> {
        call.result::<i32>(0)?[0] = call.state::<Counter>()?.0.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(())
    }
}

ffi_handler! {
    /// Panics.
    pub fn rust_panics(_call: &Call<'_>) -> Result<()> {
        panic!("as asked")
    }
}
