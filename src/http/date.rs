//! HTTP dates (RFC 9110 §5.6.7).
//!
//! Dates are written as IMF-fixdate only. A crate reads all three forms and rejects a date that
//! does not exist or has a wrong day of the week. Years 1970 to 9999, in seconds since 1970.

use std::time::UNIX_EPOCH;

const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

const DAY_S: u64 = 86_400;

/// 9999-12-31T23:59:59Z, the last second of a year with four digits.
const LAST_S: u64 = 253_402_300_799;

/// Renders `unix_s` as `Sun, 06 Nov 1994 08:49:37 GMT`; a later time is rendered as the end of
/// 9999.
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

/// Reads an HTTP date, in seconds since 1970: IMF-fixdate, `Sunday, 06-Nov-94 08:49:37 GMT` (years
/// 70 to 99 are 19xx, others 20xx) or `Sun Nov 6 08:49:37 1994`. `None`: not a valid date.
pub fn parse(text: &[u8]) -> Option<u64> {
    let date = httpdate::parse_http_date(std::str::from_utf8(text).ok()?).ok()?;
    Some(date.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

/// Year, month and day for a number of days since 1970-01-01. In the calculation a year begins in
/// March, so that the leap day is its last day.
fn civil(days: u64) -> (u64, u64, u64) {
    // 719_468 days are between 0000-03-01 and 1970-01-01.
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
    fn rfc9110_5_6_7_all_three_date_forms_are_parsed() {
        assert_eq!(&imf_fixdate(EXAMPLE_S), b"Sun, 06 Nov 1994 08:49:37 GMT");
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(parse(text.as_bytes()), Some(EXAMPLE_S), "{text}");
        }
    }

    #[test]
    fn imf_fixdate_is_correct_at_calendar_edges() {
        assert_eq!(&imf_fixdate(0), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(&imf_fixdate(951_782_400), b"Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(&imf_fixdate(LAST_S), b"Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(imf_fixdate(u64::MAX), imf_fixdate(LAST_S));
    }

    #[test]
    fn invalid_dates_are_rejected() {
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
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:60 GMT",
            "sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1969 08:49:37 GMT",
            "Sun,x06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Sunsday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 19 4",
            "Sun Nov 06 08-49-37 1994",
            "Ŝun, 06 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
