//! `fft`: discrete Fourier transforms over the last one to three axes.
//!
//! With `w = exp(-2πi / n)` a forward transform of `n` numbers is `X[k] = Σ x[j] w^(jk)`, an inverse one
//! `x[j] = (1/n) Σ X[k] w^(-jk)`; over several axes it is one after the other. That of real numbers has
//! `X[n-k] = conj X[k]`, so `RFFT` gives only the first `n/2 + 1` along the last axis. `IRFFT` takes these:
//! it reads no imaginary part of those that are their own mirror image (`k = 0`, and `n/2` of an even `n`)
//! once the other axes are transformed.
//!
//! Transforms are linear, and their matrices symmetric, so `FFT` and `IFFT` are their own transposes.
//! `RFFT` is `FFT` of real numbers and a slice; its transpose pads and takes the real part of an `FFT`,
//! which is an `IRFFT` of what is halved where the mirror image adds the other half. `IRFFT` is transposed
//! the same way, backwards.

use smallvec::SmallVec;

use super::binary::Binary;
use super::compare::Compare;
use super::index_space::*;
use super::unary::Unary;
use crate::convert::{Wide, load, store};
use crate::rules::{Batch, Batched, Jvp, Lowering, Row, Rules, Transpose, Types};
use crate::tensor::element_count;
use crate::{
    ArrayType, Atom, Axes, Builder, DType, Dim, Param, Result, Scalar, Shape, ShowShape, Tensor, ToParam,
    Type, internal_error, op_struct, unsupported, value_error,
};

/// Which transform, in the order of JAX's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FftType {
    Fft,
    Ifft,
    /// Of real numbers.
    Rfft,
    /// To real numbers.
    Irfft,
}

impl FftType {
    pub const ALL: [FftType; 4] = [FftType::Fft, FftType::Ifft, FftType::Rfft, FftType::Irfft];

    pub const fn name(self) -> &'static str {
        match self {
            FftType::Fft => "FFT",
            FftType::Ifft => "IFFT",
            FftType::Rfft => "RFFT",
            FftType::Irfft => "IRFFT",
        }
    }

    /// Whether the sign of the exponent is that of inverse transforms, which are divided by their length.
    pub const fn is_inverse(self) -> bool {
        matches!(self, FftType::Ifft | FftType::Irfft)
    }
}

impl ToParam for FftType {
    fn to_param(&self) -> Param {
        Param::Int(*self as i64)
    }

    fn from_param(value: Param) -> Result<Self> {
        let number = i64::from_param(value)?;
        let known = usize::try_from(number).ok().and_then(|number| FftType::ALL.get(number));
        known
            .copied()
            .ok_or_else(|| value_error!("fft_type is 0 (FFT), 1 (IFFT), 2 (RFFT) or 3 (IRFFT), got {number}"))
    }
}

op_struct! {
    /// Discrete Fourier transforms over the last axes, as many as there are lengths.
    Fft "fft" { fft_lengths: Shape, fft_type: FftType }
}

impl Fft {
    /// The length of the last axis, which real transforms halve, as a number.
    fn last_length(&self) -> Result<usize> {
        match self.fft_lengths.last() {
            Some(Dim::Const(length)) => Ok(*length),
            Some(length) => Err(unsupported!(
                "the derivative of {} over an axis of symbolic length {length}: export with a constant length",
                self.fft_type.name()
            )),
            None => Err(internal_error!("fft without lengths")),
        }
    }

    /// `x`, of which the last axis holds `n/2 + 1` numbers that stand for `n`: times `own` where one is its
    /// own mirror image, times `other` elsewhere.
    fn weigh(&self, b: &mut Builder, x: Atom, own: f64, other: f64) -> Result<Atom> {
        let length = self.last_length()?;
        let shape = b.shape(x);
        let ty = ArrayType::new(shape.clone(), DType::I64);
        let places = b.iota(DType::I64, &shape, shape.len() - 1)?;
        let mut is_own = |place: usize| -> Result<Atom> {
            let place = b.full(&ty, Scalar::from_i64(DType::I64, place as i64))?;
            b.compare(Compare::Eq, places, place)
        };
        let mut mirrors_itself = is_own(0)?;
        if length % 2 == 0 {
            let middle = is_own(length / 2)?;
            mirrors_itself = b.binary(Binary::Or, mirrors_itself, middle)?;
        }
        let (own, other) = (b.full_like(x, own)?, b.full_like(x, other)?);
        let weights = b.select(mirrors_itself, own, other)?;
        b.mul(x, weights)
    }

    /// The product of the lengths, as a number.
    fn count(&self) -> Result<f64> {
        self.fft_lengths
            .iter()
            .map(|length| match length {
                Dim::Const(length) => Ok(*length as f64),
                length => Err(unsupported!(
                    "the derivative of {} over an axis of symbolic length {length}: export with a constant length",
                    self.fft_type.name()
                )),
            })
            .product()
    }
}

impl Row for Fft {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [operand] = operands(Self::NAME, inputs)?;
        let (name, lengths) = (self.fft_type.name(), self.fft_lengths.as_slice());
        let (shape, shown) = (ShowShape(&operand.shape), tuple(lengths));
        if !(1..=3).contains(&lengths.len()) {
            return Err(value_error!(
                "fft is over 1, 2 or 3 axes, got fft_lengths {shown}. Transform some axes, then the others."
            ));
        }
        let Some(first) = operand.rank().checked_sub(lengths.len()) else {
            return Err(value_error!(
                "fft: fft_lengths {shown} are for more axes than the operand of shape {shape} has."
            ));
        };
        let accepted = match self.fft_type {
            FftType::Rfft => matches!(operand.dtype, DType::F32 | DType::F64),
            _ => operand.dtype.is_complex(),
        };
        if !accepted {
            let expected =
                if self.fft_type == FftType::Rfft { "float32 or float64" } else { "complex64 or complex128" };
            return Err(value_error!("{name} input must be {expected}, got {}", operand.dtype));
        }
        let (last, outer) = (lengths.len() - 1, &operand.shape[first..]);
        let mut output = operand.clone();
        output.weak = false;
        let mut halved = lengths[last].floor_div(&Dim::Const(2))?.offset(1)?;
        match self.fft_type {
            FftType::Irfft => {
                if outer[..last] != lengths[..last] {
                    return Err(value_error!(
                        "irfft: all but the last of fft_lengths={shown} must be the sizes of the \
                         operand's axes, whose shape is {shape}"
                    ));
                }
                if lengths[last] == Dim::Const(0) {
                    halved = outer[last].clone();
                }
                if outer[last] != halved {
                    return Err(value_error!(
                        "IRFFT input shape {shape} must have a last dimension of {halved} for the length {}: \
                         fft_length // 2 + 1",
                        lengths[last]
                    ));
                }
                output.dtype = operand.dtype.real();
                output.shape[first + last] = lengths[last].clone();
            }
            _ => {
                if outer != lengths {
                    return Err(value_error!(
                        "{name}: the last axes of shape {shape} do not have the sizes fft_lengths {shown}"
                    ));
                }
                if self.fft_type == FftType::Rfft {
                    if lengths[last] == Dim::Const(0) {
                        return Err(value_error!(
                            "RFFT over a dimension of size 0, got the input shape {shape}"
                        ));
                    }
                    output.dtype = operand.dtype.complex().unwrap_or(operand.dtype);
                    output.shape[first + last] = halved;
                }
            }
        }
        Ok(SmallVec::from_iter([Type::Array(output)]))
    }

    /// By the definition, in `f64`, one axis after the other.
    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let [operand] = tensors(Self::NAME, inputs)?;
        let (dtype, sizes) = output_sizes(Self::NAME, outputs)?;
        let mut result = Tensor::zeros(dtype, sizes.clone())?;
        if result.is_empty() {
            return Ok(vec![result]);
        }
        let width = operand.dtype().size();
        let mut values: Vec<(f64, f64)> = operand
            .bytes()
            .chunks_exact(width)
            .map(|bytes| match load(operand.dtype(), bytes) {
                Some(Wide::Float(re)) => Ok((re, 0.0)),
                Some(Wide::Complex(re, im)) => Ok((re, im)),
                _ => Err(internal_error!("fft of {}", operand.dtype())),
            })
            .collect::<Result<_>>()?;
        let mut shape = operand.sizes().to_vec();
        let last = shape.len() - 1;
        let first = shape.len() - self.fft_lengths.len();
        let (sign, inverse) = if self.fft_type.is_inverse() { (1.0, true) } else { (-1.0, false) };
        // The last axis goes last where it becomes real, else first.
        let mut axes: Vec<usize> = (first..=last).collect();
        if !inverse {
            axes.reverse();
        }
        for axis in axes {
            let to_real = axis == last && self.fft_type == FftType::Irfft;
            let length = if to_real { sizes[axis] } else { shape[axis] };
            let (from, to) = (shape[axis], sizes[axis]);
            let inner: usize = shape[axis + 1..].iter().product();
            let outer = element_count(&shape[..axis]);
            let mut next = vec![(0.0, 0.0); outer * to * inner];
            for line in 0..outer * inner {
                let (block, column) = (line / inner, line % inner);
                for k in 0..to {
                    let (mut re, mut im) = (0.0, 0.0);
                    for j in 0..length {
                        // What `from` numbers do not hold is the mirror image of what they do.
                        let (place, mirrored) = if j < from { (j, false) } else { (length - j, true) };
                        let (x, mut y) = values[(block * from + place) * inner + column];
                        if mirrored {
                            y = -y;
                        } else if to_real && (j == 0 || 2 * j == length) {
                            y = 0.0;
                        }
                        // The angle of `jk` turns, without whole ones.
                        let turn = ((j as u128 * k as u128) % length as u128) as f64 / length as f64;
                        let angle = sign * turn * std::f64::consts::TAU;
                        let (sin, cos) = (libm::sin(angle), libm::cos(angle));
                        re += x * cos - y * sin;
                        im += x * sin + y * cos;
                    }
                    let scale = if inverse { length as f64 } else { 1.0 };
                    next[(block * to + k) * inner + column] = (re / scale, im / scale);
                }
            }
            values = next;
            shape[axis] = to;
        }
        let target = result.bytes_mut()?;
        for (bytes, &(re, im)) in target.chunks_exact_mut(dtype.size()).zip(&values) {
            let value = if dtype.is_complex() { Wide::Complex(re, im) } else { Wide::Float(re) };
            let scalar = store(dtype, value).ok_or_else(|| internal_error!("fft to {dtype}"))?;
            bytes.copy_from_slice(&scalar.bytes());
        }
        Ok(vec![result])
    }
}

impl Rules for Fft {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        linear_jvp(self.clone(), b, eqn)
    }

    fn transpose(&self, b: &mut Builder, eqn: &Transpose<'_>) -> Result<Cotangents> {
        let cotangent = only_cotangent(Self::NAME, eqn)?;
        let with = |fft_type| Fft { fft_lengths: self.fft_lengths.clone(), fft_type };
        one_cotangent(match self.fft_type {
            FftType::Fft | FftType::Ifft => b.emit1(self.clone(), &[cotangent])?,
            // The sum over half of the frequencies of `c[k] w^(jk)`, of which the real part is left: by the
            // mirror images this is the sum over all of `conj(c[k]) / 2 w^(-jk)`.
            FftType::Rfft => {
                let conjugate = b.unary(Unary::Conj, cotangent)?;
                let count = self.count()?;
                let halved = self.weigh(b, conjugate, count, count / 2.0)?;
                b.emit1(with(FftType::Irfft), &[halved])?
            }
            FftType::Irfft => {
                let all = b.emit1(with(FftType::Rfft), &[cotangent])?;
                let count = self.count()?;
                let doubled = self.weigh(b, all, 1.0 / count, 2.0 / count)?;
                b.unary(Unary::Conj, doubled)?
            }
        })
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let (operand, dim) = only_batched(Self::NAME, eqn)?;
        // A batch in front of the transformed axes may stay where it is.
        let front = b.rank(operand) - 1 - self.fft_lengths.len();
        let target = dim.min(front);
        let operand = b.move_axis(operand, dim, target)?;
        let output = b.emit1(self.clone(), &[operand])?;
        one_batched(output, target)
    }

    fn coupled_axes(&self, rank: usize) -> Option<Axes> {
        Some((rank.saturating_sub(self.fft_lengths.len())..rank).collect())
    }

    fn lower(&self) -> Lowering {
        Lowering::Library
    }
}
