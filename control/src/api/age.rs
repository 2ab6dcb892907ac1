//! Ages in kubectl's format (`duration.HumanDuration`).

use k8s_openapi::jiff::Timestamp;

/// The time since `since`, such as `5m30s`; `0s` if it lies in the future.
pub fn age(since: Timestamp, now: Timestamp) -> String {
    of_seconds(u64::try_from(now.as_second() - since.as_second()).unwrap_or(0))
}

/// A time in seconds, such as `5m30s`.
pub fn of_seconds(seconds: u64) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    const YEAR: u64 = 365 * DAY;
    let (minutes, hours, days, years) = (
        seconds / MINUTE,
        seconds / HOUR,
        seconds / DAY,
        seconds / YEAR,
    );
    if seconds < 2 * MINUTE {
        format!("{seconds}s")
    } else if minutes < 10 {
        pair(minutes, 'm', seconds % MINUTE, 's')
    } else if hours < 3 {
        format!("{minutes}m")
    } else if hours < 8 {
        pair(hours, 'h', minutes % 60, 'm')
    } else if hours < 48 {
        format!("{hours}h")
    } else if days < 8 {
        pair(days, 'd', hours % 24, 'h')
    } else if years < 2 {
        format!("{days}d")
    } else if years < 8 {
        pair(years, 'y', days % 365, 'd')
    } else {
        format!("{years}y")
    }
}

fn pair(big: u64, big_unit: char, small: u64, small_unit: char) -> String {
    if small == 0 {
        format!("{big}{big_unit}")
    } else {
        format!("{big}{big_unit}{small}{small_unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_the_format_of_kubectl() {
        for (seconds, want) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (330, "5m30s"),
            (3_600, "60m"),
            (12_000, "3h20m"),
            (90_000, "25h"),
            (200_000, "2d7h"),
            (86_400 * 41, "41d"),
            (86_400 * 800, "2y70d"),
        ] {
            assert_eq!(of_seconds(seconds), want);
        }
        assert_eq!(
            age(Timestamp::from_second(5).unwrap(), Timestamp::UNIX_EPOCH),
            "0s"
        );
    }
}
