//! `grpc-timeout`: the time for which the client waits for the answer.

use crate::http::{Field, Head};

/// The timeout of a call in milliseconds, rounded up (gRPC over HTTP/2, "Requests"): at most eight
/// digits and a unit. An invalid value sets no deadline.
pub fn timeout_ms(head: &Head<'_>) -> Option<u64> {
    read(str::from_utf8(head.value(Field::GrpcTimeout)?).ok()?)
}

fn read(value: &str) -> Option<u64> {
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => count * 3_600_000,
        "M" => count * 60_000,
        "S" => count * 1000,
        "m" => count,
        "u" => count.div_ceil(1000),
        "n" => count.div_ceil(1_000_000),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_timeout_is_parsed_with_its_unit() {
        for (text, expected) in [
            ("1H", Some(3_600_000)),
            ("2M", Some(120_000)),
            ("3S", Some(3_000)),
            ("99999999m", Some(99_999_999)),
            ("1u", Some(1)),
            ("1500000n", Some(2)),
            ("0m", Some(0)),
            ("100000000m", None),
            ("m", None),
            ("1", None),
            ("1s", None),
            ("-1m", None),
            ("1é", None),
            ("", None),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }
}
