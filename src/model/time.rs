//! RFC 3339 timestamps in UTC with milliseconds, written and read without allocation.

/// `2026-01-01T00:00:00.000Z` for milliseconds since the Unix epoch (years 1970 to 9999).
pub fn rfc3339(unix_ms: u64) -> [u8; 24] {
    let (seconds, ms) = (unix_ms / 1000, unix_ms % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let mut text = *b"0000-00-00T00:00:00.000Z";
    let mut put = |at: usize, digits: usize, mut value: u64| {
        for place in (at..at + digits).rev() {
            text[place] = b'0' + (value % 10) as u8;
            value /= 10;
        }
    };
    put(0, 4, year);
    put(5, 2, month);
    put(8, 2, day);
    put(11, 2, second / 3600);
    put(14, 2, second / 60 % 60);
    put(17, 2, second % 60);
    put(20, 3, ms);
    text
}

/// Days since the epoch to (year, month, day), after Howard Hinnant's `civil_from_days`.
fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + u64::from(month <= 2), month, day)
}

fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let yoe = y - era * 400;
    let doy = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719_468
}

/// Reads an RFC 3339 timestamp with any offset; milliseconds since the epoch, rounded down.
///
/// Times before 1970 become 0. `None` when the text is not a timestamp.
pub fn parse_rfc3339(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = bytes.get(from..to)?;
        digits.iter().try_fold(0, |n, d| d.is_ascii_digit().then(|| n * 10 + i64::from(d - b'0')))
    };
    let is = |at: usize, set: &[u8]| bytes.get(at).is_some_and(|b| set.contains(b));
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let separated = is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":");
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let month_days = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let dated = (1..=12).contains(&month) && (1..=month_days).contains(&day);
    if !separated || !dated || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut at = 19;
    let mut ms = 0;
    if is(at, b".") {
        let fraction = &bytes[at + 1..];
        let length = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
        if length == 0 || length > 9 {
            return None;
        }
        for place in 0..3 {
            ms = ms * 10 + fraction[..length].get(place).map_or(0, |d| i64::from(d - b'0'));
        }
        at += 1 + length;
    }
    let offset_minutes = match bytes.get(at)? {
        b'Z' | b'z' => (bytes.len() == at + 1).then_some(0)?,
        sign @ (b'+' | b'-') => {
            let (h, m) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
            let fits = is(at + 3, b":") && bytes.len() == at + 6 && h < 24 && m < 60;
            fits.then_some(if *sign == b'+' { h * 60 + m } else { -(h * 60 + m) })?
        }
        _ => return None,
    };
    let days = days_from_civil(year, month, day);
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second - offset_minutes * 60;
    Some(u64::try_from(seconds * 1000 + ms).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_instants_read_back() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_123, "2000-02-29T00:00:00.123Z"),
            (1_767_225_599_999, "2025-12-31T23:59:59.999Z"),
            (253_402_300_799_000, "9999-12-31T23:59:59.000Z"),
        ] {
            assert_eq!(std::str::from_utf8(&rfc3339(ms)), Ok(text));
            assert_eq!(parse_rfc3339(text), Some(ms));
        }
    }

    #[test]
    fn offsets_and_fractions_are_understood() {
        assert_eq!(parse_rfc3339("1970-01-01T01:00:00+01:00"), Some(0));
        assert_eq!(parse_rfc3339("1970-01-01T00:00:00.1239Z"), Some(123));
        assert_eq!(parse_rfc3339("1969-12-31T23:59:59Z"), Some(0));
    }

    #[test]
    fn what_is_no_timestamp_is_refused() {
        for text in ["", "2020", "2020-13-01T00:00:00Z", "2020-02-30T00:00:00Z", "2020-01-01"] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
        for text in ["2020-01-01T00:00:00", "2020-01-01T00:00:00.Z", "2020-01-01T00:00:00Zx"] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
        assert_eq!(parse_rfc3339("2020-01-01T00:00:00+0é:00"), None);
    }
}
