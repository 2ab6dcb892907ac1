//! Names close to a misspelt one.

/// Most names that an error lists.
const LISTED_MAX: usize = 24;

/// The known name closest to `name`, if any is close enough to be meant.
pub(super) fn nearest<'a>(name: &str, known: &'a [String]) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).max(1);
    let distances = known
        .iter()
        .map(|candidate| (distance(name, candidate), candidate.as_str()));
    distances
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// The known names, for people.
pub(super) fn listing(known: &[String]) -> String {
    match known.len() {
        0 => "this value has no fields".to_owned(),
        len if len > LISTED_MAX => format!("known here: {}, …", known[..LISTED_MAX].join(", ")),
        _ => format!("known here: {}", known.join(", ")),
    }
}

/// Levenshtein distance in letters, blind to case.
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
    fn a_typing_mistake_finds_its_name_and_a_foreign_word_none() {
        let known: Vec<String> = ["command", "args", "workingDir"].map(String::from).to_vec();
        assert_eq!(nearest("comand", &known), Some("command"));
        assert_eq!(nearest("WORKINGDIR", &known), Some("workingDir"));
        assert_eq!(nearest("replicas", &known), None);
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
