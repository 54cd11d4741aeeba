//! The C++ text of an element-wise kernel, for operands of given types and layouts.
//!
//! Packed operands in the order of the result are loaded several elements at a time, if their addresses are aligned for
//! that. Other operands are indexed by their strides, after neighbouring dimensions are joined.

use cuzarr_device::DType;

use super::ElementwiseKernel;
use super::parameter::{Element, Parameter, c_type};
use crate::program::cuda::kernel_name;

/// How the elements of a kernel's operands lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Form {
    /// All operands are packed in C order, like the result. A thread takes `lanes` elements at once.
    Packed { lanes: usize },
    /// Some operands have strides, over `rank` dimensions. If `wide`, there are so many elements that their numbers
    /// take 64 bits.
    Strided { rank: usize, wide: bool },
}

/// The properties in which the compiled variants of one kernel differ.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Variant {
    /// The element type that each letter in the parameters stands for.
    pub(super) types: Vec<(char, DType)>,
    pub(super) form: Form,
    /// For each operand, whether it is a number instead of an array.
    pub(super) values: Vec<bool>,
    /// Whether the memory of an output is also that of an input.
    pub(super) in_place: bool,
    /// Whether the kernel is compiled for the CPU, for tests. CPU kernels are declared differently and find their
    /// thread in another way.
    pub(super) in_dialect: bool,
}

/// Lines of the kernel's C++ text, grouped by where they stand in it.
#[derive(Default)]
struct Lines {
    /// C++ declarations of the kernel's parameters.
    declared: Vec<String>,
    /// Lines before the operation: they define the current element of each operand.
    element: Vec<String>,
    /// C++ lines that define the operands for one of the elements that a thread loads together. `load` and `store` have
    /// the lines before and after.
    lane: Vec<String>,
    load: Vec<String>,
    store: Vec<String>,
    /// Names of the operands that are read with strides.
    strided: Vec<String>,
}

/// Returns the C++ type that a parameter is declared with.
fn written(parameter: &Parameter) -> String {
    match parameter.element {
        Element::Open(letter) => letter.to_string(),
        Element::Known(dtype) => c_type(dtype).unwrap_or_default().to_string(),
    }
}

/// Returns the name that the kernel has in its C++ text. It is the kernel's own name, except in tests on the CPU, where
/// names must differ.
pub(super) fn name(kernel: &ElementwiseKernel, variant: &Variant) -> String {
    let what = (&kernel.inputs, &kernel.outputs, &kernel.operation, &kernel.preamble, variant);
    if variant.in_dialect { kernel_name(&kernel.name, &what) } else { kernel.name.clone() }
}

/// Returns the complete C++ text of the kernel.
pub(super) fn text(kernel: &ElementwiseKernel, variant: &Variant) -> String {
    let mut text = String::new();
    if variant.in_dialect {
        text += "#include \"cuzarr/kernel.cuh\"\n#define __device__\n";
    }
    text += &format!("#line 1 \"{}.cu\"\n{}\n", kernel.name, kernel.preamble);
    for (letter, dtype) in &variant.types {
        text += &format!("typedef {} {letter};\n", c_type(*dtype).unwrap_or_default());
    }
    let lanes = match variant.form {
        Form::Packed { lanes } => lanes,
        Form::Strided { rank, .. } => {
            text += &format!("struct cuzarr_extents {{ long long at[{}]; }};\n", rank.max(1));
            1
        }
    };
    if lanes > 1 {
        text +=
            &format!("template <typename E> struct alignas({lanes} * sizeof(E)) cuzarr_lanes {{ E at[{lanes}]; }};\n");
    }
    let lines = lines(kernel, variant);
    let (own, name, declared) = (&kernel.name, name(kernel, variant), lines.declared.join(", "));
    let (header, first, step) = match variant.in_dialect {
        true => (
            format!("CUZARR_KERNEL({name}, {declared})"),
            "(u64)block_index() * thread_count() + thread_index()",
            "(u64)block_count() * thread_count()",
        ),
        false => (
            format!("extern \"C\" __global__ void {name}({declared})"),
            "(unsigned long long)blockIdx.x * blockDim.x + threadIdx.x",
            "(unsigned long long)gridDim.x * blockDim.x",
        ),
    };
    text +=
        &format!("{header} {{\nunsigned long long cuzarr_first = {first};\nunsigned long long cuzarr_step = {step};\n");
    let operation = format!("#line 1 \"{own}\"\n{};\n", kernel.operation);
    if lanes > 1 {
        text += &format!(
            "for (unsigned long long cuzarr_j = cuzarr_first; cuzarr_j < n / {lanes}; cuzarr_j += cuzarr_step) {{\n{}\
             #pragma unroll\nfor (int cuzarr_k = 0; cuzarr_k < {lanes}; ++cuzarr_k) {{\n\
             unsigned long long i = cuzarr_j * {lanes} + cuzarr_k;\n{}{operation}}}\n{}}}\n\
             cuzarr_first += n / {lanes} * {lanes};\n",
            lines.load.concat(),
            lines.lane.concat(),
            lines.store.concat(),
        );
    }
    text + &format!(
        "for (unsigned long long i = cuzarr_first; i < n; i += cuzarr_step) {{\n{}{}{operation}}}\n}}\n",
        walk(variant.form, &lines.strided),
        lines.element.concat(),
    )
}

fn lines(kernel: &ElementwiseKernel, variant: &Variant) -> Lines {
    let restrict = if variant.in_place { "" } else { "__restrict__ " };
    let mut lines = Lines { declared: vec!["unsigned long long n".into()], ..Lines::default() };
    if matches!(variant.form, Form::Strided { .. }) {
        lines.declared.push("cuzarr_extents cuzarr_shape".into());
    }
    for (number, (parameter, is_value)) in kernel.parameters().zip(&variant.values).enumerate() {
        let is_output = number >= kernel.inputs.len();
        let (name, data, element) = (&parameter.name, format!("cuzarr_{}", parameter.name), written(parameter));
        let constant = if is_output { "" } else { "const " };
        if *is_value {
            lines.declared.push(format!("{element} {name}"));
        } else if parameter.is_raw {
            lines.declared.push(format!("{constant}{element} *{restrict}{name}"));
        } else if matches!(variant.form, Form::Packed { .. }) {
            let pack = format!("{data}_lanes");
            lines.declared.push(format!("{constant}{element} *{restrict}{data}"));
            lines.element.push(format!("{constant}{element} &{name} = {data}[i];\n"));
            lines.load.push(format!(
                "cuzarr_lanes<{element}> {pack} = (({constant}cuzarr_lanes<{element}> *){data})[cuzarr_j];\n"
            ));
            lines.lane.push(format!("{constant}{element} &{name} = {pack}.at[cuzarr_k];\n"));
            if is_output {
                lines.store.push(format!("((cuzarr_lanes<{element}> *){data})[cuzarr_j] = {pack};\n"));
            }
        } else {
            lines.declared.push(format!("{constant}char *{restrict}{data}, cuzarr_extents {data}_strides"));
            lines
                .element
                .push(format!("{constant}{element} &{name} = *({constant}{element} *)({data} + {data}_offset);\n"));
            lines.strided.push(data);
        }
    }
    lines
}

/// Returns the C++ lines that compute the offset of element `i` in each strided operand.
fn walk(form: Form, strided: &[String]) -> String {
    let Form::Strided { rank, wide } = form else { return String::new() };
    let number = if wide { "unsigned long long" } else { "unsigned int" };
    let mut text: String = strided.iter().map(|data| format!("long long {data}_offset = 0;\n")).collect();
    text += &format!("{number} cuzarr_rest = ({number})i;\n");
    if rank > 0 {
        text += &format!(
            "#pragma unroll\nfor (int cuzarr_d = {}; cuzarr_d >= 0; --cuzarr_d) {{\n\
             {number} cuzarr_extent = ({number})cuzarr_shape.at[cuzarr_d];\n\
             long long cuzarr_at = cuzarr_rest % cuzarr_extent;\ncuzarr_rest /= cuzarr_extent;\n",
            rank - 1
        );
        text.extend(strided.iter().map(|data| format!("{data}_offset += cuzarr_at * {data}_strides.at[cuzarr_d];\n")));
        text += "}\n";
    }
    text
}
