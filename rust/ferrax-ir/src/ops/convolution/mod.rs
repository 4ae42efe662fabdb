//! `conv_general_dilated`: sums of products of an array with a window that slides over it.
//!
//! In: `lhs` with a batch, a feature and any number of spatial axes; `rhs`, the window, with an output
//! feature, an input feature and as many spatial axes; out: batch, feature, spatial axes. Which axis is
//! which is the three specs'. Along each spatial axis, with x the place in the dilated, padded `lhs`,
//!
//! ```text
//! out[n, o, p] = sum over c, q of lhs[n, c, (p * stride + q * rhs_dilation - low) / lhs_dilation] * rhs[o, c, q]
//! ```
//!
//! where terms count whose place is one of the operand's: others are zero, and a backend may multiply them
//! or not, so that infinite weights may give NaN beside padding. With g feature groups the features of `lhs` and
//! the output features are cut into g parts that meet each other; with g batch groups the batch of `lhs`
//! is cut instead. Nothing is reversed: it is a correlation in the sense of signal processing.
//!
//! Cost of the reference evaluation: one multiplication for each term, in `f64` or wrapping integers.

mod rules;

use crate::convert::{Wide, store};
use crate::rules::{FromParams, Row, Types};
use crate::{
    ArrayType, Axes, DType, Dim, Kind, Param, Params, Result, Shape, ShowShape, Tensor, ToParam, Type,
    internal_error, type_error, value_error,
};

use super::Precision;
use super::common::one;
use super::dot::{add, product, value};
use super::index_space::{for_each_index, has_duplicates, operands, output_sizes, strides, tensors, tuple};

/// A convolution over any number of spatial axes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ConvGeneralDilated {
    pub window_strides: Axes,
    /// What each spatial axis is padded by before and after; negative widths crop.
    pub padding: Vec<(i64, i64)>,
    pub lhs_dilation: Axes,
    pub rhs_dilation: Axes,
    pub dims: ConvDims,
    pub feature_group_count: usize,
    pub batch_group_count: usize,
    pub precision: Option<Precision>,
    pub preferred_element_type: Option<DType>,
}

/// The roles of axes: (batch, feature, spatial …) of `lhs` and of the result, (output feature, input
/// feature, spatial …) of `rhs`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ConvDims {
    pub lhs: Axes,
    pub rhs: Axes,
    pub out: Axes,
}

impl ConvGeneralDilated {
    const NAME: &'static str = "conv_general_dilated";

    fn op_name(&self) -> &'static str {
        Self::NAME
    }

    fn param_list(&self) -> Vec<(&'static str, Param)> {
        let dims = &self.dims;
        vec![
            ("window_strides", self.window_strides.to_param()),
            ("padding", self.padding.to_param()),
            ("lhs_dilation", self.lhs_dilation.to_param()),
            ("rhs_dilation", self.rhs_dilation.to_param()),
            (
                "dimension_numbers",
                Param::List(vec![dims.lhs.to_param(), dims.rhs.to_param(), dims.out.to_param()]),
            ),
            ("feature_group_count", self.feature_group_count.to_param()),
            ("batch_group_count", self.batch_group_count.to_param()),
            ("precision", self.precision.to_param()),
            ("preferred_element_type", self.preferred_element_type.to_param()),
        ]
    }
}

impl FromParams for ConvGeneralDilated {
    const NAMES: &'static [(&'static str, &'static str)] =
        &[(Self::NAME, "Sums of products with a window that slides over an array, a convolution.")];

    fn from_params(_name: &str, params: &mut Params) -> Result<Self> {
        let dims: Vec<Axes> = params.take("dimension_numbers")?;
        let Ok([lhs, rhs, out]) = <[Axes; 3]>::try_from(dims) else {
            return Err(type_error!("dimension_numbers of a convolution are three lists of axes"));
        };
        Ok(ConvGeneralDilated {
            window_strides: params.take("window_strides")?,
            padding: params.take("padding")?,
            lhs_dilation: params.take("lhs_dilation")?,
            rhs_dilation: params.take("rhs_dilation")?,
            dims: ConvDims { lhs, rhs, out },
            feature_group_count: params.take("feature_group_count")?,
            batch_group_count: params.take("batch_group_count")?,
            precision: params.take("precision")?,
            preferred_element_type: params.take("preferred_element_type")?,
        })
    }
}

/// The size of an axis with gaps between its elements.
pub(super) fn dilated(size: &Dim, dilation: usize) -> Result<Dim> {
    match size {
        Dim::Const(0) => Ok(Dim::Const(0)),
        size if dilation == 1 => Ok(size.clone()),
        size => {
            let gap = i64::try_from(dilation).map_err(|_| value_error!("a dilation of {dilation}"))? - 1;
            size.mul(&Dim::Const(dilation))?.offset(-gap)
        }
    }
}

impl ConvGeneralDilated {
    fn spatial(&self) -> usize {
        self.dims.rhs.len().saturating_sub(2)
    }

    /// How many parts the features of the result are cut into.
    fn groups(&self) -> usize {
        self.feature_group_count.max(self.batch_group_count)
    }

    fn check_parameters(&self, lhs: &ArrayType, rhs: &ArrayType) -> Result<()> {
        if lhs.rank() != rhs.rank() {
            return Err(value_error!(
                "conv_general_dilated: lhs and rhs need equal ranks, got {} and {}.",
                ShowShape(&lhs.shape),
                ShowShape(&rhs.shape)
            ));
        }
        let rank = lhs.rank();
        let dims = &self.dims;
        for (name, spec) in [("lhs", &dims.lhs), ("rhs", &dims.rhs), ("out", &dims.out)] {
            if spec.len() != rank || rank < 2 || has_duplicates(spec) || spec.iter().any(|&axis| axis >= rank)
            {
                return Err(type_error!(
                    "conv_general_dilated {name}_spec must be an order of the {rank} axes, at least two, got {}.",
                    tuple(spec)
                ));
            }
        }
        for (name, count) in
            [("feature_group_count", self.feature_group_count), ("batch_group_count", self.batch_group_count)]
        {
            if count == 0 {
                return Err(value_error!("conv_general_dilated: {name} is 1 or more, got {count}."));
            }
        }
        if self.feature_group_count > 1 && self.batch_group_count > 1 {
            return Err(value_error!(
                "conv_general_dilated: either batches or features are grouped, got batch_group_count={} \
                 and feature_group_count={}",
                self.batch_group_count,
                self.feature_group_count
            ));
        }
        for (name, count) in [
            ("window_strides", self.window_strides.len()),
            ("lhs_dilation", self.lhs_dilation.len()),
            ("rhs_dilation", self.rhs_dilation.len()),
        ] {
            if count != rank - 2 {
                return Err(value_error!(
                    "conv_general_dilated: the window has {} axes, {name} is for {count}",
                    rank - 2
                ));
            }
        }
        if self.padding.len() != rank - 2 {
            return Err(type_error!(
                "conv_general_dilated: padding is a pair for each of {} axes, got {}.",
                rank - 2,
                self.padding.len()
            ));
        }
        if self.window_strides.contains(&0) {
            return Err(value_error!(
                "conv_general_dilated window_strides must be positive, got {}.",
                tuple(&self.window_strides)
            ));
        }
        for dilation in [&self.lhs_dilation, &self.rhs_dilation] {
            if dilation.contains(&0) {
                return Err(type_error!(
                    "conv_general_dilated: a dilation is 1 or more, got {}.",
                    tuple(dilation)
                ));
            }
        }
        Ok(())
    }

    fn check_features(&self, lhs: &ArrayType, rhs: &ArrayType) -> Result<()> {
        let (groups, dims) = (self.feature_group_count, &self.dims);
        let features = &lhs.shape[dims.lhs[1]];
        let taken = &rhs.shape[dims.rhs[1]];
        // A symbolic size that is no multiple of the count has no quotient that is a size.
        let divides = |count: usize, size: &Dim| match size {
            Dim::Const(size) => size % count == 0,
            symbolic => symbolic.modulo(&Dim::Const(count)).is_ok_and(|rest| rest == Dim::Const(0)),
        };
        if !divides(groups, features) {
            return Err(value_error!(
                "conv_general_dilated: the {features} features of lhs cannot be divided into \
                 feature_group_count={groups} groups."
            ));
        }
        if features.floor_div(&Dim::Const(groups))? != *taken {
            return Err(value_error!(
                "conv_general_dilated: rhs takes {taken} input features, a group of lhs has {features} \
                 // {groups}."
            ));
        }
        let (batch, given) = (&lhs.shape[dims.lhs[0]], &rhs.shape[dims.rhs[0]]);
        if !divides(self.batch_group_count, batch) {
            return Err(value_error!(
                "conv_general_dilated: batch_group_count={} groups cannot be made of a batch of {batch}.",
                self.batch_group_count
            ));
        }
        for (name, count) in [("feature_group_count", groups), ("batch_group_count", self.batch_group_count)]
        {
            if !divides(count, given) {
                return Err(value_error!(
                    "conv_general_dilated: the {given} output features of rhs cannot be divided into \
                     {name}={count} groups."
                ));
            }
        }
        Ok(())
    }

    /// The size of spatial axis `axis` of the result.
    fn result_size(&self, axis: usize, size: &Dim, window: &Dim) -> Result<Dim> {
        let (low, high) = self.padding[axis];
        let failed = || {
            value_error!(
                "conv_general_dilated: negative padding ({low}, {high}) takes away more than there is: a \
                 size of {size}, dilated by {}",
                self.lhs_dilation[axis]
            )
        };
        let width = low.checked_add(high).ok_or_else(failed)?;
        let padded = dilated(size, self.lhs_dilation[axis])?.offset(width).map_err(|_| failed())?;
        let window = dilated(window, self.rhs_dilation[axis])?;
        let stride = self.window_strides[axis];
        match (&padded, &window) {
            (Dim::Const(padded), Dim::Const(window)) => Ok(Dim::Const(match padded.checked_sub(*window) {
                Some(room) => room / stride + 1,
                None => 0,
            })),
            _ => padded.sub(&window)?.floor_div(&Dim::Const(stride))?.offset(1),
        }
    }

    fn result_dtype(&self, dtype: DType) -> Result<DType> {
        let Some(preferred) = self.preferred_element_type else { return Ok(dtype) };
        if dtype.is_integer() && preferred.is_float() {
            return Ok(preferred);
        }
        let same_kind = match dtype.kind() {
            Kind::Signed | Kind::Unsigned => preferred.is_integer(),
            Kind::Float => preferred.is_float(),
            Kind::Complex => preferred.is_complex(),
            _ => !matches!(preferred.kind(), Kind::Key | Kind::Float0),
        };
        if !same_kind {
            return Err(type_error!(
                "conv_general_dilated cannot have the preferred_element_type {preferred} for {dtype}: the kinds \
                 that go together are integers with integers or floats, floats with floats, complex numbers \
                 with complex numbers."
            ));
        }
        if dtype.kind() == Kind::Signed && preferred.kind() != Kind::Signed {
            return Err(type_error!(
                "conv_general_dilated: preferred_element_type {preferred} and the operands' {dtype} must \
                 both have a sign or none."
            ));
        }
        if preferred.size() < dtype.size() {
            return Err(type_error!(
                "conv_general_dilated: preferred_element_type {preferred} is narrower than the operands' \
                 {dtype}."
            ));
        }
        Ok(preferred)
    }
}

impl Row for ConvGeneralDilated {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [lhs, rhs] = operands(Self::NAME, inputs)?;
        for operand in [lhs, rhs] {
            if matches!(operand.dtype.kind(), Kind::Key | Kind::Float0) {
                return Err(type_error!("conv_general_dilated does not accept dtype {}.", operand.dtype));
            }
        }
        self.check_parameters(lhs, rhs)?;
        self.check_features(lhs, rhs)?;
        super::common::same_dtype(Self::NAME, &[lhs, rhs])?;
        let dims = &self.dims;
        let mut shape: Shape = lhs.shape.clone();
        let batch = &lhs.shape[dims.lhs[0]];
        shape[dims.out[0]] = batch.floor_div(&Dim::Const(self.batch_group_count))?;
        shape[dims.out[1]] = rhs.shape[dims.rhs[0]].clone();
        for axis in 0..self.spatial() {
            let (size, window) = (&lhs.shape[dims.lhs[axis + 2]], &rhs.shape[dims.rhs[axis + 2]]);
            shape[dims.out[axis + 2]] = self.result_size(axis, size, window)?;
        }
        let dtype = self.result_dtype(lhs.dtype)?;
        one(ArrayType::new(shape, dtype).with_weak(lhs.weak && rhs.weak && dtype == lhs.dtype))
    }

    /// Integers are summed exactly and wrap at the end, floats in `f64`.
    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let [lhs, rhs] = tensors(Self::NAME, inputs)?;
        let (dtype, sizes) = output_sizes(Self::NAME, outputs)?;
        let dims = &self.dims;
        let (left, right) = (strides(lhs.sizes()), strides(rhs.sizes()));
        let features = rhs.sizes()[dims.rhs[1]];
        let per_group = rhs.sizes()[dims.rhs[0]] / self.groups();
        // Input features, then places in the window.
        let terms: Vec<usize> = dims.rhs[1..].iter().map(|&axis| rhs.sizes()[axis]).collect();
        let mut result = Tensor::zeros(dtype, sizes.clone())?;
        let bytes = result.bytes_mut()?;
        let mut position = 0;
        for_each_index(&sizes, |index| {
            let (n, o) = (index[dims.out[0]], index[dims.out[1]]);
            let group = o / per_group;
            let batch = if self.batch_group_count > 1 { group * sizes[dims.out[0]] + n } else { n };
            let first = if self.feature_group_count > 1 { group * features } else { 0 };
            let mut total: Option<Wide> = None;
            for_each_index(&terms, |term| {
                let mut l = batch * left[dims.lhs[0]] + (first + term[0]) * left[dims.lhs[1]];
                let mut r = o * right[dims.rhs[0]] + term[0] * right[dims.rhs[1]];
                for axis in 0..self.spatial() {
                    let (p, q) = (index[dims.out[axis + 2]], term[axis + 1]);
                    let place = (p * self.window_strides[axis] + q * self.rhs_dilation[axis]) as i128
                        - i128::from(self.padding[axis].0);
                    let step = self.lhs_dilation[axis] as i128;
                    let size = lhs.sizes()[dims.lhs[axis + 2]] as i128;
                    if place < 0 || place % step != 0 || place / step >= size {
                        return Ok(());
                    }
                    l += (place / step) as usize * left[dims.lhs[axis + 2]];
                    r += q * right[dims.rhs[axis + 2]];
                }
                let term = product(value(lhs, l)?, value(rhs, r)?);
                total = Some(total.map_or(term, |sum| add(sum, term)));
                Ok(())
            })?;
            let total = total.unwrap_or(Wide::Int(0));
            let scalar = store(dtype, total).ok_or_else(|| internal_error!("a convolution to {dtype}"))?;
            let width = dtype.size();
            bytes[position * width..(position + 1) * width].copy_from_slice(&scalar.bytes());
            position += 1;
            Ok(())
        })?;
        Ok(vec![result])
    }
}
