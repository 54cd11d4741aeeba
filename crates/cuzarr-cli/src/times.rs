//! Dates and durations as text, in NumPy's form.
//!
//! Days become dates by Hinnant's algorithm: <https://howardhinnant.github.io/date_algorithms.html#civil_from_days>.

use cuzarr::meta::{DataType, TimeUnit};

/// NumPy's NaT: a missing date or duration.
pub const NAT: i64 = i64::MIN;

/// The time unit in which elements of `datetime64` or `timedelta64` count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    is_date: bool,
    unit: TimeUnit,
    /// Number of units in one step of the elements: 10 for `datetime64[10us]`.
    factor: u32,
}

impl Times {
    /// Returns the time unit of a data type; `None` for types without one.
    pub fn of(data_type: &DataType) -> Option<Times> {
        match *data_type {
            DataType::DateTime64 { unit, scale_factor } => Some(Times { is_date: true, unit, factor: scale_factor }),
            DataType::TimeDelta64 { unit, scale_factor } => Some(Times { is_date: false, unit, factor: scale_factor }),
            _ => None,
        }
    }

    /// Returns the length of one step as text: `ns`, `10us`.
    pub fn unit(self) -> String {
        let factor = if self.factor == 1 { String::new() } else { self.factor.to_string() };
        format!("{factor}{}", self.unit.name())
    }

    /// Formats a number of steps as a date, such as `2024-02-29T12:30`, or as a duration, such as `90 s`.
    pub fn text(self, steps: i128) -> String {
        if steps == i128::from(NAT) {
            return "NaT".to_string();
        }
        let count = steps * i128::from(self.factor);
        match (self.is_date, self.unit) {
            (false, _) | (_, TimeUnit::Generic) => format!("{count} {}", self.unit.name()),
            (true, TimeUnit::Year) => year(1970 + count),
            (true, TimeUnit::Month) => {
                format!("{}-{:02}", year(1970 + count.div_euclid(12)), count.rem_euclid(12) + 1)
            }
            (true, TimeUnit::Week) => date(count * 7),
            (true, TimeUnit::Day) => date(count),
            (true, TimeUnit::Hour) => moment(count * 3600, 1),
            (true, TimeUnit::Minute) => moment(count * 60, 2),
            (true, TimeUnit::Second) => moment(count, 3),
            (true, TimeUnit::Millisecond) => with_fraction(count, 3),
            (true, TimeUnit::Microsecond) => with_fraction(count, 6),
            (true, TimeUnit::Nanosecond) => with_fraction(count, 9),
            (true, TimeUnit::Picosecond) => with_fraction(count, 12),
            (true, TimeUnit::Femtosecond) => with_fraction(count, 15),
            (true, TimeUnit::Attosecond) => with_fraction(count, 18),
        }
    }
}

fn year(year: i128) -> String {
    if year < 0 { format!("-{:04}", -year) } else { format!("{year:04}") }
}

/// Formats the date that lies `days` after 1970-01-01.
fn date(days: i128) -> String {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // In this algorithm, years begin in March.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let first_months = i128::from(month <= 2);
    format!("{}-{month:02}-{day:02}", year(year_of_era + era * 400 + first_months))
}

/// Formats a date and the first `parts` of hours, minutes and seconds.
fn moment(seconds: i128, parts: usize) -> String {
    let second = seconds.rem_euclid(86_400);
    let time = [second / 3600, second / 60 % 60, second % 60].map(|part| format!("{part:02}"));
    format!("{}T{}", date(seconds.div_euclid(86_400)), time[..parts].join(":"))
}

fn with_fraction(count: i128, digits: u32) -> String {
    let per_second = 10i128.pow(digits);
    let fraction = count.rem_euclid(per_second);
    format!("{}.{fraction:0width$}", moment(count.div_euclid(per_second), 3), width = digits as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_durations_have_the_text_of_numpy() {
        // str(np.datetime64(steps, (unit, factor))), by NumPy 2.
        for (unit, factor, steps, expected) in [
            (TimeUnit::Year, 1, 54, "2024"),
            (TimeUnit::Month, 1, 649, "2024-02"),
            (TimeUnit::Week, 1, 2825, "2024-02-22"),
            (TimeUnit::Day, 1, 19_782, "2024-02-29"),
            (TimeUnit::Day, 1, -1, "1969-12-31"),
            (TimeUnit::Hour, 1, -1, "1969-12-31T23"),
            (TimeUnit::Minute, 15, 3, "1970-01-01T00:45"),
            (TimeUnit::Second, 1, 1_709_209_800, "2024-02-29T12:30:00"),
            (TimeUnit::Millisecond, 1, -1, "1969-12-31T23:59:59.999"),
            (TimeUnit::Nanosecond, 1, i64::MAX.into(), "2262-04-11T23:47:16.854775807"),
            (TimeUnit::Attosecond, 1, 1, "1970-01-01T00:00:00.000000000000000001"),
            (TimeUnit::Nanosecond, 1, NAT.into(), "NaT"),
        ] {
            assert_eq!(Times { is_date: true, unit, factor }.text(steps), expected, "{unit:?}");
        }
        let spans = Times { is_date: false, unit: TimeUnit::Microsecond, factor: 10 };
        assert_eq!((spans.text(-3), spans.unit()), ("-30 us".to_string(), "10us".to_string()));
    }
}
