//! Decoding: converts stored elements to the numbers and dates that they stand for, by the rule of [`Decoding`].

use cuzarr::meta::{ArrayMetadata, Decoding, Mark, TimeScale};
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_device::{DType, DTypeKind, Device, NdBuffer, Order};

use crate::expression::{Expr, Kind, Op, Operand, Summary, Weak};
use crate::options::ComputeOptions;

/// The integer that stands for a missing date: NumPy's NaT.
const NAT: i64 = i64::MIN;

impl Expr {
    /// Returns the numbers that the stored elements represent, according to the array's attributes (see [`Decoding`]
    /// for the rule). Missing elements become NaN, packed ones are scaled. With `dtype`, the numbers are converted to
    /// that type after they are computed.
    ///
    /// ```
    /// use cuzarr::meta::DataType;
    /// use cuzarr::node::Array;
    /// use cuzarr::plan::Selection;
    /// use cuzarr_compute::{ComputeOptions, Expr};
    /// let attributes = serde_json::json!({"scale_factor": 0.5, "_FillValue": -1});
    /// let array = Array::builder([2], DataType::Int16).chunks([2]).attributes(attributes.as_object().unwrap().clone());
    /// let array = array.create("memory://packed")?;
    /// array.write(&Selection::all(&[2]), &[-1i16, 3])?;
    /// let numbers = Expr::array(array)?.decoded(None)?.compute(&ComputeOptions::default())?;
    /// assert_eq!(numbers.host_slice::<f64>()?[1], 1.5);
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` unless the elements are those of an array in a store, and for a `dtype` that cannot hold NaN
    /// when numbers may be NaN; those of [`decoding`](cuzarr::meta::ArrayMetadata::decoding).
    pub fn decoded(&self, dtype: Option<DType>) -> Result<Expr> {
        self.decoded_by(&self.stored_metadata()?.decoding()?, dtype)
    }

    /// Like [`Expr::decoded`], but with the given rule. The elements may be those of any expression.
    ///
    /// # Errors
    /// `InvalidArgument` for a `dtype` that cannot hold NaN when numbers may be NaN; those of [`Expr::apply`].
    pub fn decoded_by(&self, decoding: &Decoding, dtype: Option<DType>) -> Result<Expr> {
        let numbers = decode(self, decoding)?;
        let Some(dtype) = dtype else { return Ok(numbers) };
        let keeps = [DTypeKind::Float, DTypeKind::BFloat, DTypeKind::Complex].contains(&dtype.kind());
        if !keeps && (decoding.is_masked || decoding.is_scaled()) {
            let message = format!("decoded elements are floats, of which some may be NaN, got the type {dtype}");
            return Err(Error::new(ErrorKind::InvalidArgument, message)
                .with_hint("choose a type of floats, and convert the result where nothing is missing"));
        }
        numbers.astype(dtype)
    }

    /// Returns the dates that the stored elements represent, as 8-byte integers: nanoseconds since 1970-01-01. Missing
    /// dates are `i64::MIN`, NumPy's NaT. `None` if the attribute `units` does not describe times. Unless all values of
    /// the stored type fit, the computation begins with a pass that checks whether all dates fit.
    ///
    /// # Errors
    /// `InvalidArgument` unless the elements are those of an array in a store; `Unsupported` for calendars, units and
    /// dates that [`TimeScale::of`] does not support; those of [`decoding`](cuzarr::meta::ArrayMetadata::decoding).
    /// Computing the result: `OutOfRange` for dates before 1677 or after 2262.
    pub fn decoded_times(&self) -> Result<Option<Expr>> {
        self.decoded_times_by(&self.stored_metadata()?.decoding()?)
    }

    /// Like [`Expr::decoded_times`], but with the given rule. The elements may be those of any expression.
    ///
    /// # Errors
    /// Those of [`Decoding::time_scale`] and of [`Expr::apply`].
    pub fn decoded_times_by(&self, decoding: &Decoding) -> Result<Option<Expr>> {
        if !matches!(self.dtype().kind(), DTypeKind::Int | DTypeKind::UInt | DTypeKind::Float) {
            return Ok(None);
        }
        decoding.time_scale()?.map(|scale| decode_times(self, decoding, scale)).transpose()
    }

    /// Returns the metadata of the array that this expression reads.
    ///
    /// # Errors
    /// `InvalidArgument` unless the expression is an array in a store, or a view of one.
    pub fn stored_metadata(&self) -> Result<&ArrayMetadata> {
        let Kind::Array(view) = &self.0.kind else {
            let message = "only the elements of an array in a store can be decoded";
            return Err(
                Error::new(ErrorKind::InvalidArgument, message).with_hint("decode the array, then compute with it")
            );
        };
        Ok(view.array.metadata())
    }
}

/// Returns the numbers that stored elements represent, according to `decoding`.
fn decode(stored: &Expr, decoding: &Decoding) -> Result<Expr> {
    let own = read_as(stored, decoding)?;
    let dtype = match decoding.dtype.unwrap_or(stored.dtype()) {
        // Scaled or masked booleans are computed as numbers, and converted at the end.
        DType::BOOL if decoding.is_masked || decoding.is_scaled() => DType::FLOAT64,
        dtype => dtype,
    };
    let mut numbers = own.astype(dtype)?;
    if let Some(scale) = decoding.scale {
        numbers = Expr::apply(Op::Multiply, &[numbers.into(), scale.into()])?;
    }
    if let Some(offset) = decoding.offset {
        numbers = Expr::apply(Op::Add, &[numbers.into(), offset.into()])?;
    }
    if let Some(is_missing) = is_missing(&own, decoding)? {
        let nan = match dtype.kind() {
            DTypeKind::Complex => Operand::Weak(Weak::Complex(f64::NAN, f64::NAN)),
            _ => f64::NAN.into(),
        };
        numbers = Expr::apply(Op::Where, &[is_missing.into(), nan, numbers.into()])?;
    }
    numbers.astype(decoding.dtype.unwrap_or(stored.dtype()))
}

/// Converts the stored elements to another integer type, if the array's attributes say that the elements are to be read
/// so.
fn read_as(stored: &Expr, decoding: &Decoding) -> Result<Expr> {
    decoding.read_as.map_or_else(|| Ok(stored.clone()), |dtype| stored.astype(dtype))
}

/// Returns a mask of the elements that equal a value for missing elements; `None` if no element can equal one.
fn is_missing(own: &Expr, decoding: &Decoding) -> Result<Option<Expr>> {
    let mut all: Option<Expr> = None;
    for mark in &decoding.missing {
        let mark = match *mark {
            Mark::Int(value) => Weak::Int(value),
            Mark::Float(value) => Weak::Float(value),
            Mark::Complex(re, im) => Weak::Complex(re, im),
        };
        let next = Expr::apply(Op::Equal, &[own.clone().into(), Operand::Weak(mark)])?;
        all = Some(match all {
            Some(before) => Expr::apply(Op::LogicalOr, &[before.into(), next.into()])?,
            None => next,
        });
    }
    Ok(all)
}

/// Converts stored dates to nanoseconds since 1970-01-01; `scale` has their unit and their origin. As in xarray,
/// integers are counted exactly. Floats are computed in binary64, and fractions of a nanosecond are dropped.
fn decode_times(stored: &Expr, decoding: &Decoding, scale: TimeScale) -> Result<Expr> {
    let own = read_as(stored, decoding)?;
    let is_whole = !decoding.is_scaled() && own.dtype().kind() != DTypeKind::Float;
    let as_floats = decode(stored, &Decoding { dtype: Some(DType::FLOAT64), ..decoding.clone() })?;
    let fits = is_whole && fits_always(own.dtype(), scale);
    let (dates, mut is_nat) = if is_whole {
        // Sums and products wrap around, so they are right if the date itself fits.
        let origin = Operand::Weak(Weak::Int(i128::from(scale.origin_ns as i64)));
        let counts = own.astype(DType::INT64)?;
        let spans = Expr::apply(Op::Multiply, &[counts.into(), scale.unit_ns.into()])?;
        (Expr::apply(Op::Add, &[spans.into(), origin])?, is_missing(&own, decoding)?)
    } else {
        let is_nan = Expr::apply(Op::IsNan, &[as_floats.clone().into()])?;
        (dates_of_floats(&as_floats, scale)?, Some(is_nan))
    };
    if is_whole && own.dtype() == DType::INT64 {
        let nat = Expr::apply(Op::Equal, &[own.into(), NAT.into()])?;
        is_nat = Some(match is_nat {
            Some(missing) => Expr::apply(Op::LogicalOr, &[missing.into(), nat.into()])?,
            None => nat,
        });
    }
    let dates = if fits { dates } else { checked(dates, &as_floats, is_nat.as_ref(), scale)? };
    match is_nat {
        Some(is_nat) => Expr::apply(Op::Where, &[is_nat.into(), NAT.into(), dates.into()]),
        None => Ok(dates),
    }
}

/// Converts dates that are stored as binary64 numbers to nanoseconds since 1970-01-01. If the origin lies outside the
/// range of dates, numbers are counted from a day inside the range.
fn dates_of_floats(numbers: &Expr, scale: TimeScale) -> Result<Expr> {
    let unit = i128::from(scale.unit_ns);
    let moved = if i64::try_from(scale.origin_ns).is_ok() { 0 } else { -scale.origin_ns.div_euclid(unit) };
    let origin = scale.origin_ns + moved * unit;
    let numbers = match moved {
        0 => numbers.clone(),
        _ => Expr::apply(Op::Subtract, &[numbers.clone().into(), (moved as f64).into()])?,
    };
    let spans = Expr::apply(Op::Multiply, &[numbers.into(), (scale.unit_ns as f64).into()])?;
    Expr::apply(Op::Add, &[spans.astype(DType::INT64)?.into(), Operand::Weak(Weak::Int(origin))])
}

/// Whether every value of an integer type gives a date that fits into 8 bytes of nanoseconds.
fn fits_always(dtype: DType, scale: TimeScale) -> bool {
    let bits = 8 * dtype.size_bytes();
    let (least, most) = match dtype.kind() {
        DTypeKind::Int => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
        _ => (0, (1i128 << bits) - 1),
    };
    let date = |count: i128| count * i128::from(scale.unit_ns) + scale.origin_ns;
    date(least) > i128::from(NAT) && date(most) <= i128::from(i64::MAX)
}

/// Returns `dates`, but computing them fails if one does not fit into 8 bytes of nanoseconds.
fn checked(dates: Expr, numbers: &Expr, is_nat: Option<&Expr>, scale: TimeScale) -> Result<Expr> {
    let numbers = match is_nat {
        Some(is_nat) => Expr::apply(Op::Where, &[is_nat.clone().into(), f64::NAN.into(), numbers.clone().into()])?,
        None => numbers.clone(),
    };
    let nothing = numbers.summary(Fitting { scale })?;
    Expr::apply(Op::Add, &[dates.into(), nothing.into()])
}

/// A summary that checks dates: its result is 0, or an error if one of the dates does not fit into 8 bytes of
/// nanoseconds.
#[derive(Debug)]
struct Fitting {
    scale: TimeScale,
}

impl Summary for Fitting {
    fn result(&self, _dtype: DType, _shape: &[u64]) -> Result<(DType, Vec<u64>)> {
        Ok((DType::INT64, Vec::new()))
    }

    fn compute(&self, of: &Expr, options: &ComputeOptions<'_>) -> Result<NdBuffer> {
        let (unit, origin) = (self.scale.unit_ns as f64, self.scale.origin_ns as f64);
        // Below this, rounding to binary64 moves no date past the limit.
        let most = (i64::MAX - (1 << 12)) as f64;
        if let Some((least, greatest)) = of.statistics(options)?.range {
            for number in [least, greatest] {
                let date = number * unit + origin;
                if !date.is_finite() || date.abs() > most {
                    let message =
                        format!("the date of {number:?} does not fit into datetime64[ns], which is 1677 to 2262");
                    return Err(Error::new(ErrorKind::OutOfRange, message)
                        .with_hint("read the numbers without times, and convert them with cftime"));
                }
            }
        }
        let zero = NdBuffer::from_host(Device::Cpu, DType::INT64, &[], Order::C, &0i64.to_ne_bytes())?;
        Ok(zero.to_device(options.device)?)
    }

    fn name(&self) -> &'static str {
        "fitting"
    }

    fn arguments(&self) -> String {
        String::new()
    }
}
