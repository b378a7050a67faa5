//! Sizes and times with units: `1GiB`, `512M`, `5s`; a bare number is bytes or milliseconds.
//!
//! A limit's name determines its unit. A unit of another kind is refused, and so is a decimal unit
//! (`MB`), which would be mistaken for the binary unit.

use super::LimitError;

/// The unit of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes; the name contains `_bytes_`.
    Bytes,
    /// Milliseconds; the name ends with `_ms`.
    Millis,
    /// A number without a unit.
    Count,
}

/// Suffixes of a number of bytes, in lower case.
const SIZES: &[(&str, u64)] = &[
    ("b", 1),
    ("k", 1 << 10),
    ("kib", 1 << 10),
    ("m", 1 << 20),
    ("mib", 1 << 20),
    ("g", 1 << 30),
    ("gib", 1 << 30),
    ("t", 1 << 40),
    ("tib", 1 << 40),
];

/// Suffixes of a time.
const TIMES: &[(&str, u64)] =
    &[("ms", 1), ("s", 1_000), ("m", 60_000), ("min", 60_000), ("h", 3_600_000)];

impl Unit {
    /// The unit of the limit with this name.
    pub fn of(name: &str) -> Unit {
        if name.contains("_bytes_") {
            Unit::Bytes
        } else if name.ends_with("_ms") {
            Unit::Millis
        } else {
            Unit::Count
        }
    }

    /// Reads a whole number with or without a unit of this kind; `_` may stand between digits.
    ///
    /// # Errors
    /// [`LimitError::Unit`] when the unit is of another kind or unknown, [`LimitError::Value`] when
    /// there is no number or the value does not fit 64 bits.
    pub fn read(self, text: &str) -> Result<u64, LimitError> {
        let end = text.find(|c: char| c != '_' && !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(end);
        let number: u64 = digits.replace('_', "").parse().map_err(|_| LimitError::Value)?;
        let unit = unit.to_ascii_lowercase();
        let units = match self {
            Unit::Bytes => SIZES,
            Unit::Millis => TIMES,
            Unit::Count => &[],
        };
        let factor = match units.iter().find(|(name, _)| *name == unit) {
            Some((_, factor)) => *factor,
            None if unit.is_empty() => 1,
            None if unit.bytes().all(|byte| byte.is_ascii_alphabetic()) => {
                return Err(LimitError::Unit);
            }
            None => return Err(LimitError::Value),
        };
        number.checked_mul(factor).ok_or(LimitError::Value)
    }

    /// Examples of values of this kind, for errors.
    pub fn examples(self) -> &'static str {
        match self {
            Unit::Bytes => "a size such as 4096, 64KiB, 512M or 1GiB",
            Unit::Millis => "a time such as 250ms, 5s, 10m or 1h",
            Unit::Count => "a number without a unit",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_read() {
        for (unit, text, value) in [
            (Unit::Bytes, "4_096", 4096),
            (Unit::Bytes, "1b", 1),
            (Unit::Bytes, "64KiB", 64 << 10),
            (Unit::Bytes, "512M", 512 << 20),
            (Unit::Bytes, "512m", 512 << 20),
            (Unit::Bytes, "1GiB", 1 << 30),
            (Unit::Bytes, "2T", 2 << 40),
            (Unit::Millis, "250ms", 250),
            (Unit::Millis, "5s", 5_000),
            (Unit::Millis, "10m", 600_000),
            (Unit::Millis, "1h", 3_600_000),
            (Unit::Millis, "75_000", 75_000),
            (Unit::Count, "10_000", 10_000),
        ] {
            assert_eq!(unit.read(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn wrong_unit_and_invalid_number_give_different_errors() {
        for (unit, text, error) in [
            (Unit::Bytes, "5s", LimitError::Unit),
            (Unit::Bytes, "5MB", LimitError::Unit),
            (Unit::Millis, "5M iB", LimitError::Value),
            (Unit::Millis, "5MiB", LimitError::Unit),
            (Unit::Count, "5k", LimitError::Unit),
            (Unit::Count, "", LimitError::Value),
            (Unit::Count, "many", LimitError::Value),
            (Unit::Bytes, "M", LimitError::Value),
            (Unit::Bytes, "_", LimitError::Value),
            (Unit::Bytes, "1.5G", LimitError::Value),
            (Unit::Bytes, "-1", LimitError::Value),
            (Unit::Bytes, "99999999T", LimitError::Value),
            (Unit::Bytes, "99999999999999999999", LimitError::Value),
        ] {
            assert_eq!(unit.read(text), Err(error), "{text}");
        }
    }

    #[test]
    fn limit_name_determines_its_unit() {
        for (name, unit) in [
            ("body_bytes_max", Unit::Bytes),
            ("write_progress_bytes_min", Unit::Bytes),
            ("drain_ms", Unit::Millis),
            ("tasks_max", Unit::Count),
        ] {
            assert_eq!(Unit::of(name), unit, "{name}");
        }
    }
}
