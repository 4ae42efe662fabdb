//! Nanoseconds for each step of small loops: `cargo run --release -p ferrax-cpu --example loops`.

use std::time::Instant;

use ferrax_cpu::compile;
use ferrax_ir::{Program, Result, Tensor};

const COUNTER: &str = "{ lambda ; n:i32[]. let x:i32[] = while[
    body_jaxpr={ lambda ; a:i32[]. let b:i32[] = add a 1:i32[] in (b,) } body_nconsts=0
    cond_jaxpr={ lambda ; n:i32[] a:i32[]. let c:bool[] = lt a n in (c,) } cond_nconsts=1 ] n 0:i32[] in (x,) }";

const LORENZ: &str = "{ lambda ; x:f32[] y:f32[] z:f32[]. let
    a:f32[] b:f32[] c:f32[] xs:f32[100000] = scan[jaxpr={ lambda ; x:f32[] y:f32[] z:f32[]. let
        a:f32[] = sub y x      b:f32[] = mul a 0.1:f32[]      c:f32[] = add x b
        d:f32[] = sub 28.0:f32[] z  e:f32[] = mul x d   f:f32[] = sub e y   g:f32[] = mul f 0.01:f32[]
        h:f32[] = add y g
        i:f32[] = mul x y   j:f32[] = mul z 2.6666667:f32[]  k:f32[] = sub i j  l:f32[] = mul k 0.01:f32[]
        m:f32[] = add z l
      in (c, h, m, c) } length=100000 num_carry=3 num_consts=0 reverse=False unroll=1] x y z
    in (a, b, c, xs) }";

const LORENZ3: &str = "{ lambda ; s:f32[3]. let
    t:f32[3] ts:f32[100000,3] = scan[jaxpr={ lambda ; s:f32[3]. let
        xa:f32[1] = slice[start_indices=(0,) limit_indices=(1,) strides=None] s
        ya:f32[1] = slice[start_indices=(1,) limit_indices=(2,) strides=None] s
        za:f32[1] = slice[start_indices=(2,) limit_indices=(3,) strides=None] s
        x:f32[] = squeeze[dimensions=(0,)] xa
        y:f32[] = squeeze[dimensions=(0,)] ya
        z:f32[] = squeeze[dimensions=(0,)] za
        a:f32[] = sub y x      b:f32[] = mul a 10.0:f32[]
        d:f32[] = sub 28.0:f32[] z  e:f32[] = mul x d   f:f32[] = sub e y
        i:f32[] = mul x y   j:f32[] = mul z 2.6666667:f32[]  k:f32[] = sub i j
        bb:f32[1] = reshape[new_sizes=(1,) dimensions=None] b
        fb:f32[1] = reshape[new_sizes=(1,) dimensions=None] f
        kb:f32[1] = reshape[new_sizes=(1,) dimensions=None] k
        g:f32[3] = concatenate[dimension=0] bb fb kb
        h:f32[3] = mul g 0.01:f32[]
        t:f32[3] = add s h
      in (t, t) } length=100000 num_carry=1 num_consts=0 reverse=False unroll=1] s
    in (t, ts) }";

const RNN: &str = "{ lambda ; w:f32[64,64] u:f32[64,64] b:f32[64] h:f32[64] xs:f32[1000,64]. let
    i:f32[64] hs:f32[1000,64] = scan[jaxpr={ lambda ; w:f32[64,64] u:f32[64,64] b:f32[64] h:f32[64] x:f32[64]. let
        a:f32[64] = dot_general[dimension_numbers=(([0], [0]), ([], [])) precision=None preferred_element_type=float32] h w
        c:f32[64] = dot_general[dimension_numbers=(([0], [0]), ([], [])) precision=None preferred_element_type=float32] x u
        d:f32[64] = add a c
        e:f32[64] = add d b
        f:f32[64] = tanh e
      in (f, f) } length=1000 num_carry=1 num_consts=3 reverse=False unroll=1] w u b h xs
    in (i, hs) }";

fn nested(depth: usize) -> String {
    let mut body =
        "{ lambda ; c:f32[8] x:f32[8]. let d:f32[8] = sin c e:f32[8] = add d x in (e, e) }".to_owned();
    let mut sizes = "8".to_owned();
    for _ in 0..depth {
        let inner = sizes.clone();
        sizes = format!("2,{sizes}");
        body = format!(
            "{{ lambda ; c:f32[8] x:f32[{sizes}]. let
               s:f32[] = reduce_sum[axes=(0,)] c
               t:bool[] = gt s 0.0:f32[]
               i:i32[] = convert_element_type[new_dtype=int32 weak_type=False] t
               d:f32[8] ys:f32[{sizes}] = cond[branches=(
                 {{ lambda ; c:f32[8] x:f32[{sizes}]. let
                    d:f32[8] ys:f32[{sizes}] = scan[jaxpr={body} length=2 num_carry=1 num_consts=0 reverse=False unroll=1] c x
                   in (d, ys) }},
                 {{ lambda ; c:f32[8] x:f32[{sizes}]. let y:f32[{sizes}] = neg x in (c, y) }})] i c x
             in (d, ys) }}"
        );
        let _ = inner;
    }
    body
}

fn time(name: &str, text: &str, inputs: &[Tensor], steps: usize) -> Result<()> {
    let program = Program::parse(text)?;
    let executable = compile(&program)?;
    let mut best = f64::INFINITY;
    for _ in 0..20 {
        let start = Instant::now();
        executable.run(inputs)?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!("{name:24} {:8.1} ns a step", best * 1e9 / steps as f64);
    Ok(())
}

fn floats(sizes: &[usize]) -> Result<Tensor> {
    let count: usize = sizes.iter().product();
    let values: Vec<f32> = (0..count).map(|index| (index * 7919 % 1000) as f32 / 8000.0 - 0.05).collect();
    Tensor::from_elements(sizes, &values)
}

fn main() -> Result<()> {
    let scalar = |value: f32| Tensor::from_elements(&[][..], &[value]);
    time("while counter", COUNTER, &[Tensor::from_elements(&[][..], &[1_000_000i32])?], 1_000_000)?;
    time("lorenz, 3 scalars", LORENZ, &[scalar(1.0)?, scalar(1.0)?, scalar(1.0)?], 100_000)?;
    time("lorenz, f32[3]", LORENZ3, &[Tensor::from_elements(&[3][..], &[1.0f32; 3])?], 100_000)?;
    let square = floats(&[64, 64])?;
    let inputs = [square.clone(), square, floats(&[64])?, floats(&[64])?, floats(&[1000, 64])?];
    time("rnn, h = 64", RNN, &inputs, 1000)?;
    let program = Program::parse(&nested(5))?;
    let start = Instant::now();
    compile(&program)?;
    println!("{:24} {:8.2} ms to compile", "five scans in conds", start.elapsed().as_secs_f64() * 1e3);
    Ok(())
}
