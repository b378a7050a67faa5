//! RFC 3339 timestamps in UTC with milliseconds, written and read without allocation.

use std::cell::Cell;

thread_local! {
    /// The minute since the epoch that this thread wrote last, and its text up to the seconds:
    /// consecutive timestamps are mostly of the same minute.
    static LAST_WRITTEN: Cell<(u64, [u8; 17])> = const { Cell::new((u64::MAX, [0; 17])) };
}

/// `2026-01-01T00:00:00.000Z` for milliseconds since the Unix epoch (years 1970 to 9999).
#[inline]
pub fn rfc3339(unix_ms: u64) -> [u8; 24] {
    // The format ends with the year 9999, so the `as` below cannot truncate.
    let unix_ms = unix_ms.min(LAST_MS);
    let (minute, ms) = (unix_ms / 60_000, (unix_ms % 60_000) as u32);
    let (last_minute, mut text) = LAST_WRITTEN.get();
    if minute != last_minute {
        text = up_to_seconds(minute as u32);
        LAST_WRITTEN.set((minute, text));
    }
    let [s, f] = [ms / 1000, ms % 1000 / 10].map(pair);
    let last = b'0' + (ms % 10) as u8;
    let mut whole = [0; 24];
    whole[..17].copy_from_slice(&text);
    whole[17..].copy_from_slice(&[s[0], s[1], b'.', f[0], f[1], last, b'Z']);
    whole
}

/// `2026-01-01T00:00:` for minutes since the Unix epoch.
#[cold]
fn up_to_seconds(minutes: u32) -> [u8; 17] {
    let (year, month, day) = civil(minutes / 1_440);
    let (hour, minute) = (minutes % 1_440 / 60, minutes % 60);
    let [c, y, mo, d] = [year / 100, year % 100, month, day].map(pair);
    let [h, mi] = [hour, minute].map(pair);
    [
        c[0], c[1], y[0], y[1], b'-', mo[0], mo[1], b'-', d[0], d[1], b'T', h[0], h[1], b':',
        mi[0], mi[1], b':',
    ]
}

/// 9999-12-31T23:59:59.999Z.
const LAST_MS: u64 = 253_402_300_799_999;

/// Two digits of a number below 100.
#[inline]
fn pair(number: u32) -> [u8; 2] {
    PAIRS[number as usize % 128]
}

/// `00` to `99`; the length is a power of two so that no index is out of bounds.
const PAIRS: [[u8; 2]; 128] = {
    let mut pairs = [[b'?'; 2]; 128];
    let mut at = 0;
    while at < 100 {
        pairs[at] = [b'0' + (at / 10) as u8, b'0' + (at % 10) as u8];
        at += 1;
    }
    pairs
};

/// Days since the epoch to (year, month, day), after Cassio Neri and Lorenz Schneider, "Euclidean
/// affine functions and their application to calendar algorithms" (2022); 32 bits are enough up
/// to the year 9999.
#[inline]
fn civil(days: u32) -> (u32, u32, u32) {
    // Days since 0000-03-01, in quarters.
    let quarters = 4 * (days + 719_468) + 3;
    let (century, of_century) = (quarters / 146_097, quarters % 146_097 / 4);
    let of_four_years = 2_939_745 * u64::from(4 * of_century + 3);
    let (year, of_year) = ((of_four_years >> 32) as u32, of_four_years as u32 / 2_939_745 / 4);
    let month_and_day = 2_141 * of_year + 197_913;
    let (month, day) = (month_and_day >> 16, (month_and_day & 0xffff) / 2_141 + 1);
    // This year begins in March: January and February belong to the next calendar year.
    let is_next = of_year >= 306;
    let (year, month) = (100 * century + year, month);
    if is_next { (year + 1, month - 12, day) } else { (year, month, day) }
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
        for digit in 0..3 {
            ms = ms * 10 + fraction[..length].get(digit).map_or(0, |d| i64::from(d - b'0'));
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

/// Reads timestamps that are mostly of the same minute as the preceding one.
#[cfg(feature = "client")]
#[derive(Default)]
pub struct LastMinute {
    /// `2026-01-01T00:00:`; zeros at first.
    text: [u8; 17],
    ms: u64,
}

#[cfg(feature = "client")]
impl LastMinute {
    /// As [`parse_rfc3339`].
    pub fn parse(&mut self, text: &[u8]) -> Option<u64> {
        let (minute, rest) = text.split_first_chunk::<17>()?;
        if let [
            s @ b'0'..=b'5',
            t @ b'0'..=b'9',
            b'.',
            a @ b'0'..=b'9',
            b @ b'0'..=b'9',
            c @ b'0'..=b'9',
            b'Z',
        ] = rest
        {
            let digit = |byte: &u8| u64::from(byte - b'0');
            let seconds = digit(s) * 10 + digit(t);
            let ms = seconds * 1000 + digit(a) * 100 + digit(b) * 10 + digit(c);
            if *minute != self.text {
                let whole = parse_rfc3339(str::from_utf8(text).ok()?)?;
                // Times before 1970 are 0, in any minute.
                let Some(start) = whole.checked_sub(ms) else { return Some(whole) };
                (self.text, self.ms) = (*minute, start);
            }
            return Some(self.ms + ms);
        }
        parse_rfc3339(str::from_utf8(text).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_round_trip_through_rfc3339() {
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
    fn civil_date_conversion_round_trips_for_every_day() {
        for day in 0..=LAST_MS / 86_400_000 {
            let (year, month, date) = civil(day as u32);
            let twin = days_from_civil(i64::from(year), i64::from(month), i64::from(date));
            assert_eq!(twin, day as i64);
            assert!((1..=12).contains(&month) && (1..=31).contains(&date));
        }
    }

    #[test]
    fn timestamp_offsets_and_fractions_are_parsed() {
        assert_eq!(parse_rfc3339("1970-01-01T01:00:00+01:00"), Some(0));
        assert_eq!(parse_rfc3339("1970-01-01T00:00:00.1239Z"), Some(123));
        assert_eq!(parse_rfc3339("1969-12-31T23:59:59Z"), Some(0));
    }

    #[cfg(feature = "client")]
    #[test]
    fn cached_minute_parses_like_the_full_parser() {
        let mut last = LastMinute::default();
        for text in [
            "2026-01-01T00:00:01.002Z",
            "2026-01-01T00:00:59.999Z",
            "2026-01-01T00:00:60.000Z",
            "2026-01-01T00:00:61.000Z",
            "2026-01-01T00:00:01Z",
            "2026-01-01T00:00:01.002+01:00",
            "2026-01-01T00:01:01.002Z",
            "2026-01-01T00:00:01.00xZ",
            "2026-13-01T00:00:01.002Z",
            "1969-12-31T23:59:59.001Z",
            "1969-12-31T23:59:59.002Z",
            "1970-01-01T00:00:00.000Z",
            "1970-01-01T00:00:00.002Z",
            "2026-01-01T00:00:",
            "",
        ] {
            for _ in 0..2 {
                assert_eq!(last.parse(text.as_bytes()), parse_rfc3339(text), "{text}");
            }
        }
        assert_eq!(last.parse(b"2026-01-01T00:00:01.00\xff"), None);
    }

    #[test]
    fn invalid_timestamps_are_rejected() {
        for text in ["", "2020", "2020-13-01T00:00:00Z", "2020-02-30T00:00:00Z", "2020-01-01"] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
        for text in ["2020-01-01T00:00:00", "2020-01-01T00:00:00.Z", "2020-01-01T00:00:00Zx"] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
        assert_eq!(parse_rfc3339("2020-01-01T00:00:00+0é:00"), None);
    }
}
