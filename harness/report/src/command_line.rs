//! Quotes a command for a shell. In: its words. Out: one line that a POSIX shell splits into the same words.

use shlex::Quoter;

/// Joins the words of a command with spaces. Words that are special to a shell are quoted.
///
/// A command cannot contain a NUL character. One from a damaged file is kept.
///
/// # Panics
/// Never: `shlex` refuses only NUL characters, and is told to allow them.
#[must_use]
pub fn command_line<W: AsRef<str>>(words: &[W]) -> String {
    let quoter = Quoter::new().allow_nul(true);
    let line = quoter.join(words.iter().map(AsRef::as_ref));
    line.expect("NUL characters are allowed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_gets_the_same_words_back() {
        let words = [
            "allranks",
            "",
            "my cases",
            "a'b",
            "$HOME `id` \\",
            "x\ny",
            "!!",
            "{a,b}",
            "--a=b",
            "#1",
            "~",
            "é",
        ];
        let line = command_line(&words);
        assert_eq!(shlex::split(&line).unwrap(), words, "{line}");
        let script = format!("printf '%s\\0' {line}");
        let output = std::process::Command::new("sh")
            .args(["-c", &script])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let heard: Vec<&str> = text.split_terminator('\0').collect();
        assert_eq!(heard, words, "{line}");
    }

    #[test]
    fn a_word_that_needs_no_quotes_has_none() {
        let words = [
            "allranks",
            "run",
            "cases/p2p",
            "--backend",
            "gloo",
            "a@cpu.gloo.ws2#0.send",
        ];
        assert_eq!(
            command_line(&words),
            "allranks run cases/p2p --backend gloo 'a@cpu.gloo.ws2#0.send'"
        );
    }

    #[test]
    fn a_nul_in_a_damaged_file_does_no_harm() {
        assert_eq!(command_line(&["a\0b"]), "'a\0b'");
    }
}
