//! HTTP dates (RFC 9110 §5.6.7).
//!
//! Written as IMF-fixdate only; read in all three forms, with every field checked: a date that
//! no calendar has is no date. Years 1970 to 9999, proleptic Gregorian, seconds since 1970.

const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

const DAY_S: u64 = 86_400;

/// 9999-12-31T23:59:59Z, the last second that four digits of year can name.
const LAST_S: u64 = 253_402_300_799;

/// Renders `unix_s` as `Sun, 06 Nov 1994 08:49:37 GMT`; later than year 9999 is that year's end.
pub fn imf_fixdate(unix_s: u64) -> [u8; 29] {
    let unix_s = unix_s.min(LAST_S);
    let (days, second) = (unix_s / DAY_S, unix_s % DAY_S);
    let (year, month, day) = civil(days);
    let mut out = *b"Sun, 06 Nov 1994 08:49:37 GMT";
    // 1970-01-01 was a Thursday.
    out[..3].copy_from_slice(DAYS[((days + 4) % 7) as usize].as_bytes());
    out[8..11].copy_from_slice(MONTHS[month as usize - 1].as_bytes());
    two_digits(&mut out[5..7], day);
    two_digits(&mut out[12..14], year / 100);
    two_digits(&mut out[14..16], year % 100);
    two_digits(&mut out[17..19], second / 3600);
    two_digits(&mut out[20..22], second / 60 % 60);
    two_digits(&mut out[23..25], second % 60);
    out
}

/// Reads an HTTP date in any of its three forms, or `None`.
///
/// IMF-fixdate, `Sunday, 06-Nov-94 08:49:37 GMT` (years 70 to 99 are 19xx, others 20xx) and
/// `Sun Nov  6 08:49:37 1994`. Names are case-sensitive. The day of the week must be a day of
/// the week; that it fits the date is not asked.
pub fn parse_imf_fixdate(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok().filter(|t| t.is_ascii())?;
    let comma = text.find(',');
    match comma {
        Some(3) => imf(text),
        Some(_) => rfc850(text),
        None => asctime(text),
    }
}

fn imf(text: &str) -> Option<u64> {
    if text.len() != 29 || !text.ends_with(" GMT") || !is_day_name(&text[..3]) {
        return None;
    }
    let separators = [(4, " "), (7, " "), (11, " "), (16, " ")];
    if separators.iter().any(|&(at, s)| &text[at..at + 1] != s) {
        return None;
    }
    let (day, month) = (number(&text[5..7])?, month(&text[8..11])?);
    seconds(number(&text[12..16])?, month, day, &text[17..25])
}

fn rfc850(text: &str) -> Option<u64> {
    let (day_name, rest) = text.split_once(", ")?;
    let long_names = ["day", "day", "sday", "nesday", "rsday", "day", "urday"];
    let is_long = DAYS
        .iter()
        .zip(long_names)
        .any(|(d, rest)| day_name.strip_prefix(d).is_some_and(|tail| tail == rest));
    if !is_long || rest.len() != 22 || !rest.ends_with(" GMT") || rest.as_bytes()[9] != b' ' {
        return None;
    }
    if rest.as_bytes()[2] != b'-' || rest.as_bytes()[6] != b'-' {
        return None;
    }
    let (day, month, short) = (number(&rest[..2])?, month(&rest[3..6])?, number(&rest[7..9])?);
    let year = if short < 70 { 2000 + short } else { 1900 + short };
    seconds(year, month, day, &rest[10..18])
}

fn asctime(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    if bytes.len() != 24 || [3, 7, 10, 19].iter().any(|&at| bytes[at] != b' ') {
        return None;
    }
    if !is_day_name(&text[..3]) {
        return None;
    }
    let day = if bytes[8] == b' ' { number(&text[9..10])? } else { number(&text[8..10])? };
    seconds(number(&text[20..24])?, month(&text[4..7])?, day, &text[11..19])
}

fn is_day_name(text: &str) -> bool {
    DAYS.contains(&text)
}

fn month(text: &str) -> Option<u64> {
    Some(MONTHS.iter().position(|&m| m == text)? as u64 + 1)
}

/// Digits only; `str::parse` would take a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

/// `time` is `HH:MM:SS`; second 60, a leap second, counts as the next minute's first.
fn seconds(year: u64, month: u64, day: u64, time: &str) -> Option<u64> {
    let bytes = time.as_bytes();
    if bytes.len() != 8 || bytes[2] != b':' || bytes[5] != b':' {
        return None;
    }
    let (hour, minute, second) = (number(&time[..2])?, number(&time[3..5])?, number(&time[6..])?);
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days_in_month = match month {
        2 => 28 + u64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if year < 1970 || day == 0 || day > days_in_month || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    Some(days_since_1970(year, month, day) * DAY_S + hour * 3600 + minute * 60 + second)
}

/// Days from 1970-01-01; years begin in March so that the leap day is the last of its year.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    // 719_468 days lie between 0000-03-01 and 1970-01-01.
    365 * year + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

/// Year, month and day of a day counted from 1970-01-01; the inverse of [`days_since_1970`].
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

fn two_digits(out: &mut [u8], value: u64) {
    out[0] = b'0' + (value / 10 % 10) as u8;
    out[1] = b'0' + (value % 10) as u8;
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE_S: u64 = 784_111_777;

    #[test]
    fn rfc9110_5_6_7_the_three_forms() {
        assert_eq!(&imf_fixdate(EXAMPLE_S), b"Sun, 06 Nov 1994 08:49:37 GMT");
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(parse_imf_fixdate(text.as_bytes()), Some(EXAMPLE_S), "{text}");
        }
    }

    #[test]
    fn edges_of_the_calendar() {
        assert_eq!(&imf_fixdate(0), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(&imf_fixdate(951_782_400), b"Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(&imf_fixdate(LAST_S), b"Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(imf_fixdate(u64::MAX), imf_fixdate(LAST_S));
    }

    #[test]
    fn no_dates() {
        for text in [
            "",
            ",",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 GMTx",
            "Sun, 31 Apr 1994 08:49:37 GMT",
            "Sun, 29 Feb 1900 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov +994 08:49:37 GMT",
            "sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1969 08:49:37 GMT",
            "Sun,x06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Sunsday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 19 4",
            "Sun Nov 06 08-49-37 1994",
            "Ŝun, 06 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(parse_imf_fixdate(text.as_bytes()), None, "{text}");
        }
    }
}
