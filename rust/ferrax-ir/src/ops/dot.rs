//! `dot_general`: products over contracted axes.

use crate::rules::FromParams;
use crate::{Axes, DType, Param, Params, Result, ToParam, pending_rules, string_enum, type_error};

string_enum! {
    /// How exactly a product is computed. Every backend here computes floats at
    /// their own precision at least, so all three agree.
    Precision { Default = "default", High = "high", Highest = "highest" }
}

/// Sums products over pairs of contracted axes, elementwise over pairs of batch
/// axes. Result axes: batch, then left free, then right free.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DotGeneral {
    pub lhs_contracting: Axes,
    pub rhs_contracting: Axes,
    pub lhs_batch: Axes,
    pub rhs_batch: Axes,
    pub precision: Option<Precision>,
    pub preferred_element_type: Option<DType>,
}

impl DotGeneral {
    fn op_name(&self) -> &'static str {
        "dot_general"
    }

    fn param_list(&self) -> Vec<(&'static str, Param)> {
        let pair = |a: &Axes, b: &Axes| Param::List(vec![a.to_param(), b.to_param()]);
        vec![
            (
                "dimension_numbers",
                Param::List(vec![
                    pair(&self.lhs_contracting, &self.rhs_contracting),
                    pair(&self.lhs_batch, &self.rhs_batch),
                ]),
            ),
            ("precision", self.precision.to_param()),
            ("preferred_element_type", self.preferred_element_type.to_param()),
        ]
    }
}

impl FromParams for DotGeneral {
    const NAMES: &'static [(&'static str, &'static str)] =
        &[("dot_general", "Products summed over contracted axes, elementwise over batch axes.")];

    fn from_params(_name: &str, params: &mut Params) -> Result<Self> {
        let numbers: Vec<Vec<Axes>> = params.take("dimension_numbers")?;
        let [contracting, batch] = numbers.as_slice() else {
            return Err(type_error!("dimension_numbers are ((lhs, rhs) contracting, (lhs, rhs) batch)"));
        };
        let ([lhs_contracting, rhs_contracting], [lhs_batch, rhs_batch]) =
            (contracting.as_slice(), batch.as_slice())
        else {
            return Err(type_error!("dimension_numbers are ((lhs, rhs) contracting, (lhs, rhs) batch)"));
        };
        Ok(DotGeneral {
            lhs_contracting: lhs_contracting.clone(),
            rhs_contracting: rhs_contracting.clone(),
            lhs_batch: lhs_batch.clone(),
            rhs_batch: rhs_batch.clone(),
            precision: params.take("precision")?,
            preferred_element_type: params.take("preferred_element_type")?,
        })
    }
}

pending_rules!(DotGeneral);
