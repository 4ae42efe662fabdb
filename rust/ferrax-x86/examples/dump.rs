use ferrax_compile::chain::Chain;
use ferrax_ir::math::MathFn;
use ferrax_ir::scalar::{ScalarOp, ScalarType};
use ferrax_x86::{Isa, emit_chain};
fn main() {
    for (f, name) in [(MathFn::Tanh, "tanh"), (MathFn::Exp, "exp"), (MathFn::Log, "log")] {
        let mut c = Chain::default();
        let x = c.input(ScalarType::F32, false);
        let y = c.push(ScalarOp::Math(f), ScalarType::F32, &[x]).unwrap();
        c.outputs.push(y);
        let t = std::time::Instant::now();
        let mut bytes = vec![]; let mut lanes = 0;
        for _ in 0..100 { let k = emit_chain(&c, Isa::Avx2).unwrap(); bytes = k.bytes; lanes = k.lanes; }
        println!("{name} lanes {lanes} {} instr {} bytes {:?} each", c.body.instructions().len(), bytes.len(), t.elapsed() / 100);
        std::fs::write(format!("/tmp/p/{name}.bin"), bytes).unwrap();
    }
}
