//! Finds the other side of a message from the line of code that sends or receives it: `dist.send(h, dst=rank + 1)`.

use std::sync::LazyLock;

use regex::Regex;

static NEIGHBOUR: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"\b(?:dst|src) ?= ?(?:(?P<number>\d+)|(?:self\.)?(?:r|rank|stage|stage_id)(?: ?(?P<sign>[+-]) ?(?P<by>\d+)))[,)]",
    )
    .ok()
});

/// Returns the peer that a line of code names for this rank; `None` if it names none, or in another way.
pub(super) fn peer(code: &str, rank: u32) -> Option<u32> {
    let found = NEIGHBOUR.as_ref()?.captures(code)?;
    if let Some(number) = found.name("number") {
        return number.as_str().parse().ok();
    }
    let by = found["by"].parse().ok()?;
    match &found["sign"] {
        "+" => rank.checked_add(by),
        _ => rank.checked_sub(by),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_and_numbers_are_peers() {
        for (code, expected) in [
            ("if r<w-1: dist.send(H,dst=r+1)", Some(3)),
            ("dist.recv(x, src=self.rank - 1)", Some(1)),
            ("dist.recv(x, src=0)", Some(0)),
            ("dist.send(x, dst=(rank + 1) % world)", None),
            ("dist.send(x, dst=rank + 1 + k)", None),
            ("dist.send(x, peer)", None),
        ] {
            assert_eq!(peer(code, 2), expected, "{code}");
        }
        assert_eq!(peer("dist.recv(x, src=r-1)", 0), None);
    }
}
