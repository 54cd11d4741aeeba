//! Inverse hyperbolic functions, taken from the C library. Rust has its own formulas for some of them, which lose
//! digits near their zeros.

unsafe extern "C" {
    #[link_name = "asinh"]
    safe fn c_asinh(x: f64) -> f64;
    #[link_name = "acosh"]
    safe fn c_acosh(x: f64) -> f64;
    #[link_name = "atanh"]
    safe fn c_atanh(x: f64) -> f64;
}

/// The inverse hyperbolic sine of `x`.
pub fn asinh(x: f64) -> f64 {
    c_asinh(x)
}

/// The inverse hyperbolic cosine of `x`. NaN below 1.
pub fn acosh(x: f64) -> f64 {
    c_acosh(x)
}

/// The inverse hyperbolic tangent of `x`. NaN outside -1 to 1.
pub fn atanh(x: f64) -> f64 {
    c_atanh(x)
}
