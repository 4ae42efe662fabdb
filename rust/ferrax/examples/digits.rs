//! Runs a classifier of handwritten digits that was trained in Python.
//!
//! `examples/digits.py` writes, under `out/digits`:
//!
//! | file | holds |
//! |---|---|
//! | `predict.ferrax` | images `f32[N,64]` to logits `f32[N,10]`; the weights are constants in it |
//! | `loss.ferrax` | parameters, images and labels `i32[N]` to the loss |
//! | `params.bin` | the parameters: their count, then for each its rank, sizes and elements |
//! | `test.bin` | images and labels: their count, the features of one, all images, all labels |
//!
//! In the `.bin` files counts, ranks and sizes are `u32`, elements `f32`, labels
//! `i32`, everything little-endian. This program prints the accuracy as Python
//! does, and the norm of a gradient whose program is in no file: the derivative
//! is made here.
//!
//! Run: `cargo run --release -p ferrax --example digits [DIRECTORY]`, or, on the GPU whose name contains NAME,
//! `cargo run --release -p ferrax --features gpu --example digits DIRECTORY NAME`

use std::path::{Path, PathBuf};

use ferrax::{Array, DType, Device, Program};

type AnyResult<T> = Result<T, Box<dyn std::error::Error>>;

/// Reads little-endian numbers from the front of some bytes.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> AnyResult<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or("the file is cut off")?;
        self.0 = rest;
        Ok(taken)
    }

    fn u32(&mut self) -> AnyResult<usize> {
        let bytes = self.take(4)?.try_into()?;
        Ok(u32::from_le_bytes(bytes) as usize)
    }

    fn array(&mut self, dtype: DType, shape: &[usize]) -> AnyResult<Array> {
        let bytes = self.take(shape.iter().product::<usize>() * dtype.size())?;
        Ok(Array::from_bytes(dtype, shape, bytes)?)
    }

    fn end(self) -> AnyResult<()> {
        if self.0.is_empty() { Ok(()) } else { Err("bytes follow the end of the file's data".into()) }
    }
}

fn test_set(path: &Path) -> AnyResult<(Array, Array)> {
    let bytes = std::fs::read(path)?;
    let mut cursor = Cursor(&bytes);
    let (count, features) = (cursor.u32()?, cursor.u32()?);
    let images = cursor.array(DType::F32, &[count, features])?;
    let labels = cursor.array(DType::I32, &[count])?;
    cursor.end()?;
    Ok((images, labels))
}

fn parameters(path: &Path) -> AnyResult<Vec<Array>> {
    let bytes = std::fs::read(path)?;
    let mut cursor = Cursor(&bytes);
    let count = cursor.u32()?;
    let mut arrays = Vec::new();
    for _ in 0..count {
        let rank = cursor.u32()?;
        let shape = (0..rank).map(|_| cursor.u32()).collect::<AnyResult<Vec<_>>>()?;
        arrays.push(cursor.array(DType::F32, &shape)?);
    }
    cursor.end()?;
    Ok(arrays)
}

/// The place of the first largest element.
fn argmax(row: &[f32]) -> usize {
    (1..row.len()).fold(0, |best, index| if row[index] > row[best] { index } else { best })
}

/// How many rows of `logits` are largest where the label says.
fn correct(logits: &Array, labels: &Array) -> AnyResult<usize> {
    let (scores, labels) = (logits.to_vec::<f32>()?, labels.to_vec::<i32>()?);
    let classes = scores.len() / labels.len().max(1);
    let rows = scores.chunks_exact(classes.max(1)).zip(labels);
    Ok(rows.filter(|(row, label)| usize::try_from(*label) == Ok(argmax(row))).count())
}

fn main() -> AnyResult<()> {
    let directory = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "out/digits".to_owned()));
    let device = match std::env::args().nth(2) {
        None => Device::cpu(),
        #[cfg(feature = "gpu")]
        Some(name) => Device::gpu_named(&name)?,
        #[cfg(not(feature = "gpu"))]
        Some(_) => return Err("GPUs need the feature `gpu`".into()),
    };
    println!("on {device}");
    let (images, labels) = test_set(&directory.join("test.bin"))?;

    let predict = ferrax::load(directory.join("predict.ferrax"))?.compile(&device)?;
    let logits = predict.run(std::slice::from_ref(&images))?.remove(0);
    let (right, all) = (correct(&logits, &labels)?, labels.len());
    println!("test accuracy: {:.4} ({right} of {all})", right as f64 / all as f64);

    let loss: Program = ferrax::load(directory.join("loss.ferrax"))?;
    let gradient = loss.value_and_grad(&[0])?.compile(&device)?;
    let mut inputs = parameters(&directory.join("params.bin"))?;
    inputs.extend([images, labels]);
    let outputs = gradient.run(&inputs)?;
    let slope = outputs[1].to_vec::<f32>()?;
    let norm = slope.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
    println!("test loss: {:.4}", outputs[0].item::<f32>()?);
    println!("norm of the gradient in {}: {norm:.4}", loss.inputs()[0]);
    Ok(())
}
