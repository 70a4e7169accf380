//! Parses versions as Python packages write them.

/// Parses the release of a package and ignores what Python appends to it: `2.11.0` of `2.11.0+cu130`, `2.9.0` of
/// `2.9.0a0+git1234`. A pre-release counts as its release, because its build contains most of that. Returns `None` if the text
/// does not begin with a number.
#[must_use]
pub fn torch_version(text: &str) -> Option<semver::Version> {
    let release: String = text
        .trim()
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    let mut parts = release.split('.').filter(|part| !part.is_empty());
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next().unwrap_or("0").parse().ok()?;
    let patch = parts.next().unwrap_or("0").parse().ok()?;
    Some(semver::Version::new(major, minor, patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_python_appends_is_cut_off() {
        for (text, version) in [
            ("2.11.0+cu130", "2.11.0"),
            ("2.9.0a0+git1234", "2.9.0"),
            ("2.8", "2.8.0"),
            ("2.10.0.dev20260101", "2.10.0"),
        ] {
            assert_eq!(torch_version(text).unwrap().to_string(), version);
        }
        assert_eq!(torch_version("unknown"), None);
    }
}
