//! Wall clock time as CloudStack writes it. The only place that reads the clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp(i64);

impl Stamp {
    /// The present moment.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the clock")]
    pub(crate) fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    /// This moment and some time.
    pub(crate) fn plus(self, time: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)),
        )
    }

    /// Milliseconds since an earlier moment, 0 when it is not earlier.
    pub(crate) fn since(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }

    /// `2031-05-01T10:20:30+0000`: numeric zone without colon, as in every answer.
    pub(crate) fn text(self) -> String {
        let seconds = self.0.div_euclid(1000);
        let (year, month, day) = civil(seconds.div_euclid(86400));
        let rest = seconds.rem_euclid(86400);
        format!(
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}+0000",
            rest / 3600,
            rest / 60 % 60,
            rest % 60
        )
    }

    /// Reads `expires` and times of a seed: a zone is needed, `Z`, `+0000` or `+00:00`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (stamp, zone) = text.split_at_checked(19)?;
        let mut numbers = stamp.split(['-', 'T', ':']).map(str::parse::<i64>);
        let mut next = || numbers.next().and_then(Result::ok);
        let (year, month, day) = (next()?, next()?, next()?);
        let (hour, minute, second) = (next()?, next()?, next()?);
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return None;
        }
        let at = days(year, month, day) * 86400 + hour * 3600 + minute * 60 + second - offset(zone)?;
        Some(Self(at * 1000))
    }
}

/// Seconds east of UTC.
fn offset(zone: &str) -> Option<i64> {
    if zone == "Z" {
        return Some(0);
    }
    let sign = match zone.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let digits: String = zone.get(1..)?.chars().filter(|c| *c != ':').collect();
    let (hours, minutes) = digits.split_at_checked(2)?;
    if digits.len() != 4 {
        return None;
    }
    Some(sign * (hours.parse::<i64>().ok()? * 3600 + minutes.parse::<i64>().ok()? * 60))
}

/// Days since 1970 of a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The date of a day since 1970.
fn civil(day: i64) -> (i64, i64, i64) {
    let z = day + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::epoch("1970-01-01T00:00:00Z", 0)]
    #[case::leap_day("2024-02-29T12:00:00+0000", 1_709_208_000_000)]
    #[case::zone_with_colon("2024-02-29T14:00:00+02:00", 1_709_208_000_000)]
    fn a_time_with_a_zone_is_read_and_written(#[case] text: &str, #[case] millis: i64) {
        let stamp = Stamp::parse(text).unwrap();
        assert_eq!(stamp.0, millis);
        assert_eq!(Stamp::parse(&stamp.text()), Some(stamp));
    }

    #[rstest]
    #[case::word("tomorrow")]
    #[case::no_zone("2024-02-29T12:00:00")]
    #[case::half_zone("2024-02-29T12:00:00+02")]
    fn a_time_without_a_zone_is_refused(#[case] text: &str) {
        assert_eq!(Stamp::parse(text), None);
    }
}
