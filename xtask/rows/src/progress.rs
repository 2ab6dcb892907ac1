//! Lines of progress: a bar by the expected time of the groups. Pure.

/// Characters of the bar.
const WIDTH: u64 = 24;

/// The line at the start of a group, with the expected seconds of the groups before it and of all groups.
pub fn line(done: u64, total: u64, group: &str) -> String {
    let full = WIDTH * done / total.max(1);
    let bar: String = (0..WIDTH)
        .map(|cell| if cell < full { '█' } else { '░' })
        .collect();
    let left = (total - done.min(total)).div_ceil(60);
    format!("{bar} {group}, about {left} min left")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_shows_the_share_of_the_expected_time() {
        let empty = "░".repeat(24);
        assert_eq!(
            line(0, 121, "unary"),
            format!("{empty} unary, about 3 min left")
        );
        let half = "█".repeat(12) + &"░".repeat(12);
        assert_eq!(
            line(60, 120, "flood"),
            format!("{half} flood, about 1 min left")
        );
    }
}
