//! Cuts texts that come from ranks and programs, whose length nothing limits, to a length that records can hold.

/// Most bytes of a text that come into records: half of its beginning, and half of its end.
pub const LONGEST: usize = 8 << 10;

/// Returns a text of at most [`LONGEST`] bytes as it is. Of a longer one, returns beginning and end, and between them a line
/// that says how many bytes were cut.
#[must_use]
pub fn excerpt(text: String) -> String {
    excerpt_within(text, LONGEST)
}

/// Does what [`excerpt`] does with another limit in bytes. The line about the cut comes on top of the limit.
#[must_use]
pub fn excerpt_within(text: String, longest: usize) -> String {
    if text.len() <= longest {
        return text;
    }
    let is_whole = |place: &usize| text.is_char_boundary(*place);
    let head = (0..=longest / 2).rev().find(is_whole).unwrap_or(0);
    let tail = (text.len() - longest / 2..=text.len()).find(is_whole);
    let tail = tail.unwrap_or(text.len());
    let cut = tail - head;
    format!(
        "{}\n[allranks cut {cut} bytes out of here]\n{}",
        &text[..head],
        &text[tail..]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_within_the_limit_stays_as_it_is() {
        for length in [0, 1, LONGEST] {
            assert_eq!(excerpt("x".repeat(length)), "x".repeat(length));
        }
    }

    #[test]
    fn a_long_text_keeps_its_beginning_and_its_end() {
        let text = format!("RuntimeError: {}the end", "x".repeat(1 << 20));
        let length = text.len();
        let short = excerpt(text);
        assert!(short.starts_with("RuntimeError: x"), "{short}");
        assert!(short.ends_with("xthe end"), "{short}");
        let cut = length - LONGEST;
        assert!(short.contains(&format!("\n[allranks cut {cut} bytes out of here]\n")));
        assert!(short.len() < LONGEST + 60);
    }

    #[test]
    fn no_character_is_cut_apart() {
        for longest in 2..12 {
            let short = excerpt_within("äöü€".repeat(9), longest);
            let kept: String = short
                .split('\n')
                .filter(|line| !line.starts_with('['))
                .collect();
            assert!(
                kept.chars().all(|letter| "äöü€".contains(letter)),
                "{short}"
            );
            assert!(kept.len() <= longest, "{short}");
        }
    }
}
