//! Elements as text and as JSON, exactly: integers, truth values and imaginary parts are kept.

use cuzarr::Result;
use cuzarr_device::{DType, DTypeKind, NdBuffer, Order};
use serde_json::{Value, json};

/// One element of an array, converted to the widest type of its kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Element {
    Truth(bool),
    Whole(i128),
    /// A float, and whether its type has at most the precision of binary32.
    Number(f64, bool),
    Complex(f64, f64, bool),
}

impl Element {
    /// Returns the element as JSON. NaN and infinities are the strings "NaN", "Infinity" and "-Infinity", as in fill
    /// values. A complex number is a list of its two parts.
    pub fn to_json(self) -> Value {
        match self {
            Element::Truth(truth) => json!(truth),
            Element::Whole(whole) => i64::try_from(whole).map_or_else(|_| json!(whole as u64), Value::from),
            Element::Number(number, _) => number_json(number),
            Element::Complex(real, imaginary, _) => json!([number_json(real), number_json(imaginary)]),
        }
    }

    /// Returns the element as text that can be used in an expression: `true`, `3`, `0.5`, `nan`, `1.0+2.0j`.
    pub fn to_text(self) -> String {
        match self {
            Element::Truth(truth) => truth.to_string(),
            Element::Whole(whole) => whole.to_string(),
            Element::Number(number, is_short) => number_text(number, is_short),
            Element::Complex(real, imaginary, is_short) => {
                let sign = if imaginary.is_sign_negative() && !imaginary.is_nan() { "" } else { "+" };
                format!("{}{sign}{}j", number_text(real, is_short), number_text(imaginary, is_short))
            }
        }
    }

    fn is_nan(self) -> bool {
        match self {
            Element::Number(number, _) => number.is_nan(),
            Element::Complex(real, imaginary, _) => real.is_nan() || imaginary.is_nan(),
            Element::Truth(_) | Element::Whole(_) => false,
        }
    }
}

/// Returns the shortest text that represents a finite number in its type.
fn shortest(number: f64, is_short: bool) -> String {
    if is_short { format!("{:?}", number as f32) } else { format!("{number:?}") }
}

fn number_json(number: f64) -> Value {
    match number {
        _ if number.is_finite() => json!(number),
        _ if number.is_nan() => json!("NaN"),
        _ if number > 0.0 => json!("Infinity"),
        _ => json!("-Infinity"),
    }
}

fn number_text(number: f64, is_short: bool) -> String {
    match number {
        _ if number.is_finite() => shortest(number, is_short),
        _ if number.is_nan() => "nan".to_string(),
        _ if number > 0.0 => "inf".to_string(),
        _ => "-inf".to_string(),
    }
}

/// A small array, to be printed as nested lists.
pub struct Printed {
    shape: Vec<usize>,
    elements: Vec<Element>,
}

impl Printed {
    /// Makes the printed form of an array in host memory.
    ///
    /// # Errors
    /// `DTypeMismatch` for elements that are not numbers.
    pub fn of(array: &NdBuffer) -> Result<Printed> {
        let dtype = array.dtype();
        let is_short =
            matches!(dtype, DType::COMPLEX64) || dtype.kind() != DTypeKind::Complex && dtype != DType::FLOAT64;
        let as_type = |wide: DType| Ok::<_, cuzarr::Error>(array.astype(wide, Order::C)?.copy(Order::C)?);
        let elements = match dtype.kind() {
            DTypeKind::Bool => {
                as_type(DType::UINT8)?.host_slice::<u8>()?.iter().map(|&truth| Element::Truth(truth != 0)).collect()
            }
            DTypeKind::Int => {
                as_type(DType::INT64)?.host_slice::<i64>()?.iter().map(|&whole| Element::Whole(whole.into())).collect()
            }
            DTypeKind::UInt => {
                as_type(DType::UINT64)?.host_slice::<u64>()?.iter().map(|&whole| Element::Whole(whole.into())).collect()
            }
            DTypeKind::Complex => {
                let bytes = as_type(DType::COMPLEX128)?.to_host_bytes(Order::C)?;
                let part = |bytes: &[u8]| f64::from_ne_bytes(bytes.try_into().unwrap_or_default());
                bytes
                    .chunks_exact(16)
                    .map(|both| Element::Complex(part(&both[..8]), part(&both[8..]), is_short))
                    .collect()
            }
            _ => as_type(DType::FLOAT64)?
                .host_slice::<f64>()?
                .iter()
                .map(|&number| Element::Number(number, is_short))
                .collect(),
        };
        Ok(Printed { shape: array.shape().to_vec(), elements })
    }

    /// Whether at least one element of the printed array is NaN.
    pub fn has_nan(&self) -> bool {
        self.elements.iter().any(|element| element.is_nan())
    }

    /// Returns the elements as nested JSON lists, for programs.
    pub fn to_json(&self) -> Value {
        nested(&self.shape, &self.elements, &|element| element.to_json(), &|values| Value::Array(values))
    }

    /// Returns the elements as nested lists in text, for people.
    pub fn to_text(&self) -> String {
        nested(&self.shape, &self.elements, &|element| element.to_text(), &|texts| format!("[{}]", texts.join(",")))
    }
}

fn nested<T>(shape: &[usize], elements: &[Element], one: &dyn Fn(Element) -> T, list: &dyn Fn(Vec<T>) -> T) -> T {
    let [len, inner @ ..] = shape else { return one(elements[0]) };
    let size: usize = inner.iter().product();
    list((0..*len).map(|at| nested(inner, &elements[at * size..(at + 1) * size], one, list)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(dtype: DType, bytes: &[u8]) -> (Value, String) {
        let len = bytes.len() / dtype.size_bytes();
        let array = NdBuffer::from_host(cuzarr_device::Device::Cpu, dtype, &[len], Order::C, bytes).unwrap();
        let printed = Printed::of(&array).unwrap();
        (printed.to_json(), printed.to_text())
    }

    #[test]
    fn elements_keep_what_their_type_keeps() {
        let bytes = |numbers: &[f64]| numbers.iter().flat_map(|number| number.to_ne_bytes()).collect::<Vec<_>>();
        assert_eq!(printed(DType::BOOL, &[1, 0]), (json!([true, false]), "[true,false]".into()));
        let large = [i64::MIN, (1 << 53) + 1].iter().flat_map(|whole| whole.to_ne_bytes()).collect::<Vec<_>>();
        let expected = (json!([i64::MIN, 9_007_199_254_740_993i64]), "[-9223372036854775808,9007199254740993]".into());
        assert_eq!(printed(DType::INT64, &large), expected);
        assert_eq!(printed(DType::UINT64, &u64::MAX.to_ne_bytes()), (json!([u64::MAX]), format!("[{}]", u64::MAX)));
        let complex = bytes(&[1.0, 2.5, -0.5, f64::NEG_INFINITY]);
        let expected = (json!([[1.0, 2.5], [-0.5, "-Infinity"]]), "[1.0+2.5j,-0.5-infj]".into());
        assert_eq!(printed(DType::COMPLEX128, &complex), expected);
        let expected = (json!(["NaN", "Infinity", 0.1]), "[nan,inf,0.1]".into());
        assert_eq!(printed(DType::FLOAT64, &bytes(&[f64::NAN, f64::INFINITY, 0.1])), expected);
        assert_eq!(printed(DType::FLOAT32, &0.1f32.to_ne_bytes()), (json!([f64::from(0.1f32)]), "[0.1]".into()));
    }
}
