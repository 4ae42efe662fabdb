//! The running reductions: one row each, with everything that there is to say of it.

use super::{CumulativeRow, Derivative, dual};
use crate::convert::Wide;
use crate::op_table;
use crate::ops::accumulate::{MAX, MIN, PRODUCT, SUM};

op_table! {
    /// Which running reduction.
    CumulativeKind: CumulativeRow {
        Sum = CumulativeRow {
            name: "cumsum",
            doc: "Running sum along an axis.",
            example: (&[Wide::Float(1.5), Wide::Float(2.0), Wide::Float(0.5)], &[Wide::Float(1.5), Wide::Float(3.5), Wide::Float(4.0)]),
            inexact: false,
            combine: SUM.combine,
            derivative: Derivative::Linear,
        },
        Prod = CumulativeRow {
            name: "cumprod",
            doc: "Running product along an axis.",
            example: (&[Wide::Float(1.5), Wide::Float(2.0), Wide::Float(0.5)], &[Wide::Float(1.5), Wide::Float(3.0), Wide::Float(1.5)]),
            inexact: false,
            combine: PRODUCT.combine,
            derivative: Derivative::Pairs(dual::product),
        },
        Max = CumulativeRow {
            name: "cummax",
            doc: "Running maximum along an axis.",
            example: (&[Wide::Float(1.5), Wide::Float(2.0), Wide::Float(0.5)], &[Wide::Float(1.5), Wide::Float(2.0), Wide::Float(2.0)]),
            inexact: false,
            combine: MAX.combine,
            derivative: Derivative::Pairs(dual::max),
        },
        Min = CumulativeRow {
            name: "cummin",
            doc: "Running minimum along an axis.",
            example: (&[Wide::Float(1.5), Wide::Float(2.0), Wide::Float(0.5)], &[Wide::Float(1.5), Wide::Float(1.5), Wide::Float(0.5)]),
            inexact: false,
            combine: MIN.combine,
            derivative: Derivative::Pairs(dual::min),
        },
        LogSumExp = CumulativeRow {
            name: "cumlogsumexp",
            doc: "Running log of the sum of exponentials along an axis.",
            example: (&[Wide::Float(0.0), Wide::Float(0.0)], &[Wide::Float(0.0), Wide::Float(std::f64::consts::LN_2)]),
            inexact: true,
            combine: log_add_exp,
            derivative: Derivative::Pairs(dual::log_sum_exp),
        },
    }
}

/// `log(e^a + e^b)` without overflow.
fn log_add_exp(a: Wide, b: Wide) -> Option<Wide> {
    Some(match (a, b) {
        (Wide::Float(a), Wide::Float(b)) => {
            // Equal infinities have no difference; their sum is the answer.
            let distance = (a - b).abs();
            Wide::Float(if distance.is_nan() { a + b } else { a.max(b) + (-distance).exp().ln_1p() })
        }
        (Wide::Complex(a, x), Wide::Complex(b, y)) => {
            let top = a.max(b);
            if !top.is_finite() {
                let (re, im) = if a >= b { (a, x) } else { (b, y) };
                return Some(Wide::Complex(re, im));
            }
            let re = (a - top).exp() * x.cos() + (b - top).exp() * y.cos();
            let im = (a - top).exp() * x.sin() + (b - top).exp() * y.sin();
            Wide::Complex(top + re.hypot(im).ln(), im.atan2(re))
        }
        _ => return None,
    })
}
