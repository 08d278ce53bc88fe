//! Times of day in places whose offset from UTC never changes. Pure.

/// A place and its offset in minutes.
pub(super) type Place = (&'static str, i64);

/// The places, in order of name.
pub(super) const PLACES: [Place; 6] = [
    ("Delhi", 330),
    ("Honolulu", -600),
    ("Nairobi", 180),
    ("Reykjavik", 0),
    ("Tokyo", 540),
    ("UTC", 0),
];

/// The place of that name, in any case.
pub(super) fn place(name: &str) -> Option<Place> {
    PLACES
        .into_iter()
        .find(|(own, _)| own.eq_ignore_ascii_case(name))
}

/// A moment as it is written in a place (RFC 3339).
pub(super) fn written(unix_seconds: i64, (_, offset): Place) -> String {
    let local = unix_seconds + offset * 60;
    let (day, second) = (local.div_euclid(86_400), local.rem_euclid(86_400));
    let (year, month, date) = civil(day);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let sign = if offset < 0 { '-' } else { '+' };
    let (ahead, by) = (offset.abs() / 60, offset.abs() % 60);
    format!(
        "{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}{sign}{ahead:02}:{by:02}"
    )
}

/// Year, month and day of a day counted from 1970-01-01, in the proleptic Gregorian calendar.
/// Years are counted from March, so that the leap day is the last of its year.
fn civil(day: i64) -> (i64, i64, i64) {
    let day = day + 719_468; // days from 0000-03-01
    let era = day.div_euclid(146_097);
    let of_era = day.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let date = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, date)
}

/// Minutes since midnight of `HH:MM`.
pub(super) fn minutes(text: &str) -> Option<i64> {
    let (hour, minute) = text.split_once(':')?;
    let number = |digits: &str| {
        let is_number = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse::<i64>().ok()).flatten()
    };
    let (hour, minute) = (number(hour)?, number(minute)?);
    (hour < 24 && minute < 60).then_some(hour * 60 + minute)
}

/// A time of day in one place as it is in another, and how many days later it is there.
pub(super) fn convert(time: i64, (_, from): Place, (_, to): Place) -> (String, i64) {
    let there = time - from + to;
    let of_day = there.rem_euclid(1_440);
    let time = format!("{:02}:{:02}", of_day / 60, of_day % 60);
    (time, there.div_euclid(1_440))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_in_every_century() {
        let utc = place("utc").unwrap();
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00+00:00"),
            (951_782_400, "2000-02-29T00:00:00+00:00"),
            (4_107_542_399, "2100-02-28T23:59:59+00:00"),
            (4_107_542_400, "2100-03-01T00:00:00+00:00"),
            (1_785_196_799, "2026-07-27T23:59:59+00:00"),
        ] {
            assert_eq!(written(seconds, utc), text);
        }
        assert_eq!(
            written(0, place("Delhi").unwrap()),
            "1970-01-01T05:30:00+05:30"
        );
        assert_eq!(
            written(0, place("Honolulu").unwrap()),
            "1969-12-31T14:00:00-10:00"
        );
    }

    #[test]
    fn converting_may_change_the_day() {
        let (delhi, tokyo, hawaii) = (
            place("Delhi").unwrap(),
            place("Tokyo").unwrap(),
            place("Honolulu").unwrap(),
        );
        let time = minutes("20:45").unwrap();
        assert_eq!(convert(time, delhi, tokyo), ("00:15".to_owned(), 1));
        assert_eq!(
            convert(minutes("01:00").unwrap(), tokyo, hawaii),
            ("06:00".to_owned(), -1)
        );
        for bad in ["", "1:00", "24:00", "10:60", "+1:00", "10:00:00", "ab:cd"] {
            assert_eq!(minutes(bad), None, "{bad}");
        }
    }
}
