//! The encoder against a decoder of others: each form over all registers and kinds of memory operands.

use ferrax_x86::encode::{
    Alu, Assembler, Condition, Gpr, Length, Map, Masked, Mem, Opcode, Prefix, Rm, Width, Xmm,
};
use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter};

const WIDE: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15",
];

fn r64(reg: Gpr) -> String {
    WIDE[reg.0 as usize].to_string()
}

fn r32(reg: Gpr) -> String {
    let name = WIDE[reg.0 as usize];
    if reg.0 >= 8 { format!("{name}d") } else { format!("e{}", &name[1..]) }
}

fn r8(reg: Gpr) -> String {
    match reg.0 {
        0..4 => format!("{}l", &WIDE[reg.0 as usize][1..2]),
        4..8 => format!("{}l", &WIDE[reg.0 as usize][1..]),
        _ => format!("{}b", WIDE[reg.0 as usize]),
    }
}

fn named(width: Width, reg: Gpr) -> String {
    if width == Width::W64 { r64(reg) } else { r32(reg) }
}

fn xmm(reg: Xmm) -> String {
    format!("xmm{}", reg.0)
}

fn decoded(bytes: &[u8]) -> String {
    let mut decoder = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE);
    let mut formatter = IntelFormatter::new();
    let options = formatter.options_mut();
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_space_after_operand_separator(true);
    let mut lines = Vec::new();
    while decoder.can_decode() {
        let mut text = String::new();
        formatter.format(&decoder.decode(), &mut text);
        lines.push(text);
    }
    lines.join("\n")
}

fn one(what: &str, write: impl FnOnce(&mut Assembler)) {
    let mut assembler = Assembler::default();
    write(&mut assembler);
    assert_eq!(decoded(&assembler.finish().unwrap()), what);
}

fn gprs() -> impl Iterator<Item = Gpr> {
    (0..16).map(Gpr)
}

fn xmms() -> impl Iterator<Item = Xmm> {
    (0..16).map(Xmm)
}

/// Memory operands, as they are written.
fn memories() -> Vec<(Mem, String)> {
    let number = |displacement: i32| match displacement {
        0 => String::new(),
        1.. => format!("+{}", hex(displacement)),
        _ => format!("-{}", hex(-displacement)),
    };
    let mut all = Vec::new();
    for displacement in [0, 8, -8, 127, 128, -128, -129, 0x1234_5678] {
        for base in gprs() {
            all.push((Mem::Base(base, displacement), format!("[{}{}]", r64(base), number(displacement))));
            for (index, scale) in gprs().filter(|index| index.0 != 4).zip([1u8, 2, 4, 8].into_iter().cycle())
            {
                let factor = if scale == 1 { String::new() } else { format!("*{scale}") };
                let text = format!("[{}+{}{factor}{}]", r64(base), r64(index), number(displacement));
                all.push((Mem::Indexed(base, index, scale, displacement), text));
            }
        }
    }
    all
}

fn hex(number: i32) -> String {
    if number < 10 { format!("{number}") } else { format!("0x{number:X}") }
}

#[test]
fn integer_forms() {
    for (width, size) in [(Width::W32, "dword"), (Width::W64, "qword")] {
        for a in gprs() {
            for b in gprs() {
                let (to, from) = (named(width, a), named(width, b));
                one(&format!("mov {to}, {from}"), |out| out.mov(width, a, b));
                for (op, name) in [
                    (Alu::Add, "add"),
                    (Alu::Or, "or"),
                    (Alu::And, "and"),
                    (Alu::Sub, "sub"),
                    (Alu::Xor, "xor"),
                    (Alu::Cmp, "cmp"),
                ] {
                    one(&format!("{name} {to}, {from}"), |out| out.alu(op, width, a, b));
                }
                one(&format!("imul {to}, {from}"), |out| out.imul(width, a, b));
                one(&format!("test {to}, {from}"), |out| out.test(width, a, b));
                one(&format!("popcnt {to}, {from}"), |out| out.popcnt(width, a, b));
                one(&format!("lzcnt {to}, {from}"), |out| out.lzcnt(width, a, b));
                one(&format!("cmovl {to}, {from}"), |out| out.cmov(Condition::Less, width, a, b));
                for c in gprs() {
                    let by = named(width, c);
                    one(&format!("shlx {to}, {from}, {by}"), |out| out.shift(Prefix::P66, width, a, b, c));
                    one(&format!("sarx {to}, {from}, {by}"), |out| out.shift(Prefix::F3, width, a, b, c));
                    one(&format!("shrx {to}, {from}, {by}"), |out| out.shift(Prefix::F2, width, a, b, c));
                }
            }
            let to = named(width, a);
            one(&format!("neg {to}"), |out| out.neg(width, a));
            one(&format!("not {to}"), |out| out.not(width, a));
            one(&format!("div {to}"), |out| out.divide(width, false, a));
            one(&format!("idiv {to}"), |out| out.divide(width, true, a));
            for value in [1, 100, 127, 128, 0x1234_5678] {
                one(&format!("add {to}, {}", hex(value)), |out| out.alu_int(Alu::Add, width, a, value));
                one(&format!("cmp {to}, {}", hex(value)), |out| out.alu_int(Alu::Cmp, width, a, value));
            }
            for (mem, text) in memories() {
                one(&format!("mov {to}, {text}"), |out| out.mov(width, a, mem));
                one(&format!("add {to}, {text}"), |out| out.alu(Alu::Add, width, a, mem));
                one(&format!("mov {text}, {to}"), |out| {
                    out.store(if size == "dword" { 4 } else { 8 }, mem, a)
                });
            }
        }
    }
}

#[test]
fn bytes_and_words() {
    for a in gprs() {
        for b in gprs() {
            one(&format!("movzx {}, {}", r32(a), r8(b)), |out| out.extend(1, false, a, b));
            one(&format!("movsx {}, {}", r32(a), r8(b)), |out| out.extend(1, true, a, b));
            one(&format!("movsxd {}, {}", r64(a), r32(b)), |out| out.movsxd(a, b));
        }
        one(&format!("setae {}", r8(a)), |out| out.set(Condition::AboveEqual, a));
        one(&format!("push {}", r64(a)), |out| out.push(a));
        one(&format!("pop {}", r64(a)), |out| out.pop(a));
        one(&format!("call {}", r64(a)), |out| out.call(a));
        one(&format!("mov {}, 0x12345678", r32(a)), |out| out.mov_int(a, 0x1234_5678));
        one(&format!("mov {}, 0x123456789ABCDEF0", r64(a)), |out| out.mov_int(a, 0x1234_5678_9abc_def0));
        for (mem, text) in memories() {
            one(&format!("mov {text}, {}", r8(a)), |out| out.store(1, mem, a));
            one(&format!("movzx {}, byte ptr {text}", r32(a)), |out| out.extend(1, false, a, mem));
            one(&format!("movsx {}, word ptr {text}", r32(a)), |out| out.extend(2, true, a, mem));
            one(&format!("lea {}, {text}", r64(a)), |out| out.lea(a, mem));
        }
    }
    one("ret", Assembler::ret);
    one("cqo", |out| out.sign_to_rdx(Width::W64));
    one("cdq", |out| out.sign_to_rdx(Width::W32));
}

#[test]
fn float_forms() {
    let single = Opcode::new(Prefix::F3, Map::M0F, 0x58, false);
    let double = Opcode::new(Prefix::F2, Map::M0F, 0x59, false);
    let fused = Opcode::new(Prefix::P66, Map::M0F38, 0xa9, true);
    let round = Opcode::new(Prefix::P66, Map::M0F3A, 0x0b, false);
    let blend = Opcode::new(Prefix::P66, Map::M0F3A, 0x4a, false);
    for a in xmms() {
        for b in xmms() {
            let (x, y) = (xmm(a), xmm(b));
            one(&format!("vmovaps {x}, {y}"), |out| {
                out.two(Opcode::new(Prefix::None, Map::M0F, 0x28, false), a, b)
            });
            for c in xmms() {
                let z = xmm(c);
                one(&format!("vaddss {x}, {y}, {z}"), |out| out.three(single, a, b, c));
                one(&format!("vmulsd {x}, {y}, {z}"), |out| out.three(double, a, b, c));
                one(&format!("vfmadd213sd {x}, {y}, {z}"), |out| out.three(fused, a, b, c));
                one(&format!("vroundsd {x}, {y}, {z}, 9"), |out| out.three_byte(round, a, b, c, 9));
                one(&format!("vblendvps {x}, {y}, {z}, xmm5"), |out| out.blend(blend, a, b, c, Xmm(5)));
                one(&format!("vblendvps {x}, {y}, {z}, xmm12"), |out| out.blend(blend, a, b, c, Xmm(12)));
            }
        }
        for (mem, text) in memories() {
            let x = xmm(a);
            one(&format!("vaddss {x}, xmm9, {text}"), |out| out.three(single, a, Xmm(9), mem));
            one(&format!("vmulsd {x}, xmm2, {text}"), |out| out.three(double, a, Xmm(2), mem));
            let load = Opcode::new(Prefix::F2, Map::M0F, 0x10, false);
            one(&format!("vmovsd {x}, {text}"), |out| out.two(load, a, mem));
        }
        for b in gprs() {
            let (x, from) = (xmm(a), r64(b));
            one(&format!("vmovq {x}, {from}"), |out| out.bits_to_float(Width::W64, a, b));
            one(&format!("vmovd {}, {x}", r32(b)), |out| out.bits_of_float(Width::W32, b, a));
            let to_float = Opcode::new(Prefix::F2, Map::M0F, 0x2a, true);
            one(&format!("vcvtsi2sd {x}, xmm1, {from}"), |out| out.from_integer(to_float, a, Xmm(1), b));
            let to_integer = Opcode::new(Prefix::F2, Map::M0F, 0x2c, true);
            one(&format!("vcvttsd2si {from}, {x}"), |out| out.to_integer(to_integer, b, Rm::Reg(a)));
        }
    }
}

/// Whole registers: each over all of them, and over memory, in both prefixes.
#[test]
fn wide_forms() {
    let forms = [
        (Length::Vex256, "ymm", 16),
        (Length::Vex128, "xmm", 16),
        (Length::Evex512, "zmm", 32),
        (Length::Evex256, "ymm", 32),
        (Length::Evex128, "xmm", 32),
    ];
    let opcode = |prefix, map, code, wide| Opcode::new(prefix, map, code, wide);
    let (add, fused) =
        (opcode(Prefix::None, Map::M0F, 0x58, false), opcode(Prefix::P66, Map::M0F38, 0xb8, true));
    let (shuffle, load) =
        (opcode(Prefix::None, Map::M0F, 0xc6, false), opcode(Prefix::None, Map::M0F, 0x10, false));
    for (length, name, count) in forms {
        let evex = matches!(length, Length::Evex128 | Length::Evex256 | Length::Evex512);
        for a in 0..count {
            for b in 0..count {
                for c in (0..count).step_by(if evex { 3 } else { 1 }) {
                    // A VEX instruction would be shorter, and so is what the decoder may show.
                    let text = format!("{name}{a}, {name}{b}, {name}{c}");
                    let all = Masked::ALL;
                    one(&format!("vaddps {text}"), |out| {
                        out.wide(length, add, all, (a, b, Rm::Reg(c)), None)
                    });
                    one(&format!("vfmadd231pd {text}"), |out| {
                        out.wide(length, fused, all, (a, b, Rm::Reg(c)), None)
                    });
                    one(&format!("vshufps {text}, 0x88"), |out| {
                        out.wide(length, shuffle, all, (a, b, Rm::Reg(c)), Some(0x88))
                    });
                    if evex {
                        let mask = 1 + a % 7;
                        let masked = Masked { mask, zeroed: true };
                        one(&format!("vaddps {name}{a}{{k{mask}}}{{z}}, {name}{b}, {name}{c}"), |out| {
                            out.wide(length, add, masked, (a, b, Rm::Reg(c)), None)
                        });
                    }
                }
            }
            for (mem, text) in memories() {
                one(&format!("vmovups {name}{a}, {text}"), |out| {
                    out.wide(length, load, Masked::ALL, (a, 0, Rm::Mem(mem)), None)
                });
                one(&format!("vaddps {name}{a}, {name}9, {text}"), |out| {
                    out.wide(length, add, Masked::ALL, (a, 9, Rm::Mem(mem)), None)
                });
            }
        }
    }
    let compare = opcode(Prefix::None, Map::M0F, 0xc2, false);
    let blend = opcode(Prefix::P66, Map::M0F38, 0x65, false);
    for mask in 1..8 {
        one(&format!("vcmpltps k{mask}, zmm17, zmm30"), |out| {
            out.wide(Length::Evex512, compare, Masked::ALL, (mask, 17, Rm::Reg(30)), Some(1))
        });
        let masked = Masked { mask, zeroed: false };
        one(&format!("vblendmps zmm20{{k{mask}}}, zmm4, zmm31"), |out| {
            out.wide(Length::Evex512, blend, masked, (20, 4, Rm::Reg(31)), None)
        });
        let and = opcode(Prefix::None, Map::M0F, 0x41, false);
        one(&format!("kandw k{mask}, k2, k5"), |out| {
            out.wide(Length::Vex256, and, Masked::ALL, (mask, 2, Rm::Reg(5)), None)
        });
    }
    one("vbroadcastss ymm3, [rcx]", |out| out.broadcast(Length::Vex256, 4, Xmm(3), Mem::Base(Gpr(1), 0)));
    one("vbroadcastsd zmm3, [rcx]", |out| out.broadcast(Length::Evex512, 8, Xmm(3), Mem::Base(Gpr(1), 0)));
    one("vzeroupper", Assembler::vzeroupper);
    one("and rsp, 0xFFFFFFFFFFFFFFC0", |out| out.align(Gpr(4), 64));
}

#[test]
fn numbers_and_vectors_that_come_later() {
    let mut assembler = Assembler::default();
    let at = assembler.subtract_later(Gpr(4));
    let load = Opcode::new(Prefix::None, Map::M0F, 0x10, false);
    let pattern = Mem::Vector(0x0102_0304_0506_0708);
    assembler.wide(Length::Vex256, load, Masked::ALL, (1, 0, Rm::Mem(pattern)), None);
    assembler.set_later(at, 0x1234);
    let length = assembler.len();
    let bytes = assembler.finish().unwrap();
    assert!(decoded(&bytes[..length]).starts_with("sub rsp, 0x1234"));
    let vector = length.next_multiple_of(64);
    assert!(bytes[vector..vector + 64].chunks(8).all(|part| part == 0x0102_0304_0506_0708u64.to_le_bytes()));
    let loads = Decoder::with_ip(64, &bytes[..length], 0, DecoderOptions::NONE).iter().nth(1).unwrap();
    assert_eq!(loads.memory_displacement64(), vector as u64);
}

#[test]
fn jumps_and_constants_are_resolved() {
    let mut assembler = Assembler::default();
    let (begin, end) = (assembler.label(), assembler.label());
    assembler.bind(begin);
    let add = Opcode::new(Prefix::F2, Map::M0F, 0x58, false);
    assembler.three(add, Xmm(0), Xmm(0), Mem::Constant(0x3ff0_0000_0000_0000));
    let round = Opcode::new(Prefix::P66, Map::M0F3A, 0x0b, false);
    assembler.three_byte(round, Xmm(0), Xmm(0), Mem::Constant(0x3ff0_0000_0000_0000), 8);
    assembler.jump_if(Condition::Equal, end);
    assembler.jump(begin);
    assembler.bind(end);
    assembler.ret();
    let length = assembler.len();
    let bytes = assembler.finish().unwrap();
    let constant = length.next_multiple_of(8);
    assert_eq!(bytes[constant..constant + 8], 0x3ff0_0000_0000_0000u64.to_le_bytes());
    let mut decoder = Decoder::with_ip(64, &bytes[..length], 0, DecoderOptions::NONE);
    let instructions: Vec<_> = decoder.iter().collect();
    assert_eq!(instructions[0].memory_displacement64(), constant as u64);
    assert_eq!(instructions[1].memory_displacement64(), constant as u64);
    assert_eq!(instructions[2].near_branch_target(), length as u64 - 1);
    assert_eq!(instructions[3].near_branch_target(), 0);
}

#[test]
fn a_label_that_is_nowhere_is_an_error() {
    let mut assembler = Assembler::default();
    let label = assembler.label();
    assembler.jump(label);
    assert!(assembler.finish().is_err());
}
