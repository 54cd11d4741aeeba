//! Generates CUDA C++ for a program: one kernel that loads each input once, computes, and stores once.
//!
//! There are two forms. *Packed*: each input is packed like the result, or is a single element; a thread moves several
//! elements of each input at once. *Strided*: inputs have any strides; a thread computes the address of its element in
//! each input. Numbers are parameters, so that `x + 1` and `x + 2` share one kernel.

use std::fmt::Write;

use cuzarr_device::{DType, DTypeKind};

use super::steps::{Action, Program};
use crate::expression::Op;

/// How a kernel's operands lie in memory, which determines its text together with the program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// All operands are packed in C order, like the result, or are a single element. A thread takes `lanes` elements at
    /// once; `single` tells which inputs are single elements.
    Packed { lanes: usize, single: Vec<bool> },
    /// Some operands have strides, over `rank` dimensions. With `wide`, element numbers need 64 bits.
    Strided { rank: usize, wide: bool },
}

/// Number of groups of elements that a thread loads before it computes the first, in the packed form.
pub(crate) const GROUPS: usize = 2;

/// Returns the C++ type of elements of type `dtype` in memory.
pub(crate) fn memory_type(dtype: DType) -> &'static str {
    match (dtype.kind(), dtype.size_bytes()) {
        (DTypeKind::Float, 2) => "ops::Half",
        (DTypeKind::BFloat, _) => "ops::BFloat",
        _ => lane_type(dtype),
    }
}

fn lane_type(dtype: DType) -> &'static str {
    match (dtype.kind(), dtype.size_bytes()) {
        (DTypeKind::Bool, _) => "bool",
        (DTypeKind::Int, 1) => "i8",
        (DTypeKind::Int, 2) => "i16",
        (DTypeKind::Int, 4) => "i32",
        (DTypeKind::Int, _) => "i64",
        (DTypeKind::UInt, 1) => "u8",
        (DTypeKind::UInt, 2) => "u16",
        (DTypeKind::UInt, 4) => "u32",
        (DTypeKind::UInt, _) => "u64",
        (DTypeKind::Float, 8) => "double",
        (DTypeKind::Complex, 8) => "ops::Complex<float>",
        (DTypeKind::Complex, _) => "ops::Complex<double>",
        _ => "float",
    }
}

/// Returns the constants of a program as bytes, 16 for each, in the order of the steps.
pub(crate) fn constants(program: &Program) -> Vec<u8> {
    let mut bytes = Vec::new();
    for step in &program.steps {
        if let Action::Constant(element) = &step.action {
            bytes.extend_from_slice(element);
            bytes.resize(bytes.len().next_multiple_of(16), 0);
        }
    }
    bytes
}

/// Returns the C++ text of a kernel called `name` that computes the program.
pub(crate) fn kernel(program: &Program, form: &Form, name: &str) -> String {
    let mut text = String::from("#include \"program/arithmetic.cuh\"\n\n");
    let (count, out) = (program.inputs.len(), memory_type(program.output));
    let numbers = constants(program).len() / 16;
    let rank = if let Form::Strided { rank, .. } = form { (*rank).max(1) } else { 1 };
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "struct Number {{ u64 low, high; }};\n\
         template <class T> CUZARR_DEVICE T number(const Number& from) {{ return *(const T*)&from; }}\n\
         struct Operands {{\n    u64 count;\n    u64 inputs[{}];\n    u64 shape[{rank}];\n    i64 strides[{}];\n    Number numbers[{}];\n}};\n",
        count.max(1),
        (count * rank).max(1),
        numbers.max(1)
    );
    element(&mut text, program, out);
    let _ = writeln!(text, "CUZARR_KERNEL({name}, Operands operands, {out}* out, u32* fault) {{");
    let _ = writeln!(
        text,
        "    const u64 first = (u64)block_index() * thread_count() + thread_index(), step = (u64)block_count() * thread_count();"
    );
    match form {
        Form::Packed { lanes, single } => packed(&mut text, program, *lanes, single, out),
        Form::Strided { rank, wide } => strided(&mut text, program, *rank, *wide),
    }
    text.push_str("}\n");
    text
}

/// Writes the C++ function that computes one result element from one element of each input.
fn element(text: &mut String, program: &Program, out: &str) {
    let _ = write!(text, "static CUZARR_DEVICE {out} element(const Operands& operands, u32* fault");
    for (number, &dtype) in program.inputs.iter().enumerate() {
        let _ = write!(text, ", {} x{number}", memory_type(dtype));
    }
    text.push_str(") {\n");
    let mut numbers = 0;
    for (number, step) in program.steps.iter().enumerate() {
        let lane = lane_type(step.lane);
        let arguments: Vec<String> = step.arguments.iter().map(|argument| format!("v{argument}")).collect();
        let arguments = arguments.join(", ");
        let value = match &step.action {
            Action::Input(input) => format!("ops::load(x{input})"),
            Action::Constant(_) => {
                numbers += 1;
                format!("number<{lane}>(operands.numbers[{}])", numbers - 1)
            }
            Action::Cast => format!("ops::Cast<{lane}>::of({arguments})"),
            Action::Round(DType::FLOAT16) => format!("ops::round_half({arguments})"),
            Action::Round(_) => format!("ops::round_bfloat({arguments})"),
            Action::Canonical => format!("ops::canonical({arguments})"),
            Action::Apply(Op::Power) => format!("ops::power({arguments}, fault)"),
            Action::Apply(op) => format!("ops::{}({arguments})", function(*op)),
        };
        let _ = writeln!(text, "    const {lane} v{number} = {value};");
    }
    let _ = writeln!(text, "    return ops::Store<{out}>::of(v{});\n}}\n", program.result);
}

fn function(op: Op) -> &'static str {
    match op {
        Op::IsNan => "is_nan",
        Op::IsInf => "is_inf",
        Op::IsFinite => "is_finite",
        other => other.name(),
    }
}

fn packed(text: &mut String, program: &Program, lanes: usize, single: &[bool], out: &str) {
    let inputs: Vec<(usize, &str)> = program.inputs.iter().map(|&dtype| memory_type(dtype)).enumerate().collect();
    let call = |place: &dyn Fn(usize) -> String| {
        let operands: Vec<String> = inputs
            .iter()
            .map(|&(n, _)| if single[n] { format!(", s{n}") } else { format!(", {}", place(n)) })
            .collect();
        format!("element(operands, fault{})", operands.concat())
    };
    for &(number, dtype) in &inputs {
        if single[number] {
            let _ = writeln!(text, "    const {dtype} s{number} = *(const {dtype}*)operands.inputs[{number}];");
        } else {
            let _ = writeln!(text, "    const {dtype}* x{number} = (const {dtype}*)operands.inputs[{number}];");
        }
    }
    if lanes > 1 {
        let _ = writeln!(text, "    const u64 packs = operands.count / {lanes};");
        let _ = writeln!(text, "    u64 pack = first;");
        // Whole groups: all loads come before the first store.
        let _ = writeln!(text, "    for (; pack + {} * step < packs; pack += {GROUPS} * step) {{", GROUPS - 1);
        for group in 0..GROUPS {
            for &(number, dtype) in inputs.iter().filter(|(number, _)| !single[*number]) {
                let pack = format!("ops::Pack<{dtype}, {lanes}>");
                let _ = writeln!(
                    text,
                    "        const {pack} p{number}_{group} = ((const {pack}*)x{number})[pack + {group} * step];"
                );
            }
        }
        for group in 0..GROUPS {
            let _ = writeln!(text, "        ops::Pack<{out}, {lanes}> r{group};");
            let value = call(&|n| format!("p{n}_{group}.at[lane]"));
            let _ = writeln!(
                text,
                "#pragma unroll\n        for (u32 lane = 0; lane < {lanes}; ++lane) r{group}.at[lane] = {value};"
            );
            let _ = writeln!(text, "        ((ops::Pack<{out}, {lanes}>*)out)[pack + {group} * step] = r{group};");
        }
        text.push_str("    }\n");
        let _ = writeln!(text, "    for (; pack < packs; pack += step) {{");
        let value = call(&|n| format!("x{n}[pack * {lanes} + lane]"));
        let _ = writeln!(
            text,
            "        for (u32 lane = 0; lane < {lanes}; ++lane) out[pack * {lanes} + lane] = {value};\n    }}"
        );
        let _ = writeln!(text, "    for (u64 at = packs * {lanes} + first; at < operands.count; at += step) {{");
    } else {
        let _ = writeln!(text, "    for (u64 at = first; at < operands.count; at += step) {{");
    }
    let _ = writeln!(text, "        out[at] = {};\n    }}", call(&|n| format!("x{n}[at]")));
}

fn strided(text: &mut String, program: &Program, rank: usize, wide: bool) {
    let index = if wide { "u64" } else { "u32" };
    let _ = writeln!(text, "    for (u64 at = first; at < operands.count; at += step) {{");
    let _ = writeln!(text, "        {index} rest = ({index})at;");
    for number in 0..program.inputs.len() {
        let _ = writeln!(text, "        u64 a{number} = operands.inputs[{number}];");
    }
    for axis in (0..rank).rev() {
        if axis > 0 {
            let _ = writeln!(
                text,
                "        {{\n            const {index} extent = ({index})operands.shape[{axis}], up = rest / extent;"
            );
            let _ = writeln!(text, "            const i64 place = (i64)(rest - up * extent);");
        } else {
            let _ = writeln!(
                text,
                "        {{\n            const {index} up = 0;\n            const i64 place = (i64)rest;"
            );
        }
        for number in 0..program.inputs.len() {
            let _ =
                writeln!(text, "            a{number} += (u64)(place * operands.strides[{}]);", number * rank + axis);
        }
        let _ = writeln!(text, "            rest = up;\n        }}");
    }
    let operands: Vec<String> = program
        .inputs
        .iter()
        .enumerate()
        .map(|(n, &dtype)| format!(", *(const {}*)a{n}", memory_type(dtype)))
        .collect();
    let _ = writeln!(text, "        out[at] = element(operands, fault{});\n    }}", operands.concat());
}
