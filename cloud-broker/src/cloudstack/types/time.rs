//! Points in time as servers write them.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds since 1970, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From seconds since 1970.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds)
    }

    /// Seconds since 1970.
    pub const fn seconds(self) -> i64 {
        self.0
    }

    /// Later by a duration.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)),
        )
    }

    /// Reads `2031-05-01T10:20:30+0000`; zones with a colon, `Z` and fractions of a second are fine, too.
    pub fn parse(text: &str) -> Option<Self> {
        let (date, clock) = text.trim().split_once(['T', ' '])?;
        let mut date = date.split('-').map(|part| part.parse::<i64>().ok());
        let (year, month, day) = (date.next()??, date.next()??, date.next()??);
        let zone_at = clock.find(['+', '-', 'Z', 'z'])?;
        let (clock, zone) = clock.split_at(zone_at);
        let seconds = clock_seconds(clock.split('.').next()?)?;
        let plausible = (1..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
        plausible
            .then(|| Self(days(year, month, day) * 86_400 + seconds))
            .map(|at| Self(at.0 - zone_seconds(zone)))
    }

    /// Reads the date of an HTTP header, `Sun, 06 Nov 1994 08:49:37 GMT`.
    pub fn parse_http(text: &str) -> Option<Self> {
        const MONTHS: [&str; 12] = [
            "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
        ];
        let mut parts = text.split_once(", ")?.1.split(' ');
        let day = parts.next()?.parse().ok()?;
        let month = parts.next()?;
        let month = i64::try_from(MONTHS.iter().position(|name| *name == month)?).ok()? + 1;
        let year = parts.next()?.parse().ok()?;
        Some(Self(
            days(year, month, day) * 86_400 + clock_seconds(parts.next()?)?,
        ))
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self(seconds(after)),
            Err(before) => Self(-seconds(before.duration())),
        }
    }
}

impl fmt::Display for Timestamp {
    /// `2031-05-01T10:20:30Z`
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (day, second) = (self.0.div_euclid(86_400), self.0.rem_euclid(86_400));
        let (year, month, date) = civil(day);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(
            formatter,
            "{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}Z"
        )
    }
}

fn clock_seconds(text: &str) -> Option<i64> {
    let mut parts = text.split(':').map(|part| part.parse::<i64>().ok());
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    Some(hour * 3600 + minute * 60 + second)
}

/// Offset of `Z`, `+0530`, `+05:30` or `+05`; what can't be read counts as UTC.
fn zone_seconds(text: &str) -> i64 {
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let digits: Vec<i64> = text
        .bytes()
        .filter(u8::is_ascii_digit)
        .map(|digit| i64::from(digit - b'0'))
        .collect();
    match digits.as_slice() {
        [h1, h2, m1, m2] => sign * ((h1 * 10 + h2) * 3600 + (m1 * 10 + m2) * 60),
        [h1, h2] => sign * (h1 * 10 + h2) * 3600,
        _ => 0,
    }
}

/// Days since 1970-01-01 of a date in the Gregorian calendar, counted in eras of 400 years that begin in March.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Year, month and day of a count of days since 1970-01-01.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}
