//! The rules of ops with sub-programs: for each op what each transformation
//! does with it. The transformations match on `View` and call these.

pub(crate) mod checkpoint;
pub(crate) mod cond;
pub(crate) mod custom;
pub(crate) mod invariant;
pub(crate) mod ruled;
pub(crate) mod saved;
pub(crate) mod scan;
pub(crate) mod silent;
pub(crate) mod sweeps;
pub(crate) mod while_loop;
pub(crate) mod wiring;
