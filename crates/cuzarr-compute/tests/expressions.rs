//! Expressions: types, shapes, values, on the CPU and by generated kernels.

#[path = "../../cuzarr/tests/model/mod.rs"]
mod model;

use cuzarr::ErrorKind;
use cuzarr_compute::{Expr, Op, Operand, Weak};
use cuzarr_device::{DType, Device, NdBuffer, Order};
use model::{devices, kernel_devices};

fn buffer<T: Copy, const N: usize>(dtype: DType, shape: &[usize], values: &[T], bytes: fn(T) -> [u8; N]) -> NdBuffer {
    let bytes: Vec<u8> = values.iter().flat_map(|&value| bytes(value)).collect();
    NdBuffer::from_host(Device::Cpu, dtype, shape, Order::C, &bytes).unwrap()
}

fn floats(shape: &[usize], values: &[f32]) -> NdBuffer {
    buffer(DType::FLOAT32, shape, values, f32::to_ne_bytes)
}

fn ints(shape: &[usize], values: &[i32]) -> NdBuffer {
    buffer(DType::INT32, shape, values, i32::to_ne_bytes)
}

fn apply(op: Op, operands: &[Operand]) -> Expr {
    Expr::apply(op, operands).unwrap()
}

/// The bytes of an expression that `build` makes of buffers, on each device; all are the same.
fn everywhere(inputs: &[NdBuffer], build: impl Fn(&[Expr]) -> Expr) -> Vec<u8> {
    let mut results: Vec<Vec<u8>> = Vec::new();
    for device in devices() {
        let moved = inputs.iter().map(|input| Expr::buffer(input.to_device(device).unwrap()).unwrap());
        let out = build(&moved.collect::<Vec<_>>()).evaluate(device).unwrap();
        assert_eq!(out.device(), device);
        results.push(out.to_host_bytes(Order::C).unwrap());
    }
    for other in &results[1..] {
        assert!(results[0] == *other, "devices differ");
    }
    results.swap_remove(0)
}

#[test]
fn a_fused_expression_equals_its_steps() {
    let values: Vec<f32> = (0..5000).map(|at| at as f32 * 0.25 - 300.0).collect();
    let x = floats(&[50, 100], &values);
    let bytes = everywhere(&[x], |x| {
        let root = apply(Op::Sqrt, &[apply(Op::Absolute, &[x[0].clone().into()]).into()]);
        apply(Op::Add, &[apply(Op::Multiply, &[root.clone().into(), root.into()]).into(), 1.5.into()])
    });
    let expected: Vec<u8> = values.iter().flat_map(|x| (x.abs().sqrt() * x.abs().sqrt() + 1.5).to_ne_bytes()).collect();
    assert_eq!(bytes, expected);
}

#[test]
fn operands_broadcast_and_may_have_any_strides() {
    let (x, y) = (ints(&[4, 6], &(0..24).collect::<Vec<_>>()), ints(&[3, 1, 4], &(0..12).collect::<Vec<_>>()));
    for device in devices() {
        let x = x.to_device(device).unwrap();
        // Every second column of the transposed array: shape (3, 4).
        let view = x.transpose(&[1, 0]).unwrap().region(&[0, 0], &[3, 4], &[2, 1]).unwrap();
        let operands = [Expr::buffer(view).unwrap().into(), Expr::buffer(y.to_device(device).unwrap()).unwrap().into()];
        let sum = apply(Op::Subtract, &operands);
        assert_eq!((sum.shape(), sum.dtype()), (&[3, 3, 4][..], DType::INT32));
        let bytes = sum.evaluate(device).unwrap().to_host_bytes(Order::C).unwrap();
        let mut expected = Vec::new();
        for a in 0..3 {
            for row in 0..3 {
                for column in 0..4i32 {
                    expected.extend((column * 6 + row * 2 - (a * 4 + column)).to_ne_bytes());
                }
            }
        }
        assert_eq!(bytes, expected, "{device}");
    }
}

#[test]
fn whole_numbers_follow_numpys_rules() {
    let a = ints(&[8], &[7, -7, 7, -7, i32::MIN, 5, 0, i32::MAX]);
    let b = ints(&[8], &[3, 3, -3, -3, -1, 0, 0, 33]);
    let run = |op: Op| {
        let bytes = everywhere(&[a.clone(), b.clone()], |x| apply(op, &[x[0].clone().into(), x[1].clone().into()]));
        bytes.as_chunks::<4>().0.iter().map(|&word| i32::from_ne_bytes(word)).collect::<Vec<_>>()
    };
    assert_eq!(run(Op::FloorDivide), [2, -3, -3, 2, i32::MIN, 0, 0, 65_075_262]);
    assert_eq!(run(Op::Remainder), [1, 2, -2, -1, 0, 0, 0, 1]);
    assert_eq!(run(Op::Fmod), [1, -1, 1, -1, 0, 0, 0, 1]);
    assert_eq!(run(Op::LeftShift), [56, -56, 0, 0, 0, 5, 0, 0]);
    assert_eq!(run(Op::RightShift), [0, -1, 0, -1, -1, 5, 0, 0]);
    assert_eq!(run(Op::Add)[4], i32::MAX);
}

#[test]
fn a_negative_power_of_whole_numbers_is_refused_on_every_device() {
    for device in devices() {
        let exponents = ints(&[3], &[2, -1, 0]).to_device(device).unwrap();
        let base = ints(&[3], &[2, 2, 2]).to_device(device).unwrap();
        let power = apply(Op::Power, &[Expr::buffer(base).unwrap().into(), Expr::buffer(exponents).unwrap().into()]);
        assert_eq!(power.evaluate(device).unwrap_err().kind(), ErrorKind::InvalidArgument, "{device}");
    }
}

#[test]
fn two_byte_floats_are_rounded_after_every_step() {
    for dtype in [DType::FLOAT16, DType::BFLOAT16] {
        let values: Vec<f32> = (0..3000).map(|at| at as f32 / 7.0).collect();
        let x = floats(&[3000], &values).astype(dtype, Order::C).unwrap();
        let bytes = everywhere(std::slice::from_ref(&x), |x| {
            let third = apply(Op::Divide, &[x[0].clone().into(), 3i64.into()]);
            apply(Op::Multiply, &[third.into(), x[0].clone().into()])
        });
        let round = |values: Vec<f32>| {
            let rounded = floats(&[values.len()], &values).astype(dtype, Order::C).unwrap();
            rounded.astype(DType::FLOAT32, Order::C).unwrap().host_slice::<f32>().unwrap().to_vec()
        };
        let x = x.astype(DType::FLOAT32, Order::C).unwrap().host_slice::<f32>().unwrap().to_vec();
        let third = round(x.iter().map(|x| x / 3.0).collect());
        let expected = floats(&[3000], &third.iter().zip(&x).map(|(a, b)| a * b).collect::<Vec<_>>());
        assert_eq!(bytes, expected.astype(dtype, Order::C).unwrap().to_host_bytes(Order::C).unwrap());
    }
}

#[test]
fn every_operation_runs_on_every_type_it_takes() {
    let mut runs = 0;
    for dtype in DType::NUMBERS {
        let values = ints(&[6], &[0, 1, 3, 2, 5, 4]).astype(dtype, Order::C).unwrap();
        let others = ints(&[6], &[1, 1, 2, 3, 1, 0]).astype(dtype, Order::C).unwrap();
        for &op in Op::ALL {
            let operands: Vec<Operand> = [&values, &others, &others][..op.arity()]
                .iter()
                .map(|buffer| Expr::buffer((*buffer).clone()).unwrap().into())
                .collect();
            match Expr::apply(op, &operands) {
                Err(error) => assert_eq!(error.kind(), ErrorKind::DTypeMismatch, "{op:?} of {dtype}"),
                Ok(expr) => {
                    let out = expr.evaluate(Device::Cpu).unwrap();
                    assert_eq!((out.dtype(), out.shape()), (expr.dtype(), &[6][..]), "{op:?} of {dtype}");
                    runs += 1;
                }
            }
        }
    }
    assert!(runs > 500, "{runs}");
}

/// Kernels that hold many operations each, since every one of them is compiled.
#[test]
fn generated_kernels_compute_what_the_host_computes() {
    let exact = |op: Op| {
        !matches!(
            op,
            Op::Power
                | Op::Arctan2
                | Op::Hypot
                | Op::Cbrt
                | Op::Exp
                | Op::Exp2
                | Op::Expm1
                | Op::Log
                | Op::Log2
                | Op::Log10
                | Op::Log1p
                | Op::Sin
                | Op::Cos
                | Op::Tan
                | Op::Arcsin
                | Op::Arccos
                | Op::Arctan
                | Op::Sinh
                | Op::Cosh
                | Op::Tanh
                | Op::Arcsinh
                | Op::Arccosh
                | Op::Arctanh
        )
    };
    for dtype in
        [DType::BOOL, DType::INT8, DType::INT64, DType::UINT16, DType::FLOAT16, DType::FLOAT32, DType::COMPLEX128]
    {
        let a = ints(&[40], &(-20..20).collect::<Vec<_>>()).astype(dtype, Order::C).unwrap();
        let b = ints(&[40], &(0..40).map(|at| at * 7 % 11 - 5).collect::<Vec<_>>()).astype(dtype, Order::C).unwrap();
        // Every operation as one bit of a sum: that its value equals what the host computed.
        let ops: Vec<Op> = Op::ALL.iter().copied().filter(|&op| exact(op) && op.arity() < 3).collect();
        for device in kernel_devices() {
            let (own_a, own_b) = (a.to_device(device).unwrap(), b.to_device(device).unwrap());
            let mut agree: Option<Expr> = None;
            for &op in &ops {
                let on = |a: &NdBuffer, b: &NdBuffer| {
                    let operands: Vec<Operand> = [a, b][..op.arity()]
                        .iter()
                        .map(|buffer| Expr::buffer((*buffer).clone()).unwrap().into())
                        .collect();
                    Expr::apply(op, &operands)
                };
                let Ok(expected) = on(&a, &b) else { continue };
                let expected = expected.evaluate(Device::Cpu).unwrap();
                let nan = |expr: &Expr| apply(Op::NotEqual, &[expr.clone().into(), expr.clone().into()]);
                let (got, expected) =
                    (on(&own_a, &own_b).unwrap(), Expr::buffer(expected.to_device(device).unwrap()).unwrap());
                let same = apply(Op::Equal, &[got.clone().into(), expected.clone().into()]);
                let both_nan = apply(Op::LogicalAnd, &[nan(&got).into(), nan(&expected).into()]);
                let same = apply(Op::LogicalOr, &[same.into(), both_nan.into()]);
                agree = Some(match agree {
                    None => same,
                    Some(agree) => apply(Op::LogicalAnd, &[agree.into(), same.into()]),
                });
            }
            let bytes = agree.unwrap().evaluate(device).unwrap().to_host_bytes(Order::C).unwrap();
            assert_eq!(bytes, [1; 40], "{dtype} on {device}");
        }
    }
}

#[test]
fn types_are_promoted_as_numpy_promotes_them() {
    let of = |dtype: DType| {
        Operand::Expr(Expr::buffer(NdBuffer::zeroed(Device::Cpu, dtype, &[2], Order::C).unwrap()).unwrap())
    };
    let add = |a: Operand, b: Operand| apply(Op::Add, &[a, b]).dtype();
    assert_eq!(add(of(DType::INT8), of(DType::UINT8)), DType::INT16);
    assert_eq!(add(of(DType::INT64), of(DType::UINT64)), DType::FLOAT64);
    assert_eq!(add(of(DType::INT16), of(DType::FLOAT16)), DType::FLOAT32);
    assert_eq!(add(of(DType::INT32), of(DType::COMPLEX64)), DType::COMPLEX128);
    assert_eq!(add(of(DType::UINT8), 1i64.into()), DType::UINT8);
    assert_eq!(add(of(DType::FLOAT32), 1.5.into()), DType::FLOAT32);
    assert_eq!(add(of(DType::INT32), 1.5.into()), DType::FLOAT64);
    assert_eq!(add(of(DType::FLOAT32), Operand::Weak(Weak::Complex(0.0, 1.0))), DType::COMPLEX64);
    assert_eq!(add(of(DType::BOOL), 1i64.into()), DType::INT64);
    assert_eq!(apply(Op::Sin, &[of(DType::INT8)]).dtype(), DType::FLOAT16);
    assert_eq!(apply(Op::Divide, &[of(DType::INT8), of(DType::INT8)]).dtype(), DType::FLOAT64);
    let too_large = Expr::apply(Op::Add, &[of(DType::UINT8), 300i64.into()]).unwrap_err();
    assert_eq!(too_large.kind(), ErrorKind::OutOfRange);
    let less = apply(Op::Less, &[of(DType::UINT8), 300i64.into()]);
    assert_eq!(less.evaluate(Device::Cpu).unwrap().to_host_bytes(Order::C).unwrap(), [1, 1]);
}

#[test]
fn what_has_no_meaning_is_refused_before_anything_is_computed() {
    let x = Expr::buffer(floats(&[2, 3], &[0.0; 6])).unwrap();
    let y = Expr::buffer(floats(&[4], &[0.0; 4])).unwrap();
    let kind = |op: Op, operands: &[Operand]| Expr::apply(op, operands).unwrap_err().kind();
    assert_eq!(kind(Op::Add, &[x.clone().into(), y.into()]), ErrorKind::ShapeMismatch);
    assert_eq!(kind(Op::BitwiseAnd, &[x.clone().into(), x.clone().into()]), ErrorKind::DTypeMismatch);
    assert_eq!(kind(Op::Sin, &[x.clone().into(), x.into()]), ErrorKind::InvalidArgument);
    let opaque = NdBuffer::zeroed(Device::Cpu, DType::opaque(3), &[2], Order::C).unwrap();
    assert_eq!(Expr::buffer(opaque).unwrap_err().kind(), ErrorKind::DTypeMismatch);
}

/// Elements of every float type: a NaN with a sign and a payload, a signalling one, and numbers.
fn odd_nans() -> [NdBuffer; 6] {
    let halves = |dtype, nans: [u16; 2]| buffer(dtype, &[3], &[nans[0], nans[1], 0], u16::to_ne_bytes);
    let singles = [0xffc0_0001u32, 0x7f80_0001, 0, 0x7fc0_0002, 0xff80_0002, 0xffff_ffff];
    let doubles =
        [0xfff8_0000_0000_0001u64, 0x7ff0_0000_0000_0001, 0, 0x7ff8_0000_0000_0002, u64::MAX, 0xfff8_0000_0000_0000];
    [
        halves(DType::FLOAT16, [0xfe01, 0x7c01]),
        halves(DType::BFLOAT16, [0xffc1, 0x7f81]),
        buffer(DType::FLOAT32, &[3], &singles[..3], u32::to_ne_bytes),
        buffer(DType::FLOAT64, &[3], &doubles[..3], u64::to_ne_bytes),
        buffer(DType::COMPLEX64, &[3], &singles, u32::to_ne_bytes),
        buffer(DType::COMPLEX128, &[3], &doubles, u64::to_ne_bytes),
    ]
}

#[test]
fn computed_nans_are_the_canonical_one() {
    for x in odd_nans() {
        let sum = everywhere(std::slice::from_ref(&x), |x| apply(Op::Add, &[x[0].clone().into(), x[0].clone().into()]));
        let mut canonical = x.to_host_bytes(Order::C).unwrap();
        cuzarr_device::internal::cpu::nan::canonicalize(x.dtype(), &mut canonical);
        assert_eq!(sum, canonical, "{}", x.dtype());
        let zero = NdBuffer::zeroed(Device::Cpu, x.dtype(), &[3], Order::C).unwrap();
        let quotient = everywhere(&[zero], |zero| apply(Op::Divide, &[zero[0].clone().into(), zero[0].clone().into()]));
        let nan = canonical[..x.dtype().size_bytes()].to_vec();
        assert_eq!(quotient, nan.repeat(3), "{}", x.dtype());
    }
}

#[test]
fn elements_that_are_chosen_keep_the_bits_of_nans() {
    let condition = buffer(DType::BOOL, &[3], &[true, false, true], |value| [u8::from(value)]);
    for x in odd_nans() {
        let dtype = x.dtype();
        let zero = NdBuffer::zeroed(Device::Cpu, dtype, &[3], Order::C).unwrap();
        let inputs = [condition.clone(), x.clone(), zero];
        let chosen = everywhere(&inputs, |input| {
            apply(Op::Where, &input.iter().cloned().map(Operand::from).collect::<Vec<_>>())
        });
        let (expected, size) = (x.to_host_bytes(Order::C).unwrap(), dtype.size_bytes());
        assert_eq!(chosen, [&expected[..size], &vec![0; size], &expected[2 * size..]].concat(), "{dtype}");
        let both = everywhere(&inputs, |input| {
            let computed = apply(Op::Add, &[input[1].clone().into(), 0i64.into()]);
            apply(Op::Where, &[input[0].clone().into(), input[1].clone().into(), computed.into()])
        });
        let mut canonical = expected.clone();
        cuzarr_device::internal::cpu::nan::canonicalize(dtype, &mut canonical);
        assert_eq!(both, [&expected[..size], &canonical[size..2 * size], &expected[2 * size..]].concat(), "{dtype}");
    }
}
