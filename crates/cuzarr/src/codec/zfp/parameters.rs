//! The parameters of zfp blocks (size, precision), read from the codec's configuration.
//!
//! Every mode is a choice of the four parameters that zfp calls `minbits`, `maxbits`, `maxprec` and `minexp`:
//! <https://zfp.readthedocs.io/en/latest/modes.html>.

use serde_json::{Map, Value};

use crate::Result;
use crate::codec::configuration::Configuration;

/// Maximum number of bits of a zfp block, in any mode of zfp.
const MOST_BITS: u32 = 16_658;
/// Maximum number of bit planes of a zfp block, in any mode of zfp.
const MOST_PLANES: u32 = 64;
/// The exponent of the smallest positive float64, a subnormal number. Parameters below it choose the reversible mode.
const LEAST_EXPONENT: i32 = -1074;

/// How many bits zfp blocks take, and with what precision they hold values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parameters {
    /// Minimum number of bits of a zfp block; shorter blocks are filled up with zeros.
    pub(super) least_bits: u32,
    pub(super) most_bits: u32,
    /// Maximum number of bit planes of a zfp block that are stored, from the highest one on.
    pub(super) planes: u32,
    /// For floats, the exponent of the lowest power of two that is stored.
    pub(super) least_exponent: i32,
}

/// The type and the dimensions of an array's values, as far as parameters depend on them.
#[derive(Clone, Copy, Debug)]
pub(super) struct ZfpValues {
    /// Number of dimensions of a zfp block.
    pub(super) ndim: usize,
    /// Number of bits of one value in a zfp block.
    pub(super) width: u32,
    /// For floats, the number of bits of an exponent; else `None`.
    pub(super) exponent_bits: Option<u32>,
}

impl ZfpValues {
    /// Number of values in a zfp block.
    pub(super) fn count(&self) -> u32 {
        1 << (2 * self.ndim)
    }

    /// Number of bits in a block before its coefficients.
    fn header_bits(&self, is_reversible: bool) -> u32 {
        let planes = if is_reversible { self.width.trailing_zeros() } else { 0 };
        match self.exponent_bits {
            Some(exponent) => 1 + u32::from(is_reversible) + exponent + planes,
            None => planes,
        }
    }
}

impl Parameters {
    const UNBOUNDED: Parameters =
        Parameters { least_bits: 1, most_bits: MOST_BITS, planes: MOST_PLANES, least_exponent: LEAST_EXPONENT };

    /// Reads the parameters from a codec's configuration, for values of this kind.
    pub(super) fn read(name: &str, members: &Map<String, Value>, values: ZfpValues) -> Result<Parameters> {
        let all = ["mode", "rate", "precision", "tolerance", "minbits", "maxbits", "maxprec", "minexp"];
        let any = Configuration::new(name, members, &all)?;
        let modes: [(&str, (ZfpMode, &[&str])); 5] = [
            ("reversible", (ZfpMode::Reversible, &["mode"])),
            ("expert", (ZfpMode::Expert, &["mode", "minbits", "maxbits", "maxprec", "minexp"])),
            ("fixed_accuracy", (ZfpMode::FixedAccuracy, &["mode", "tolerance"])),
            ("fixed_rate", (ZfpMode::FixedRate, &["mode", "rate"])),
            ("fixed_precision", (ZfpMode::FixedPrecision, &["mode", "precision"])),
        ];
        let Some((mode, known)) = any.choice("mode", &modes)? else { return Err(any.invalid("'mode' is missing")) };
        let configuration = Configuration::new(name, members, known)?;
        if let Some(missing) = known.iter().find(|key| configuration.get(key).is_none()) {
            return Err(configuration.invalid(format!("'{missing}' is missing")));
        }
        let parameters = match mode {
            ZfpMode::Reversible => Parameters { least_exponent: LEAST_EXPONENT - 1, ..Parameters::UNBOUNDED },
            ZfpMode::Expert => expert(&configuration)?,
            ZfpMode::FixedAccuracy => fixed_accuracy(&configuration, values)?,
            ZfpMode::FixedRate => fixed_rate(&configuration, values)?,
            ZfpMode::FixedPrecision => match configuration.integer("precision", 0..=i64::from(u32::MAX), 0)? as u32 {
                0 => Parameters::UNBOUNDED,
                planes => Parameters { planes: planes.min(MOST_PLANES), ..Parameters::UNBOUNDED },
            },
        };
        let needed = values.header_bits(parameters.is_reversible()).max(1);
        if parameters.most_bits < needed {
            let most = parameters.most_bits;
            let message = format!("blocks have at most {most} bits, and their headers alone need {needed}");
            return Err(configuration.invalid(message));
        }
        Ok(parameters)
    }

    /// Whether these parameters store blocks without loss.
    pub(super) fn is_reversible(&self) -> bool {
        self.least_exponent < LEAST_EXPONENT
    }

    /// The number of bits of every block, if all blocks have the same; else `None`.
    pub(super) fn fixed_bits(&self) -> Option<u32> {
        (self.least_bits == self.most_bits && !self.is_reversible()).then_some(self.most_bits)
    }

    /// Maximum number of bits of a zfp block with these parameters.
    pub(super) fn bound_bits(&self, values: ZfpValues) -> u32 {
        let planes = if self.is_reversible() { values.width } else { self.planes.min(values.width) };
        let needed = values.header_bits(self.is_reversible()) + values.count() * (planes + 1);
        needed.min(self.most_bits).max(self.least_bits)
    }
}

#[derive(Clone, Copy)]
enum ZfpMode {
    Reversible,
    Expert,
    FixedAccuracy,
    FixedRate,
    FixedPrecision,
}

fn expert(configuration: &Configuration<'_>) -> Result<Parameters> {
    let unsigned = 0..=i64::from(u32::MAX);
    let least_bits = configuration.integer("minbits", 0..=i64::from(MOST_BITS), 0)? as u32;
    let most_bits = configuration.integer("maxbits", unsigned, 0)?.min(i64::from(MOST_BITS)) as u32;
    let planes = configuration.integer("maxprec", 1..=i64::from(MOST_PLANES), 0)? as u32;
    let least_exponent = configuration.integer("minexp", i64::from(i32::MIN)..=i64::from(i32::MAX), 0)? as i32;
    if least_bits > most_bits {
        return Err(configuration.invalid(format!("'minbits' is {least_bits}, more than 'maxbits', {most_bits}")));
    }
    Ok(Parameters { least_bits, most_bits, planes, least_exponent })
}

fn fixed_accuracy(configuration: &Configuration<'_>, values: ZfpValues) -> Result<Parameters> {
    if values.exponent_bits.is_none() {
        return Err(configuration.invalid("mode 'fixed_accuracy' is only for floats"));
    }
    match configuration.number("tolerance")?.as_f64().filter(|tolerance| (0.0..=f64::MAX).contains(tolerance)) {
        Some(0.0) => Ok(Parameters::UNBOUNDED),
        Some(tolerance) => Ok(Parameters { least_exponent: floor_log2(tolerance), ..Parameters::UNBOUNDED }),
        None => Err(configuration.invalid("'tolerance' is no number from 0 on")),
    }
}

/// The exponent of the largest power of two that is no larger than `number`, which is positive.
fn floor_log2(number: f64) -> i32 {
    let bits = number.to_bits();
    match (bits >> 52) as i32 {
        0 => LEAST_EXPONENT + bits.ilog2() as i32,
        biased => biased - 1023,
    }
}

fn fixed_rate(configuration: &Configuration<'_>, values: ZfpValues) -> Result<Parameters> {
    let rate = configuration.number("rate")?.as_f64().unwrap_or(f64::NAN);
    let bits = (f64::from(values.count()) * rate + 0.5).floor();
    if !(rate > 0.0 && (0.0..=f64::from(MOST_BITS)).contains(&bits)) {
        let most = f64::from(MOST_BITS) / f64::from(values.count());
        return Err(configuration.invalid(format!("'rate' is {rate}, expected a number from 0 to {most}")));
    }
    let bits = (bits as u32).max(values.exponent_bits.map_or(0, |bits| 1 + bits));
    Ok(Parameters { least_bits: bits, most_bits: bits, ..Parameters::UNBOUNDED })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FLOATS: ZfpValues = ZfpValues { ndim: 2, width: 32, exponent_bits: Some(8) };

    fn read(configuration: Value, values: ZfpValues) -> Result<Parameters> {
        Parameters::read("zfp", configuration.as_object().unwrap(), values)
    }

    #[test]
    fn modes_are_parameters_as_zfp_documents_them() {
        let of = |configuration: Value| {
            let Parameters { least_bits, most_bits, planes, least_exponent } = read(configuration, FLOATS).unwrap();
            (least_bits, most_bits, planes, least_exponent)
        };
        assert_eq!(of(json!({"mode": "reversible"})), (1, 16_658, 64, -1075));
        assert_eq!(of(json!({"mode": "fixed_rate", "rate": 10.5})), (168, 168, 64, -1074));
        assert_eq!(of(json!({"mode": "fixed_rate", "rate": 0.1})), (9, 9, 64, -1074), "the header");
        assert_eq!(of(json!({"mode": "fixed_precision", "precision": 19})), (1, 16_658, 19, -1074));
        assert_eq!(of(json!({"mode": "fixed_precision", "precision": 0})), (1, 16_658, 64, -1074));
        assert_eq!(of(json!({"mode": "fixed_accuracy", "tolerance": 0.05})), (1, 16_658, 64, -5));
        assert_eq!(of(json!({"mode": "fixed_accuracy", "tolerance": 8})), (1, 16_658, 64, 3));
        assert_eq!(of(json!({"mode": "fixed_accuracy", "tolerance": 5e-324})), (1, 16_658, 64, -1074));
        assert_eq!(of(json!({"mode": "fixed_accuracy", "tolerance": 0})), (1, 16_658, 64, -1074));
        let expert = json!({"mode": "expert", "minbits": 1, "maxbits": 13, "maxprec": 19, "minexp": -2});
        assert_eq!(of(expert), (1, 13, 19, -2));
    }

    #[test]
    fn configurations_that_zfp_cannot_follow_are_refused() {
        let integers = ZfpValues { exponent_bits: None, ..FLOATS };
        let expert = |least: i64, most: i64, planes: i64, exponent: i64| json!({"mode": "expert", "minbits": least, "maxbits": most, "maxprec": planes, "minexp": exponent});
        for (configuration, values, said) in [
            (json!({}), FLOATS, "'mode' is missing"),
            (json!({"mode": "lossless"}), FLOATS, "'mode'"),
            (json!({"mode": "fixed_rate"}), FLOATS, "'rate' is missing"),
            (json!({"mode": "fixed_rate", "rate": 0}), FLOATS, "'rate' is 0"),
            (json!({"mode": "fixed_rate", "rate": 1e300}), FLOATS, "'rate' is"),
            (json!({"mode": "fixed_rate", "rate": 0.01}), integers, "headers alone need 1"),
            (json!({"mode": "fixed_rate", "rate": "8"}), FLOATS, "'rate'"),
            (json!({"mode": "fixed_rate", "rate": 8, "tolerance": 1}), FLOATS, "'tolerance'"),
            (json!({"mode": "fixed_accuracy", "tolerance": -1}), FLOATS, "'tolerance'"),
            (json!({"mode": "fixed_accuracy", "tolerance": 1}), integers, "only for floats"),
            (json!({"mode": "fixed_precision", "precision": -1}), FLOATS, "'precision'"),
            (expert(14, 13, 19, -2), FLOATS, "'minbits' is 14"),
            (expert(1, 8, 19, -2), FLOATS, "headers alone need 9"),
            (expert(1, 13, 65, -2), FLOATS, "'maxprec'"),
            (expert(1, 13, 0, -2), FLOATS, "'maxprec'"),
            (expert(1, 13, 19, 1 << 40), FLOATS, "'minexp'"),
            (expert(1, 14, 19, -2000), FLOATS, "headers alone need 15"),
            (expert(1, 4, 19, -2000), integers, "headers alone need 5"),
            (expert(1 << 20, 1 << 20, 19, -2), integers, "'minbits'"),
        ] {
            let error = read(configuration.clone(), values).unwrap_err();
            assert!(error.message().contains(said), "{configuration}: {error}");
        }
    }
}
