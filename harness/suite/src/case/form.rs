//! The forms of names in case and platform files.

/// Returns whether a text is a lower-case word: letters, digits, `_` and `-`, beginning with a letter or a digit.
pub(crate) fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && name
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

/// Returns whether a text has the form of `backend=`: a name, or `device:name` pairs joined by commas.
pub(crate) fn is_backend_string(text: &str) -> bool {
    text.split(',').all(|part| match part.split_once(':') {
        Some((device, backend)) => is_name(device) && is_name(backend),
        None => is_name(part),
    })
}

/// Fills in the scenario's device type and backend in a group's backend string.
pub(crate) fn filled(pattern: &str, device: &str, backend: &str) -> String {
    pattern
        .replace("{device}", device)
        .replace("{backend}", backend)
}

/// Returns whether a text can be the name of an environment variable: letters, digits and `_`, not beginning with a
/// digit.
pub(crate) fn is_env_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
