//! How terms become the values of accumulators.
//!
//! Sums and products of floats are the tree of `interpret::tree`: blocks of [`BLOCK`] terms, in each of which a lane
//! adds every [`LANES`]-th term, the lanes are added by halves (in order in a block of at most [`FEW`] terms), and
//! blocks are added as a binary counter counts. Who does what changes nothing of it ([`Fold`]): an invocation can do
//! all; or the invocations of a workgroup are the lanes of several blocks at a time; or many workgroups have a
//! segment of the terms each, which is a subtree as the blocks of a segment are a power of two, and others add up
//! what these give.

use ferrax_compile::interpret::{BLOCK, FEW, LANES};
use ferrax_compile::{Accumulator, AccumulatorKind, Stage, registers};
use ferrax_ir::scalar::{Body, Instruction, Reg, ScalarOp, ScalarType};
use ferrax_ir::{Result, Scalar, internal_error};

use super::numbers::{Fold, Form, PARTIAL, SEGMENT_BLOCKS, SEGMENTS, TERMS};
use super::types::{from_words, register, to_words};
use super::{Writer, name, ops};

/// What the invocations of a workgroup share to fold these forms, one after the other: arrays with an element for
/// each invocation.
pub fn shared<'a>(forms: impl IntoIterator<Item = &'a Form>) -> Vec<(String, ScalarType)> {
    let mut arrays: Vec<(String, ScalarType)> = Vec::new();
    let mut add = |name: String, ty: ScalarType| {
        if arrays.iter().all(|(known, _)| *known != name) {
            arrays.push((name, ty));
        }
    };
    for form in forms.into_iter().filter(|form| form.fold.is_shared()) {
        for (k, accumulator) in form.kernel.accumulators.iter().enumerate() {
            add(shared_of(form, k), accumulator.ty);
            if !accumulator.is_tree() {
                add(format!("places{k}"), ScalarType::U32);
                add("given".to_string(), ScalarType::U32);
            }
        }
    }
    arrays
}

/// Declares it for workgroups of so many invocations.
pub(super) fn declared(arrays: &[(String, ScalarType)], lanes: u32) -> String {
    let array = |(name, ty): &(String, ScalarType)| {
        format!("var<workgroup> {name}: array<{}, {lanes}>;\n", register(*ty))
    };
    arrays.iter().map(array).collect()
}

/// The shared array of accumulator k: forms share those of a type.
fn shared_of(form: &Form, k: usize) -> String {
    let accumulators = &form.kernel.accumulators;
    let ty = register(accumulators[k].ty);
    let before = accumulators[..k].iter().filter(|other| register(other.ty) == ty).count();
    format!("shared_{ty}_{before}")
}

impl Writer<'_> {
    /// Folds the terms of this invocation's index, and leaves the value of accumulator k in `ak`.
    pub(super) fn fold(&mut self, main: &(Body, Vec<Reg>)) -> Result<()> {
        self.begin();
        let terms = self.word(TERMS);
        if self.form.fold == Fold::SegmentsEach {
            let of_segment = format!("{} * {BLOCK}u", self.word(SEGMENT_BLOCKS));
            self.line(format!(
                "let begin = segment * {of_segment};\nlet end = min(begin + {of_segment}, {terms});"
            ));
        } else {
            self.line(format!("let begin = 0u;\nlet end = {terms};"));
        }
        self.line("for (var t = begin; t < end; t = t + 1u) {");
        self.terms(main)?;
        for (k, accumulator) in self.form.kernel.accumulators.iter().enumerate() {
            let term = name(Stage::Main, main.1[accumulator.arg.0 as usize]);
            if accumulator.is_tree() {
                self.block_of_one(k, accumulator, &term)?;
            } else {
                self.better(k, accumulator, "t == begin", &term, "t")?;
            }
        }
        self.line("}");
        match self.form.fold {
            Fold::SegmentsEach => Ok(()),
            _ => self.results(),
        }
    }

    /// Folds what the segments gave.
    pub(super) fn finish(&mut self) -> Result<()> {
        let partials = self.form.kernel.operands.len();
        self.begin();
        self.line(format!("for (var s = 0u; s < {}; s = s + 1u) {{", self.word(SEGMENTS)));
        for (k, accumulator) in self.form.kernel.accumulators.iter().enumerate() {
            let at = self.partial(k, "s");
            let word = |n: usize| format!("word{partials}(at{k} + {n}u)");
            self.line(format!("let at{k} = {at};"));
            let value = from_words(accumulator.ty, &word(0), &word(1));
            if accumulator.is_tree() {
                self.line(format!("{{ var value = {value};"));
                self.count_up(k, accumulator)?;
                self.line("}");
            } else {
                self.line(format!("let value{k} = {value};"));
                self.better(k, accumulator, "s == 0u", &format!("value{k}"), &word(2))?;
            }
        }
        self.line("}");
        self.results()
    }

    /// Folds the terms of a workgroup's index, or a segment of them; what follows is for its first invocation.
    pub(super) fn fold_together(&mut self, main: &(Body, Vec<Reg>)) -> Result<()> {
        let accumulators = &self.form.kernel.accumulators;
        let (terms, of_segment) = (self.word(TERMS), self.word(SEGMENT_BLOCKS));
        let blocks = self.lanes as usize / LANES;
        self.begin();
        self.line(format!(
            "let lane = local.x % {LANES}u;\nlet of_block = local.x / {LANES}u;\nvar any = false;\n\
             let begin = segment * {of_segment};\n\
             let end = min(begin + {of_segment}, ({terms} + {}u) / {BLOCK}u);\n\
             for (var round = begin; round < end; round = round + {blocks}u) {{\n\
             let first = (round + of_block) * {BLOCK}u;\n\
             let left = {terms} - min({terms}, first);\n\
             let in_order = left <= {FEW}u;",
            BLOCK - 1
        ));
        for (k, accumulator) in accumulators.iter().enumerate().filter(|(_, a)| a.is_tree()) {
            self.line(format!("var lane{k}: {} = {};", register(accumulator.ty), identity(accumulator)));
        }
        self.line(format!(
            "for (var j = 0u; j < {}u; j = j + 1u) {{\n\
             let t = select(first + lane + j * {LANES}u, first + j, in_order);\n\
             if round + of_block < end && t < {terms} && (lane == 0u || !in_order) {{",
            BLOCK / LANES
        ));
        self.terms(main)?;
        for (k, accumulator) in accumulators.iter().enumerate() {
            let term = name(Stage::Main, main.1[accumulator.arg.0 as usize]);
            if accumulator.is_tree() {
                let more = pair(accumulator, &format!("lane{k}"), &term)?;
                self.line(format!("lane{k} = {more};"));
            } else {
                self.better(k, accumulator, "!any", &term, "t")?;
            }
        }
        self.line("any = true;\n}\n}");
        let trees: Vec<usize> = (0..accumulators.len()).filter(|&k| accumulators[k].is_tree()).collect();
        if !trees.is_empty() {
            self.blocks(&trees)?;
        }
        self.line("}");
        if trees.len() < accumulators.len() {
            self.best_of_all()?;
        }
        Ok(())
    }

    /// Stores what this segment gave.
    pub(super) fn store_partials(&mut self) -> Result<()> {
        let partials = self.form.kernel.operands.len();
        self.results()?;
        for (k, accumulator) in self.form.kernel.accumulators.iter().enumerate() {
            let at = self.partial(k, "segment");
            let (value, place) = match accumulator.kind.is_arg() {
                true => (format!("best{k}"), format!("place{k}")),
                false => (format!("a{k}"), "0u".to_string()),
            };
            let [low, high] = to_words(accumulator.ty, &value);
            self.line(format!(
                "let at{k} = {at};\nset{partials}(at{k}, {low});\nset{partials}(at{k} + 1u, {high});\nset{partials}(at{k} + 2u, {place});"
            ));
        }
        Ok(())
    }

    /// Where the words are that a segment gives for accumulator k.
    fn partial(&self, k: usize, segment: &str) -> String {
        let words = self.form.partial_words();
        format!("(number * {} + {segment}) * {words}u + {}u", self.word(SEGMENTS), PARTIAL * k)
    }

    fn begin(&mut self) {
        let blocks = matches!(self.form.fold, Fold::Each | Fold::SegmentsEach);
        for (k, accumulator) in self.form.kernel.accumulators.iter().enumerate() {
            let ty = register(accumulator.ty);
            if accumulator.is_tree() {
                if blocks {
                    self.line(format!("var lanes{k}: array<{ty}, {LANES}>;"));
                }
                self.line(format!("var counter{k}: array<{ty}, 32>; var filled{k} = 0u;"));
            } else {
                let zero = ops::constant(accumulator.ty, 0);
                self.line(format!("var best{k}: {ty} = {zero}; var place{k} = 0u;"));
            }
        }
    }

    /// What the main body gives at term `t`, and its stores.
    fn terms(&mut self, main: &(Body, Vec<Reg>)) -> Result<()> {
        self.indices(&self.form.inner(), "t");
        let kernel = &self.form.kernel;
        let stores: Vec<usize> =
            (0..kernel.stores.len()).filter(|&n| kernel.stores[n].stage == Stage::Main).collect();
        let kept = stores.iter().flat_map(|&n| registers(kernel.stores[n].value));
        let wanted: Vec<Reg> = kept
            .chain(kernel.accumulators.iter().map(|accumulator| accumulator.arg))
            .map(|reg| main.1[reg.0 as usize])
            .collect();
        self.instructions(Stage::Main, &main.0, &wanted, &[])?;
        self.stores(Stage::Main, &stores, &main.1)
    }

    /// Takes a term, where an invocation has all lanes of a block.
    fn block_of_one(&mut self, k: usize, accumulator: &Accumulator, term: &str) -> Result<()> {
        let first = pair(accumulator, &identity(accumulator), term)?;
        let lane = format!("lanes{k}[t % {LANES}u]");
        let more = pair(accumulator, &lane, term)?;
        let halves = pair(accumulator, &format!("lanes{k}[lane]"), &format!("lanes{k}[lane + half]"))?;
        let in_order = pair(accumulator, &format!("lanes{k}[0]"), &format!("lanes{k}[lane]"))?;
        self.line(format!("if t % {BLOCK}u < {LANES}u {{ {lane} = {first}; }} else {{ {lane} = {more}; }}"));
        self.line(format!("if t % {BLOCK}u == {BLOCK}u - 1u || t + 1u == end {{"));
        self.line(format!(
            "var count = min(t % {BLOCK}u + 1u, {LANES}u);\n\
             if t % {BLOCK}u < {FEW}u {{\n\
             for (var lane = 1u; lane < count; lane = lane + 1u) {{ lanes{k}[0] = {in_order}; }}\n\
             count = 1u;\n}}\n\
             for (var half = {}u; half > 0u; half = half / 2u) {{\n\
             for (var lane = 0u; lane < half && lane + half < count; lane = lane + 1u) {{ lanes{k}[lane] = {halves}; }}\n\
             count = min(count, half);\n}}\nvar value = lanes{k}[0];",
            LANES / 2
        ));
        self.count_up(k, accumulator)?;
        self.line("}");
        Ok(())
    }

    /// Adds the lanes of each block, which are in `lanek`, and takes the blocks one after the other. Lanes that are near to
    /// each other, which are in one subgroup, take values from each other; those that are far do so through the
    /// workgroup's memory.
    fn blocks(&mut self, trees: &[usize]) -> Result<()> {
        let near = self.near(trees);
        self.line(format!("var count = select(min(left, {LANES}u), 1u, in_order);"));
        if near < LANES {
            self.far_lanes(trees, near)?;
        }
        if near > 1 {
            self.near_lanes(trees, near)?;
        }
        self.line("workgroupBarrier();\nif local.x == 0u {");
        let blocks = self.lanes as usize / LANES;
        self.line(format!("for (var b = 0u; b < {blocks}u && round + b < end; b = b + 1u) {{"));
        for &k in trees {
            self.line(format!("{{ var value = {}[b * {LANES}u];", shared_of(self.form, k)));
            self.count_up(k, &self.form.kernel.accumulators[k])?;
            self.line("}");
        }
        self.line("}\n}\nworkgroupBarrier();");
        Ok(())
    }

    /// Distances between lanes below which these are near: 1 for none.
    fn near(&self, trees: &[usize]) -> usize {
        let accumulators = &self.form.kernel.accumulators;
        let words = trees.iter().all(|&k| accumulators[k].ty == ScalarType::F32);
        if words { (self.form.subgroup as usize).clamp(1, LANES) } else { 1 }
    }

    /// Adds lanes by halves, down to this distance.
    fn far_lanes(&mut self, trees: &[usize], near: usize) -> Result<()> {
        for &k in trees {
            self.line(format!("{}[local.x] = lane{k};", shared_of(self.form, k)));
        }
        self.line(format!(
            "for (var half = {}u; half >= {near}u; half = half / 2u) {{\nworkgroupBarrier();\n\
             if lane < half && lane + half < count {{",
            LANES / 2
        ));
        for &k in trees {
            let accumulator = &self.form.kernel.accumulators[k];
            let shared = shared_of(self.form, k);
            let own = format!("{shared}[local.x]");
            let halves = pair(accumulator, &own, &format!("{shared}[local.x + half]"))?;
            self.line(format!("{own} = {halves};"));
        }
        self.line("}\ncount = min(count, half);\n}");
        if near > 1 {
            self.line("workgroupBarrier();");
            for &k in trees {
                self.line(format!("lane{k} = {}[local.x];", shared_of(self.form, k)));
            }
        }
        Ok(())
    }

    /// Adds lanes by halves, from below this distance on.
    fn near_lanes(&mut self, trees: &[usize], near: usize) -> Result<()> {
        for half in (0..near.ilog2()).rev().map(|log| 1 << log) {
            for &k in trees {
                self.line(format!("let other{k}_{half} = subgroupShuffleDown(lane{k}, {half}u);"));
            }
            self.line(format!("if lane < {half}u && lane + {half}u < count {{"));
            for &k in trees {
                let accumulator = &self.form.kernel.accumulators[k];
                let halves = pair(accumulator, &format!("lane{k}"), &format!("other{k}_{half}"))?;
                self.line(format!("lane{k} = {halves};"));
            }
            self.line(format!("}}\ncount = min(count, {half}u);"));
        }
        for &k in trees {
            self.line(format!("{}[local.x] = lane{k};", shared_of(self.form, k)));
        }
        Ok(())
    }

    /// Of accumulators that are no trees, the best of all invocations.
    fn best_of_all(&mut self) -> Result<()> {
        let others: Vec<usize> = (0..self.form.kernel.accumulators.len())
            .filter(|&k| !self.form.kernel.accumulators[k].is_tree())
            .collect();
        for &k in &others {
            let shared = shared_of(self.form, k);
            self.line(format!("{shared}[local.x] = best{k};\nplaces{k}[local.x] = place{k};"));
        }
        self.line(format!(
            "given[local.x] = select(0u, 1u, any);\n\
             for (var half = {}u; half > 0u; half = half / 2u) {{\nworkgroupBarrier();\n\
             if local.x < half && given[local.x + half] == 1u {{",
            self.lanes / 2
        ));
        for &k in &others {
            let accumulator = &self.form.kernel.accumulators[k];
            let shared = shared_of(self.form, k);
            let (value, place) = (format!("{shared}[local.x + half]"), format!("places{k}[local.x + half]"));
            self.better(k, accumulator, "!any", &value, &place)?;
            let shared = shared_of(self.form, k);
            self.line(format!("{shared}[local.x] = best{k};\nplaces{k}[local.x] = place{k};"));
        }
        self.line("any = true;\ngiven[local.x] = 1u;\n}\n}");
        Ok(())
    }

    /// Takes a term into `bestk` and, where its place matters, `placek`.
    fn better(
        &mut self,
        k: usize,
        accumulator: &Accumulator,
        first: &str,
        term: &str,
        place: &str,
    ) -> Result<()> {
        if !accumulator.kind.is_arg() {
            let both = pair(accumulator, &format!("best{k}"), term)?;
            self.line(format!("if {first} {{ best{k} = {term}; }} else {{ best{k} = {both}; }}"));
            return Ok(());
        }
        let best = format!("best{k}");
        let less = |a: &str, b: &str| match accumulator.ty {
            ScalarType::Bool => format!("(!{a} & {b})"),
            _ => format!("({a} < {b})"),
        };
        let better = match accumulator.kind {
            AccumulatorKind::ArgMax => less(&best, term),
            _ => less(term, &best),
        };
        // NaN is better than numbers; of equals, and of several NaN, the first.
        let (known, nan, both) = match accumulator.ty.is_float() {
            true => {
                let nan = |value: &str| format!("nan_{}({value})", register(accumulator.ty));
                (format!("!{}", nan(&best)), nan(term), format!("({} && {})", nan(&best), nan(term)))
            }
            false => ("true".to_string(), "false".to_string(), "false".to_string()),
        };
        self.line(format!(
            "if {first} || ({known} && ({nan} || {better})) || (({both} || {best} == {term}) && {place} < place{k}) \
             {{ {best} = {term}; place{k} = {place}; }}"
        ));
        Ok(())
    }

    /// Takes `value` as a binary counter takes a one.
    fn count_up(&mut self, k: usize, accumulator: &Accumulator) -> Result<()> {
        let carried = pair(accumulator, &format!("counter{k}[level]"), "value")?;
        self.line(format!(
            "var level = 0u;\nwhile ((filled{k} >> level) & 1u) == 1u {{\n\
             value = {carried}; filled{k} = filled{k} & ~(1u << level); level = level + 1u;\n}}\n\
             counter{k}[level] = value; filled{k} = filled{k} | (1u << level);"
        ));
        Ok(())
    }

    /// Defines `ak`.
    pub(super) fn results(&mut self) -> Result<()> {
        for (k, accumulator) in self.form.kernel.accumulators.iter().enumerate() {
            if accumulator.kind.is_arg() {
                self.line(format!("let a{k} = i64(place{k});"));
            } else if accumulator.is_tree() {
                let identity = identity(accumulator);
                let carried = pair(accumulator, &format!("counter{k}[level]"), &format!("a{k}"))?;
                self.line(format!(
                    "var a{k} = {identity};\nvar begun{k} = false;\n\
                     for (var level = 0u; level < 32u; level = level + 1u) {{\n\
                     if ((filled{k} >> level) & 1u) == 1u {{\n\
                     if begun{k} {{ a{k} = {carried}; }} else {{ a{k} = counter{k}[level]; begun{k} = true; }}\n}}\n}}"
                ));
            } else {
                self.line(format!("let a{k} = best{k};"));
            }
        }
        Ok(())
    }
}

fn pair(accumulator: &Accumulator, a: &str, b: &str) -> Result<String> {
    let op = match accumulator.kind {
        AccumulatorKind::Sum => ScalarOp::Add,
        AccumulatorKind::Prod => ScalarOp::Mul,
        AccumulatorKind::Max => ScalarOp::Max,
        AccumulatorKind::Min => ScalarOp::Min,
        AccumulatorKind::And => ScalarOp::And,
        AccumulatorKind::Or => ScalarOp::Or,
        AccumulatorKind::Xor => ScalarOp::Xor,
        AccumulatorKind::ArgMax | AccumulatorKind::ArgMin => {
            return Err(internal_error!("{:?} does not combine values", accumulator.kind));
        }
    };
    let ty = accumulator.ty;
    let instruction = Instruction { op, ty, args: [Reg(0), Reg(1)].into_iter().collect() };
    ops::expression(&instruction, &[ty, ty], &[a.to_string(), b.to_string()])
}

fn identity(accumulator: &Accumulator) -> String {
    let one = if accumulator.kind == AccumulatorKind::Prod { 1.0 } else { 0.0 };
    ops::constant(accumulator.ty, Scalar::from_f64(accumulator.ty.dtype(), one).bits() as u64)
}
