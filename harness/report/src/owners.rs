//! Reads owners files, which have the form of CODEOWNERS: a pattern and owners on each line. The last matching line counts. A
//! pattern is compared with a check's case, its requirements, and its column (`cuda/nccl/ws4`).

use globset::{GlobBuilder, GlobMatcher};

/// The lines of an owners file.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    rules: Vec<(GlobMatcher, Vec<String>)>,
}

/// Why an owners file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct OwnersError {
    /// Number of the line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub why: String,
}

impl Owners {
    /// Parses an owners file. Empty lines and lines that begin with `#` are ignored.
    ///
    /// # Errors
    /// A line has no owner, or an invalid pattern.
    pub fn parse(text: &str) -> Result<Self, OwnersError> {
        let mut rules = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let error = |why: String| OwnersError {
                line: index + 1,
                why,
            };
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut words = line.split_whitespace();
            let pattern = words.next().unwrap_or_default();
            let owners: Vec<String> = words
                .take_while(|word| !word.starts_with('#'))
                .map(str::to_owned)
                .collect();
            if owners.is_empty() {
                return Err(error(format!("`{pattern}` has no owner")));
            }
            // As in CODEOWNERS, a folder matches everything below it.
            let glob = match pattern.strip_suffix('/') {
                Some(folder) => format!("{folder}/**"),
                None => pattern.to_owned(),
            };
            let glob = GlobBuilder::new(&glob).literal_separator(true).build();
            let glob = glob.map_err(|problem| error(problem.to_string()))?;
            rules.push((glob.compile_matcher(), owners));
        }
        Ok(Self { rules })
    }

    /// Returns the owners of the last line that matches one of the names; an empty list if none does.
    #[must_use]
    pub fn of<'a>(&self, names: impl IntoIterator<Item = &'a str> + Clone) -> &[String] {
        let is_match = |glob: &GlobMatcher| names.clone().into_iter().any(|one| glob.is_match(one));
        let last = self.rules.iter().rev().find(|(glob, _)| is_match(glob));
        last.map_or(&[], |(_, owners)| owners)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_that_matches_counts() {
        let owners = Owners::parse(
            "# all\n** @everyone\ncollectives/ @coll\nCOLL-01* @one @two # a note\ncuda/nccl/* @nccl\n",
        )
        .unwrap();
        let of = |names: &[&'static str]| owners.of(names.iter().copied()).to_vec();
        assert_eq!(of(&["p2p/pairs", "P2P-001", "cpu/gloo/ws2"]), ["@everyone"]);
        assert_eq!(of(&["collectives/all_reduce/sizes"]), ["@coll"]);
        assert_eq!(of(&["collectives/x", "COLL-014"]), ["@one", "@two"]);
        assert_eq!(
            of(&["collectives/x", "COLL-014", "cuda/nccl/ws4"]),
            ["@nccl"]
        );
        assert!(Owners::default().of(["a"]).is_empty());
    }

    #[test]
    fn a_line_that_says_nothing_is_an_error_with_its_number() {
        let error = |text: &str| Owners::parse(text).unwrap_err().to_string();
        assert_eq!(error("a @x\n\nb\n"), "line 3: `b` has no owner");
        assert!(error("a[ @x").starts_with("line 1: "));
    }
}
