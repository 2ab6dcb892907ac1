//! Suggestions for a misspelt name.

/// Maximum number of names that an error lists.
const LISTED_MAX: usize = 24;

/// The known name with the smallest distance to `name`, at most a third of its length.
pub fn closest<'a>(name: &str, known: &'a [impl AsRef<str>]) -> Option<&'a str> {
    let len = name.chars().count();
    let limit = (len / 3).max(1);
    // The distance is at least the difference of the lengths: a long name is compared with none.
    let similar = known.iter().map(AsRef::as_ref).filter(|candidate: &&str| {
        let difference = candidate.chars().count().abs_diff(len);
        difference <= limit
    });
    let distances = similar.map(|candidate| (distance(name, candidate), candidate));
    distances
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// The known names, for an error message.
pub(super) fn listing(known: &[String]) -> String {
    match known.len() {
        0 => "this value has no fields".to_owned(),
        len if len > LISTED_MAX => format!("known fields: {}, …", known[..LISTED_MAX].join(", ")),
        _ => format!("known fields: {}", known.join(", ")),
    }
}

/// Levenshtein distance, case-insensitive.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.to_lowercase().chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_gets_a_suggestion_and_an_unrelated_name_does_not() {
        let known: Vec<String> = ["command", "args", "workingDir"].map(String::from).to_vec();
        assert_eq!(closest("comand", &known), Some("command"));
        assert_eq!(closest("WORKINGDIR", &known), Some("workingDir"));
        assert_eq!(closest("replicas", &known), None);
    }

    #[test]
    fn distance_counts_single_letter_edits() {
        for (a, b, want) in [
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("same", "same", 0),
            ("abc", "", 3),
        ] {
            assert_eq!(distance(a, b), want, "{a} {b}");
        }
    }
}
