//! Construction scaffold: rows that are not written yet. Removed when all are.

/// Rules that refuse.
#[macro_export]
macro_rules! pending_rules {
    ($($name:ty),* $(,)?) => {$(
        impl $crate::rules::Row for $name {
            fn name(&self) -> &str { self.op_name() }
            fn params(&self) -> Vec<(&'static str, $crate::Param)> { self.param_list() }
            fn infer(&self, _: &[$crate::Type]) -> $crate::Result<$crate::rules::Types> { Err($crate::unsupported!("pending")) }
            fn eval(&self, _: &[$crate::Tensor], _: &[$crate::Type]) -> $crate::Result<Vec<$crate::Tensor>> { Err($crate::unsupported!("pending")) }
        }
        impl $crate::rules::Rules for $name {
            fn jvp(&self, _: &mut $crate::Builder, _: &$crate::rules::Jvp<'_>) -> $crate::Result<smallvec::SmallVec<[Option<$crate::Atom>; 1]>> { Err($crate::unsupported!("pending")) }
            fn transpose(&self, _: &mut $crate::Builder, _: &$crate::rules::Transpose<'_>) -> $crate::Result<smallvec::SmallVec<[Option<$crate::Atom>; 3]>> { Err($crate::unsupported!("pending")) }
            fn batch(&self, _: &mut $crate::Builder, _: &$crate::rules::Batch<'_>) -> $crate::Result<$crate::rules::Batched> { Err($crate::unsupported!("pending")) }
            fn lower(&self) -> $crate::rules::Lowering { $crate::rules::Lowering::Library }
        }
    )*};
}
