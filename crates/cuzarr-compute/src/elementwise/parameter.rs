//! Parameters of an element-wise kernel. They are written `float32 x`, `T x` or `raw T x`.

use cuzarr_device::{DType, DTypeKind};

use cuzarr::{Error, ErrorKind, Result};

/// The element type of a kernel's parameter: fixed, or open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Element {
    Known(DType),
    /// The type is open: a letter such as `T` stands for the element type of the argument that is passed.
    Open(char),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Parameter {
    /// Whether the operation gets the whole array (`raw`) instead of the current element.
    pub(super) is_raw: bool,
    pub(super) element: Element,
    pub(super) name: String,
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

/// Whether `text` is a valid C++ name for a kernel or a parameter.
pub(super) fn is_name(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// Returns the C++ type for elements of `dtype`; `None` if C++ has no such type without headers.
pub(super) fn c_type(dtype: DType) -> Option<&'static str> {
    match (dtype.kind(), dtype.size_bytes()) {
        (DTypeKind::Bool, _) => Some("bool"),
        (DTypeKind::Int, 1) => Some("signed char"),
        (DTypeKind::Int, 2) => Some("short"),
        (DTypeKind::Int, 4) => Some("int"),
        (DTypeKind::Int, _) => Some("long long"),
        (DTypeKind::UInt, 1) => Some("unsigned char"),
        (DTypeKind::UInt, 2) => Some("unsigned short"),
        (DTypeKind::UInt, 4) => Some("unsigned int"),
        (DTypeKind::UInt, _) => Some("unsigned long long"),
        (DTypeKind::Float, 4) => Some("float"),
        (DTypeKind::Float, 8) => Some("double"),
        _ => None,
    }
}

impl Parameter {
    fn parse(text: &str) -> Result<Parameter> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (is_raw, element, name) = match words[..] {
            ["raw", element, name] => (true, element, name),
            [element, name] => (false, element, name),
            _ => (false, "", ""),
        };
        if !is_name(element) || !is_name(name) {
            return Err(invalid(format!("cannot read the parameter '{}'", text.trim()))
                .with_hint("write 'float32 x', 'T x' or 'raw T x'"));
        }
        if ["i", "n"].contains(&name) || name.starts_with("cuzarr_") {
            let message = format!("the name '{name}' is taken: i is the element's number, n how many there are");
            return Err(invalid(message));
        }
        let mut letters = element.chars();
        if let (Some(letter), None) = (letters.next(), letters.next()) {
            return Ok(Parameter { is_raw, element: Element::Open(letter), name: name.to_string() });
        }
        let known = || DType::NUMBERS.into_iter().filter(|dtype| c_type(*dtype).is_some());
        let Some(dtype) = known().find(|dtype| dtype.to_string() == element) else {
            let names: Vec<String> = known().map(|dtype| dtype.to_string()).collect();
            return Err(Error::new(ErrorKind::DTypeMismatch, format!("no kernel has elements of '{element}'"))
                .with_hint(format!("use one of {}, or a letter", names.join(", "))));
        };
        Ok(Parameter { is_raw, element: Element::Known(dtype), name: name.to_string() })
    }

    /// Parses a comma-separated list of parameters, such as `T x, float32 y`.
    ///
    /// # Errors
    /// `InvalidArgument` for text that is not a parameter; `DTypeMismatch` for element types that kernels do not
    /// support.
    pub(super) fn list(text: &str) -> Result<Vec<Parameter>> {
        text.split(',').filter(|part| !part.trim().is_empty()).map(Parameter::parse).collect()
    }
}
