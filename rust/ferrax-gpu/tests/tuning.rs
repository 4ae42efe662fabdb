//! From where on a way to compute is taken changes no bit of what is computed.

#[path = "../../ferrax-cpu/tests/common/mod.rs"]
mod common;
mod gpu;

use common::{arguments, attention, compare};
use ferrax_compile::Setting;
use ferrax_compile::device::{Attached, DeviceId};
use ferrax_gpu::Gpu;
use ferrax_ir::{Program, Tensor, interpret};
use gpu::{choice, run};

/// What a program gives with the thresholds of a setting, and how many kernels ran.
fn with(setting: Setting, program: &Program, inputs: &[Tensor]) -> (Vec<Tensor>, usize) {
    let device = Attached::new(DeviceId(1), Gpu::open_as(&choice(), &[], setting).unwrap());
    device.backend().begin_profile().unwrap();
    let got = run(&device, program, inputs).unwrap_or_else(|error| panic!("{error}\n{program}"));
    (got, device.backend().end_profile().unwrap().len())
}

const PROGRAMS: [(&str, &str); 5] = [
    (
        "sums of rows, columns and all",
        "{ lambda ; a:f32[70,700]. let b:f32[70] = reduce_sum[axes=(1,)] a c:f32[700] = reduce_sum[axes=(0,)] a
          d:f32[] = reduce_sum[axes=(0, 1)] a in (b, c, d) }",
    ),
    (
        "rows that are come back to",
        "{ lambda ; a:f32[30,40]. let m:f32[30] = reduce_max[axes=(1,)] a
          n:f32[30,40] = broadcast_in_dim[shape=(30, 40) broadcast_dimensions=(0,)] m d:f32[30,40] = sub a n
          e:f32[30,40] = exp d s:f32[30] = reduce_sum[axes=(1,)] e
          t:f32[30,40] = broadcast_in_dim[shape=(30, 40) broadcast_dimensions=(0,)] s r:f32[30,40] = mul e t
        in (r,) }",
    ),
    (
        "elements narrower than words",
        "{ lambda ; a:i8[9,7] b:i8[9,7]. let c:i8[9,7] = add a b d:i8[9,7] = mul c a in (d, c) }",
    ),
    (
        "a product between kernels",
        "{ lambda ; a:f32[24,25] b:f32[25,26]. let c:f32[24,25] = neg a
          d:f32[24,26] = dot_general[dimension_numbers=(([1], [0]), ([], [])) precision=None
            preferred_element_type=None] c b e:f32[24,26] = abs d in (e,) }",
    ),
    (
        "loops",
        "{ lambda ; c:f32[3] x:f32[9,3]. let d:f32[3] y:f32[9,3] = scan[jaxpr={ lambda ; c:f32[3] x:f32[3]. let
            d:f32[3] = add c x y:f32[3] = mul d x in (d, y) } length=9 num_carry=1 num_consts=0 reverse=False
            unroll=1] c x
          e:f32[3] = while[cond_jaxpr={ lambda ; e:f32[3]. let s:f32[] = reduce_max[axes=(0,)] e
            p:bool[] = lt s 1e3:f32[] in (p,) } body_jaxpr={ lambda ; e:f32[3]. let f:f32[3] = mul e 2.0:f32[]
            g:f32[3] = add f 1.0:f32[] in (g,) } cond_nconsts=0 body_nconsts=0] d in (e, y) }",
    ),
];

#[test]
fn no_bit_depends_on_thresholds() {
    let parsed =
        |(what, text): (&str, &str)| Program::parse(text).unwrap_or_else(|error| panic!("{what}: {error}"));
    for program in PROGRAMS.map(parsed).into_iter().chain([attention(2, 33, 8)]) {
        let inputs = arguments(&program, 3);
        let (wanted, count) = with(Setting::Default, &program, &inputs);
        for (wanted, got) in interpret::run(&program, &inputs).unwrap().iter().zip(&wanted) {
            compare(got, wanted, 1000, "thresholds as they are");
        }
        let [(tiny, _), (huge, more)] =
            [Setting::Tiny, Setting::Huge].map(|setting| with(setting, &program, &inputs));
        assert!(tiny == wanted && huge == wanted, "{program}");
        assert!(more >= count, "{more} launches where nothing is together, {count} else: {program}");
    }
}
