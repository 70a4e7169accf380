//! Hints for a wrong word: the known word that was meant, or those that are valid.

/// Names that are common elsewhere, with the names in our files.
const ALIASES: &[(&str, &str)] = &[
    ("fp64", "float64"),
    ("double", "float64"),
    ("fp32", "float32"),
    ("float", "float32"),
    ("fp16", "float16"),
    ("half", "float16"),
    ("bf16", "bfloat16"),
    ("fp8", "float8_e4m3fn"),
    ("long", "int64"),
    ("int", "int32"),
    ("short", "int16"),
    ("char", "int8"),
    ("byte", "uint8"),
    ("mean", "avg"),
    ("average", "avg"),
    ("maximum", "max"),
    ("minimum", "min"),
    ("prod", "product"),
    ("mul", "product"),
    ("or", "bor"),
    ("and", "band"),
    ("xor", "bxor"),
];

/// Returns the known word that is closest to a wrong one, or `None` if none is close enough.
#[must_use]
pub fn did_you_mean<'a>(wrong: &str, known: &[&'a str]) -> Option<&'a str> {
    let lower = wrong.to_lowercase();
    if let Some((_, meant)) = ALIASES.iter().find(|(alias, _)| *alias == lower)
        && let Some(word) = known.iter().find(|word| *word == meant)
    {
        return Some(*word);
    }
    let wrong = plain(wrong);
    let close = wrong.chars().count().max(3) / 3;
    known
        .iter()
        .map(|word| (distance(&wrong, &plain(word)), *word))
        .filter(|(distance, _)| *distance <= close)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// Returns a hint for a wrong word: the word that was meant, or all that are valid.
#[must_use]
pub fn one_of(wrong: &str, known: &[&str]) -> String {
    if let Some(meant) = did_you_mean(wrong, known) {
        return format!("did you mean `{meant}`?");
    }
    match known {
        [] => "nothing fits here".to_owned(),
        [only] => format!("only `{only}` fits here"),
        many => format!("one of {}", many.join(", ")),
    }
}

/// Returns the word in lower case and without separators.
fn plain(word: &str) -> String {
    word.chars()
        .filter(|c| !matches!(c, '_' | '-' | ' '))
        .flat_map(char::to_lowercase)
        .collect()
}

/// Returns the number of edits (insert, delete, replace, swap neighbours) from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<_>, Vec<_>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_other_words_are_not() {
        let ops = ["all_reduce", "all_gather", "broadcast"];
        assert_eq!(did_you_mean("allreduce", &ops), Some("all_reduce"));
        assert_eq!(did_you_mean("boradcast", &ops), Some("broadcast"));
        assert_eq!(did_you_mean("gather_object", &ops), None);
        assert_eq!(
            did_you_mean("bf16", &["float16", "bfloat16"]),
            Some("bfloat16")
        );
        assert_eq!(
            did_you_mean("x", &["y"]),
            Some("y"),
            "one letter is one slip"
        );
        assert_eq!(
            did_you_mean("prod", &ops),
            None,
            "an alias of nothing known here"
        );
    }

    #[test]
    fn a_hint_lists_what_fits_when_nothing_is_close() {
        assert_eq!(one_of("nonsense", &["sum", "avg"]), "one of sum, avg");
        assert_eq!(one_of("nonsense", &["matrix"]), "only `matrix` fits here");
    }
}
