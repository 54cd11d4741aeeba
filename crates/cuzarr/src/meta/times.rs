//! Time scales of the CF conventions: a unit and a reference date, such as `days since 2000-01-01`.
//!
//! Specification:
//! <https://cfconventions.org/Data/cf-conventions/cf-conventions-1.11/cf-conventions.html#time-coordinate>. Days are
//! computed with Hinnant's algorithm: <https://howardhinnant.github.io/date_algorithms.html#days_from_civil>.

use crate::{Error, ErrorKind, Result};

/// The meaning of a time coordinate's numbers: each counts units since a reference date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeScale {
    /// Length of the unit of time in nanoseconds.
    pub unit_ns: i64,
    /// Nanoseconds from 1970-01-01 to the reference date. They may not fit 8 bytes.
    pub origin_ns: i128,
}

const SECOND_NS: i64 = 1_000_000_000;
const DAY_NS: i128 = 86_400 * SECOND_NS as i128;

/// The first Gregorian day of the standard calendar, and the last Julian day before it.
const FIRST_GREGORIAN: (i64, i64, i64) = (1582, 10, 15);
const LAST_JULIAN: (i64, i64, i64) = (1582, 10, 4);

impl TimeScale {
    /// Parses a time scale from the CF attributes `units` and `calendar`.
    ///
    /// # Errors
    /// `Unsupported` for calendars other than `standard`, `gregorian` and `proleptic_gregorian`, for units without a
    /// fixed length, and for dates that cannot be parsed.
    pub fn of(units: &str, calendar: Option<&str>) -> Result<TimeScale> {
        let hint = "read the numbers without times, and convert them with cftime";
        let refuse = |message: String| Error::new(ErrorKind::Unsupported, message).with_hint(hint);
        let calendar = calendar.unwrap_or("standard");
        let is_proleptic = match calendar.to_lowercase().as_str() {
            "proleptic_gregorian" => true,
            "standard" | "gregorian" => false,
            _ => {
                let known = "standard, gregorian or proleptic_gregorian";
                return Err(refuse(format!("calendar: got {calendar:?}, expected {known}")));
            }
        };
        let (unit, date) = units.rsplit_once(" since ").ok_or_else(|| {
            refuse(format!("units: got {units:?}, expected a unit and a date, as in \"days since 2000-01-01\""))
        })?;
        let unit_ns = unit_ns(unit.trim()).ok_or_else(|| {
            refuse(format!("units: got the unit {unit:?}, expected days, hours, minutes, seconds or parts of seconds"))
        })?;
        let origin_ns = origin_ns(date.trim(), is_proleptic)
            .ok_or_else(|| refuse(format!("units: cannot read the date {date:?} in the calendar {calendar:?}")))?;
        Ok(TimeScale { unit_ns, origin_ns })
    }
}

/// The length in nanoseconds of a unit, given by its UDUNITS name.
fn unit_ns(unit: &str) -> Option<i64> {
    let unit = unit.to_lowercase();
    Some(match unit.strip_suffix('s').filter(|one| one.len() > 1).unwrap_or(&unit) {
        "day" | "d" => 86_400 * SECOND_NS,
        "hour" | "hr" | "h" => 3600 * SECOND_NS,
        "minute" | "min" => 60 * SECOND_NS,
        "second" | "sec" | "s" => SECOND_NS,
        "millisecond" | "millisec" | "msec" | "ms" => 1_000_000,
        "microsecond" | "microsec" => 1000,
        "nanosecond" | "nanosec" => 1,
        _ => return None,
    })
}

/// Nanoseconds from 1970-01-01 to a date that is given as text, with or without a time of day and a zone.
fn origin_ns(text: &str, is_proleptic: bool) -> Option<i128> {
    // A sign belongs to the year.
    let body = text.trim_start_matches(['+', '-']);
    let end = body.find(['T', 't', ' ']).unwrap_or(body.len());
    let (date, rest) = (&text[..text.len() - body.len() + end], body[end..].trim_start_matches(['T', 't', ' ']));
    let (time, offset_minutes) = zone(rest)?;
    let nanoseconds = time_of_day(time)? - i128::from(offset_minutes) * 60 * i128::from(SECOND_NS);
    Some(i128::from(days(date, is_proleptic)?) * DAY_NS + nanoseconds)
}

/// Days from 1970-01-01 to a date that is given as text, such as `2000-01-31`. Month and day may be missing.
fn days(text: &str, is_proleptic: bool) -> Option<i64> {
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let mut parts = text.trim_start_matches(['+', '-']).split('-').map(|part| digits(part, 5));
    let year = sign * parts.next()??;
    let month = parts.next().unwrap_or(Some(1))?;
    let day = parts.next().unwrap_or(Some(1))?;
    let date = (year, month, day);
    if parts.next().is_some() || !(1..=12).contains(&month) {
        return None;
    }
    let is_julian = !is_proleptic && date < FIRST_GREGORIAN;
    let is_leap = year % 4 == 0 && (is_julian || year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if !(1..=length).contains(&day) || (is_julian && (date > LAST_JULIAN || year < 1)) {
        return None;
    }
    // Here years begin in March, so that a leap day is the last day.
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = 365 * year + year.div_euclid(4) + day_of_year;
    Some(if is_julian { days - 719_470 } else { days - year.div_euclid(100) + year.div_euclid(400) - 719_468 })
}

/// Parses a time of day, such as `12:30:00.5`, to nanoseconds. An empty text means midnight.
fn time_of_day(text: &str) -> Option<i128> {
    if text.is_empty() {
        return Some(0);
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let parts: Vec<i64> = whole.split(':').map(|part| digits(part, 2)).collect::<Option<_>>()?;
    let (hour, minute, second) = match parts[..] {
        [hour] if fraction.is_empty() => (hour, 0, 0),
        [hour, minute] if fraction.is_empty() => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    if hour > 23 || minute > 59 || second > 59 || fraction.len() > 9 {
        return None;
    }
    let part = if fraction.is_empty() { 0 } else { digits(fraction, 9)? * 10i64.pow(9 - fraction.len() as u32) };
    Some(i128::from((hour * 3600 + minute * 60 + second) * SECOND_NS + part))
}

/// Splits the time zone off the end of `text`. Returns the time of day, and the minutes by which the zone is ahead of
/// UTC.
fn zone(text: &str) -> Option<(&str, i64)> {
    for name in ["Z", "z", "UTC", "GMT"] {
        if let Some(time) = text.strip_suffix(name) {
            return Some((time.trim_end(), 0));
        }
    }
    let Some(at) = text.find(['+', '-']) else { return Some((text, 0)) };
    let sign = if text[at..].starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = match &text[at + 1..] {
        zone if zone.contains(':') => zone.split_once(':')?,
        zone if zone.len() == 4 => zone.split_at_checked(2)?,
        zone => (zone, "0"),
    };
    let (hours, minutes) = (digits(hours, 2)?, digits(minutes, 2)?);
    (hours < 24 && minutes < 60).then(|| (text[..at].trim_end(), sign * (hours * 60 + minutes)))
}

/// Parses a number of at most `most` decimal digits, without a sign.
fn digits(text: &str, most: usize) -> Option<i64> {
    let is_number = !text.is_empty() && text.len() <= most && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(units: &str, calendar: &str) -> i128 {
        TimeScale::of(units, Some(calendar)).unwrap().origin_ns / i128::from(SECOND_NS)
    }

    #[test]
    fn dates_are_read_as_people_write_them() {
        for date in [
            "2000-01-02",
            "2000-1-2",
            "2000-01-02 00:00:00",
            "2000-01-02T00:00:00Z",
            "2000-01-02 0:0:0.0",
            "2000-01-02 00:00 UTC",
            "2000-01-02 01:30:00 +01:30",
            "2000-01-01 22:00 -2",
            "2000-01-02T01:00:00+0100",
        ] {
            assert_eq!(seconds(&format!("days since {date}"), "standard"), 946_771_200, "{date}");
        }
        let half = TimeScale::of("seconds since 1970-01-01 00:00:00.25", None).unwrap();
        assert_eq!(half, TimeScale { unit_ns: SECOND_NS, origin_ns: 250_000_000 });
    }

    #[test]
    fn units_have_the_names_of_udunits() {
        let unit = |name: &str| TimeScale::of(&format!("{name} since 1970-01-01"), None).unwrap().unit_ns;
        assert_eq!(
            (unit("Days"), unit("h"), unit("min"), unit("s")),
            (86_400_000_000_000, 3_600_000_000_000, 60_000_000_000, 1_000_000_000)
        );
        assert_eq!((unit("msec"), unit("microseconds"), unit("nanosecond")), (1_000_000, 1000, 1));
    }

    #[test]
    fn the_standard_calendar_has_julian_dates_before_the_reform() {
        // In that calendar, the day after 1582-10-04 is 1582-10-15; in the proleptic calendar, it is 1582-10-05.
        let of = |date: &str, calendar: &str| seconds(&format!("days since {date}"), calendar) / 86_400;
        assert_eq!(of("1582-10-15", "gregorian"), -141_427);
        assert_eq!(of("1582-10-04", "standard"), -141_428);
        assert_eq!(of("1582-10-05", "proleptic_gregorian"), -141_437);
        assert_eq!((of("0001-01-01", "proleptic_gregorian"), of("0001-01-01", "standard")), (-719_162, -719_164));
    }

    #[test]
    fn other_calendars_units_and_dates_are_refused_by_name() {
        for (units, calendar, name) in [
            ("days since 2000-01-01", "noleap", "noleap"),
            ("months since 2000-01-01", "standard", "months"),
            ("days since launch", "standard", "launch"),
            ("days since 1582-10-10", "standard", "1582-10-10"),
            ("days since 2001-02-29", "standard", "2001-02-29"),
            ("days since 2000-01-01 25:00", "standard", "25:00"),
            ("K since", "standard", "K since"),
        ] {
            let error = TimeScale::of(units, Some(calendar)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}
