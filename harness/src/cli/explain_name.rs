//! `allranks explain NAME`: what the name of a hang kind or of a mismatch class means.

use std::io::{self, Write};

use allranks_diagnose::{advice, refutation};
use allranks_model::diagnosis::HangKind;
use allranks_oracle::{Class, stack_classes};

/// Writes the meaning of a name. Returns false, and writes nothing, if it is neither a kind nor a class.
///
/// # Errors
/// The output cannot be written.
pub fn write_meaning(name: &str, out: &mut impl Write) -> io::Result<bool> {
    let kind: Option<HangKind> = name.parse().ok();
    if let Some(kind) = kind {
        write_kind(kind, out)?;
    }
    let of_ops = Class::every()
        .into_iter()
        .find(|class| class.name() == name);
    if let Some(class) = &of_ops {
        writeln!(out, "class of a mismatch: {name}\n  {}", class.sentence())?;
    }
    let above = stack_classes().find(|(class, _)| *class == name);
    if let Some((_, sentence)) = above {
        let text = "class of a mismatch of a layer above c10d";
        writeln!(out, "{text}: {name}\n  {sentence}")?;
    }
    Ok(kind.is_some() || of_ops.is_some() || above.is_some())
}

fn write_kind(kind: HangKind, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "kind of a hang: {kind}\n  {}", kind.meaning())?;
    writeln!(out, "  refuted if:\n    - {}", refutation(kind))?;
    let advice = advice(kind);
    if !advice.is_empty() {
        writeln!(out, "  what to try:")?;
    }
    advice
        .iter()
        .try_for_each(|line| writeln!(out, "    - {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(name: &str) -> Option<String> {
        let mut out = Vec::new();
        let is_known = write_meaning(name, &mut out).unwrap();
        is_known.then(|| String::from_utf8(out).unwrap())
    }

    #[test]
    fn kinds_and_classes_have_a_meaning() {
        let kind = meaning("collective-skipped").unwrap();
        assert!(kind.contains("does not call a collective"), "{kind}");
        assert!(kind.contains("what to try"), "{kind}");
        let class = meaning("own-times-world").unwrap();
        assert!(class.contains("no communication"), "{class}");
        let both = meaning("stale-sentinel").unwrap();
        assert!(both.contains("before the call"), "{both}");
        let above = meaning("not-permuted").unwrap();
        assert!(above.contains("above c10d"), "{above}");
    }

    #[test]
    fn other_words_have_none() {
        assert_eq!(meaning("collectives/smoke"), None);
        assert_eq!(meaning(""), None);
    }
}
