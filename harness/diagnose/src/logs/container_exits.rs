//! Reads how containers ended: `trainer-0-1 exited with code 0`, of `docker compose`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use super::pattern::pattern;

static EXITED: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"^(?:Container )?([\w.-]*\d[\w.-]*) exited with code (\d+)\b"));

/// The exit code of each container.
#[derive(Clone, Debug, Default)]
pub(super) struct ContainerExits {
    pub(super) codes: BTreeMap<String, i32>,
    /// The container that ended first.
    pub(super) first: Option<String>,
}

impl ContainerExits {
    /// Reads the next line.
    pub(super) fn read(&mut self, text: &str) {
        if !text.contains(" exited with code ") {
            return;
        }
        if let Some(found) = EXITED.as_ref().and_then(|line| line.captures(text))
            && let Ok(code) = found[2].parse::<i32>()
        {
            // The shell's number for a signal. Who ends after another one may have been stopped for that.
            let code = match (code > 128, &self.first) {
                (true, None) => 128 - code,
                (true, Some(_)) => -15,
                (false, _) => code,
            };
            self.first.get_or_insert_with(|| found[1].to_owned());
            self.codes.insert(found[1].to_owned(), code);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_are_read_in_their_order() {
        let mut exits = ContainerExits::default();
        exits.read("trainer-0-1 exited with code 0");
        exits.read("trainer-1-1 exited with code 137");
        exits.read("the job exited with code 1");
        assert_eq!(exits.first.as_deref(), Some("trainer-0-1"));
        assert_eq!(exits.codes.into_values().collect::<Vec<_>>(), [0, -15]);
    }
}
