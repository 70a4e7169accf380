//! Makes text safe to show. Text from a rank, a log or a backend is untrusted: it may contain escape sequences or control
//! characters, or be very long. In: any text. Out: text that is safe for a terminal and an XML parser.

use anstream::adapter::strip_str;

/// Returns a text without escape sequences and without characters that XML 1.0 forbids or that act on a terminal or on the
/// direction of text; each of those becomes U+FFFD. Newlines and tabs stay; `\r\n` and a lone `\r` become newlines.
///
/// An unterminated escape sequence ends with its line.
pub fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for (number, line) in text.replace("\r\n", "\n").split(['\n', '\r']).enumerate() {
        if number > 0 {
            clean.push('\n');
        }
        if line.contains('\u{1b}') {
            for printable in strip_str(line) {
                clean.extend(printable.chars().map(harmless));
            }
        } else {
            clean.extend(line.chars().map(harmless));
        }
    }
    clean
}

/// [Cleans](clean) a text and puts it on one line: each run of white space becomes one space.
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for word in clean(text).split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    line
}

/// Cuts a text to at most `limit` bytes; a text that was cut ends with `…`.
pub fn clip(text: &str, limit: usize) -> String {
    const MARK: char = '…';
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut end = limit.saturating_sub(MARK.len_utf8());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut clipped = text[..end].to_owned();
    clipped.push(MARK);
    clipped
}

/// Returns a count with thousands separators: `12,345`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a count with its noun: `1 check`, `2 checks`.
pub fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(count))
}

/// Returns a duration as text: `850 ms`, `12.3 s`, `3 min 20 s`.
pub fn lasting(milliseconds: u64) -> String {
    match milliseconds {
        0..1_000 => format!("{milliseconds} ms"),
        1_000..60_000 => format!("{}.{} s", milliseconds / 1_000, milliseconds % 1_000 / 100),
        _ => {
            let seconds = milliseconds / 1_000;
            format!("{} min {} s", seconds / 60, seconds % 60)
        }
    }
}

/// Returns the day of a time in seconds since the Unix epoch, in UTC: `2026-11-24`.
pub fn day(seconds: u64) -> String {
    // Days since 1 March of the year 0, so that a leap day is the last day of its year: <https://howardhinnant.github.io/date_algorithms.html>.
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (year, month) = match month {
        0..10 => (era * 400 + year, month + 3),
        _ => (era * 400 + year + 1, month - 9),
    };
    format!("{year:04}-{month:02}-{date:02}")
}

fn harmless(character: char) -> char {
    match character {
        '\t' => '\t',
        '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' => '\u{fffd}',
        // Embedding, override and isolate controls reorder what people read.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        // Not characters, <https://www.w3.org/TR/xml/#charsets>.
        '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_go_and_an_open_one_ends_with_its_line() {
        assert_eq!(clean("\u{1b}[31mred\u{1b}[0m"), "red");
        assert_eq!(clean("a\u{1b}]0;title\nevidence"), "a\nevidence");
        assert_eq!(clean("50%\r100%\r\ndone"), "50%\n100%\ndone");
    }

    #[test]
    fn characters_that_break_xml_or_a_terminal_become_replacements() {
        assert_eq!(
            clean("a\u{0}b\u{9b}c\u{ffff}d\u{202e}e\tf😀"),
            "a\u{fffd}b\u{fffd}c\u{fffd}d\u{fffd}e\tf😀"
        );
    }

    #[test]
    fn clipping_respects_characters_and_the_limit() {
        assert_eq!(clip("short", 5), "short");
        let clipped = clip(&"é".repeat(100), 20);
        assert!(clipped.len() <= 20 && clipped.ends_with('…'), "{clipped}");
        assert_eq!(one_line("a\n  b\t c "), "a b c");
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(counted(1, "check"), "1 check");
        assert_eq!(lasting(999), "999 ms");
        assert_eq!(lasting(12_345), "12.3 s");
        assert_eq!(lasting(200_000), "3 min 20 s");
        assert_eq!(day(0), "1970-01-01");
        assert_eq!(day(951_782_400), "2000-02-29");
        assert_eq!(day(1_767_225_599), "2025-12-31");
        assert_eq!(day(1_795_478_400), "2026-11-24");
    }
}
