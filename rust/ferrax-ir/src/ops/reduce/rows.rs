//! The reductions: one row each, with everything that there is to say of it.

use std::cmp::Ordering;

use super::{ArgRow, Derivative, Domain, ReduceRow, derivatives};
use crate::convert::Wide;
use crate::lowering::AccumulatorKind;
use crate::op_table;
use crate::ops::accumulate::{AND, MAX, MIN, OR, PRODUCT, SUM, XOR};

op_table! {
    /// Which reduction.
    ReduceKind: ReduceRow {
        Sum = ReduceRow {
            name: "reduce_sum",
            doc: "Sum over axes.",
            example: (&[Wide::Float(1.5), Wide::Float(2.0), Wide::Float(0.5)], Wide::Float(4.0)),
            domain: Domain::Numbers,
            reducer: SUM,
            accumulator: AccumulatorKind::Sum,
            derivative: Derivative::Linear(derivatives::sum_transposed),
        },
        Prod = ReduceRow {
            name: "reduce_prod",
            doc: "Product over axes.",
            example: (&[Wide::Float(1.5), Wide::Float(2.0), Wide::Float(0.5)], Wide::Float(1.5)),
            domain: Domain::Numbers,
            reducer: PRODUCT,
            accumulator: AccumulatorKind::Prod,
            derivative: Derivative::Tangent(derivatives::product),
        },
        Max = ReduceRow {
            name: "reduce_max",
            doc: "Maximum over axes; NaN if there is one.",
            example: (&[Wide::Float(1.5), Wide::Float(2.0), Wide::Float(0.5)], Wide::Float(2.0)),
            domain: Domain::Ordered,
            reducer: MAX,
            accumulator: AccumulatorKind::Max,
            derivative: Derivative::Tangent(derivatives::extremum),
        },
        Min = ReduceRow {
            name: "reduce_min",
            doc: "Minimum over axes; NaN if there is one.",
            example: (&[Wide::Float(1.5), Wide::Float(2.0), Wide::Float(0.5)], Wide::Float(0.5)),
            domain: Domain::Ordered,
            reducer: MIN,
            accumulator: AccumulatorKind::Min,
            derivative: Derivative::Tangent(derivatives::extremum),
        },
        And = ReduceRow {
            name: "reduce_and",
            doc: "Bitwise and over axes.",
            example: (&[Wide::Int(6), Wide::Int(3), Wide::Int(7)], Wide::Int(2)),
            domain: Domain::Bits,
            reducer: AND,
            accumulator: AccumulatorKind::And,
            derivative: Derivative::Zero,
        },
        Or = ReduceRow {
            name: "reduce_or",
            doc: "Bitwise or over axes.",
            example: (&[Wide::Int(4), Wide::Int(1), Wide::Int(5)], Wide::Int(5)),
            domain: Domain::Bits,
            reducer: OR,
            accumulator: AccumulatorKind::Or,
            derivative: Derivative::Zero,
        },
        Xor = ReduceRow {
            name: "reduce_xor",
            doc: "Bitwise exclusive or over axes.",
            example: (&[Wide::Int(4), Wide::Int(1), Wide::Int(5)], Wide::Int(0)),
            domain: Domain::Bits,
            reducer: XOR,
            accumulator: AccumulatorKind::Xor,
            derivative: Derivative::Zero,
        },
    }
}

op_table! {
    /// Which extremum's index.
    ArgKind: ArgRow {
        Max = ArgRow {
            name: "argmax",
            doc: "Index of the first maximum along an axis.",
            example: (&[Wide::Float(1.5), Wide::Float(2.0), Wide::Float(2.0)], Wide::Int(1)),
            wanted: Ordering::Greater,
            accumulator: AccumulatorKind::ArgMax,
        },
        Min = ArgRow {
            name: "argmin",
            doc: "Index of the first minimum along an axis.",
            example: (&[Wide::Float(1.5), Wide::Float(0.5), Wide::Float(0.5)], Wide::Int(1)),
            wanted: Ordering::Less,
            accumulator: AccumulatorKind::ArgMin,
        },
    }
}
