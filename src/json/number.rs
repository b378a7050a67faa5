//! Reads integers from JSON number text by exact decimal arithmetic, without floating point.

/// The value of a valid JSON number if it is an integer that fits, such as `1.0` and `1e2`.
///
/// Linear in the length of `raw`, for any exponent.
pub(super) fn integer(raw: &str) -> Option<i64> {
    let (negative, raw) = match raw.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, raw),
    };
    let magnitude = match raw.bytes().all(|b| b.is_ascii_digit()) && raw.len() <= 19 {
        true => digits_value(raw.bytes()),
        false => magnitude(raw)?,
    };
    if negative { 0_i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// The value of a number with fraction, exponent or many digits, if an integer below 10^19.
fn magnitude(raw: &str) -> Option<u64> {
    let (mantissa, exponent) = match raw.find(['e', 'E']) {
        Some(at) => (&raw[..at], exponent(&raw[at + 1..])),
        None => (raw, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = || whole.bytes().chain(fraction.bytes());
    let leading = digits().take_while(|&b| b == b'0').count();
    let trailing = digits().rev().take_while(|&b| b == b'0').count();
    let total = whole.len() + fraction.len();
    if leading == total {
        return Some(0);
    }
    // value = significant digits × 10^scale, the last significant digit not being 0
    let significant = total - leading - trailing;
    let scale = exponent.saturating_sub_unsigned(fraction.len() as u64);
    let scale = usize::try_from(scale.saturating_add_unsigned(trailing as u64)).ok()?;
    if significant.saturating_add(scale) > 19 {
        return None;
    }
    let value = digits_value(digits().skip(leading).take(significant));
    value.checked_mul(10_u64.checked_pow(u32::try_from(scale).ok()?)?)
}

/// The value of at most 19 digits, which a `u64` always holds.
fn digits_value(digits: impl Iterator<Item = u8>) -> u64 {
    digits.fold(0, |value, b| value * 10 + u64::from(b - b'0'))
}

/// The exponent after the `e`, clamped to a bound that no mantissa can compensate.
fn exponent(text: &str) -> i64 {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let value = digits
        .bytes()
        .fold(0_i64, |value, b| value.saturating_mul(10).saturating_add(i64::from(b - b'0')));
    if negative { -value } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integral_values_are_integers() {
        let zeros = "0".repeat(1000);
        for (raw, value) in [
            ("0", 0),
            ("-0", 0),
            ("-0.0e5", 0),
            ("0e99999999999999999999999", 0),
            ("1", 1),
            ("1.0", 1),
            ("1e2", 100),
            ("1.5E+1", 15),
            ("-2500e-2", -25),
            ("0.0001e4", 1),
            (&format!("1{zeros}e-1000"), 1),
            (&format!("0.{zeros}7e1001"), 7),
            ("9223372036854775807", i64::MAX),
            ("9223372036854775807.000", i64::MAX),
            ("-9223372036854775808", i64::MIN),
            ("-922337203685477580.8e1", i64::MIN),
            ("1e18", 1_000_000_000_000_000_000),
        ] {
            assert_eq!(integer(raw), Some(value), "{raw}");
        }
    }

    #[test]
    fn fractions_and_out_of_range_numbers_are_not_integers() {
        for raw in [
            "1.5",
            "1e-1",
            "0.1",
            "9223372036854775808",
            "-9223372036854775809",
            "1e19",
            "1e400",
            "18446744073709551616",
            "99999999999999999999999999",
            "-1e999999999999999999999999",
            "1e-999999999999999999999999",
            "12e18",
        ] {
            assert_eq!(integer(raw), None, "{raw}");
        }
    }
}
