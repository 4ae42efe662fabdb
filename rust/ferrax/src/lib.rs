//! ferrax for Rust programs: load, transform, compile and run array programs
//! that were written in Python, with no Python.
//!
//! In Python, `ferrax.export.save("step.ferrax", ferrax.export.export(ferrax.jit(step))(x, y))`
//! writes a file. Here it is loaded and run:
//!
//! ```no_run
//! use ferrax::{Array, Device};
//!
//! # fn main() -> ferrax::Result<()> {
//! let program = ferrax::load("step.ferrax")?;
//! let step = program.compile(&Device::cpu())?;
//! let outputs = step.run(&[Array::from_slice(&[1.0f32, 2.0], [2])?, Array::scalar(0.5f32)?])?;
//! println!("{}", outputs[0]);
//! # Ok(())
//! # }
//! ```
//!
//! Programs are values: derivatives and batches of them are programs too, made
//! when they are needed, also from a file that holds the function alone.
//!
//! ```
//! use ferrax::{Array, Device, Program};
//!
//! # fn main() -> ferrax::Result<()> {
//! // sum(sin(x) * x), in the text form that `Display` prints.
//! let loss: Program = "{ lambda ; x:f32[3]. let
//!     a:f32[3] = sin x
//!     b:f32[3] = mul a x
//!     c:f32[] = reduce_sum[axes=(0,)] b
//!   in (c,) }"
//!     .parse()?;
//! let gradient = loss.grad(&[0])?.optimise()?.compile(&Device::cpu())?;
//! let x = Array::from_slice(&[0.0f32, 1.0, 2.0], [3])?;
//! let slope = gradient.run(&[x])?[0].to_vec::<f32>()?;
//! for (x, slope) in [0.0f32, 1.0, 2.0].into_iter().zip(slope) {
//!     assert!((slope - (x.sin() + x * x.cos())).abs() < 1e-5);
//! }
//!
//! // The same for ten vectors at once, saved and loaded again.
//! let many = loss.vmap(&[Some(0)], 10)?;
//! let same = Program::from_bytes(&many.to_bytes()?)?;
//! assert_eq!(same.inputs()[0].to_string(), "input_0: f32[10,3]");
//! # Ok(())
//! # }
//! ```
//!
//! With the feature `gpu`, `Device::gpu()` opens any GPU that has a driver of Vulkan, Metal or DX12. Arrays go to a
//! device by [`Device::put`], stay there from one [`Executable::run_on_device`] to the next, and come back by
//! [`DeviceArray::get`].
//!
//! | module | holds |
//! |---|---|
//! | `array` | [`Array`] and the element types |
//! | `program` | [`Program`]: load, save, inspect |
//! | `derive` | its transformations |
//! | `device` | [`Device`], [`DeviceArray`] and [`Executable`] |
//! | `mesh` | [`Mesh`]: programs over several devices, and what these exchange |

mod array;
mod derive;
mod device;
mod mesh;
mod program;

pub use array::{Array, Element};
pub use device::{Device, DeviceArray, Executable};
pub use ferrax_ir::serial::Interface;
pub use ferrax_ir::{DType, Dim, Error, Result};
pub use mesh::{Exchange, Mesh, MeshExecutable, Partitioned, Spec};
pub use program::{Program, Value, load};
