//! Python literals: elements of tensors, JSON values, texts.

use serde_json::Value;

use allranks_model::dtype::{DType, DTypeKind};

/// The longest line of a reproducer, in characters.
pub(super) const WIDTH: usize = 118;
/// The longest text in an object that is written out, in characters. A longer one is written as a formula.
const LONGEST_TEXT: usize = 200;

/// Returns a tensor's elements: a list of numbers if Python reads the same bits from it, else all bytes in hexadecimal. The
/// reproducer's function `values` takes either.
pub(super) fn elements(dtype: DType, bytes: &[u8]) -> String {
    let numbers: Option<Vec<String>> = bytes
        .chunks_exact(dtype.size())
        .map(|element| number(dtype, element))
        .collect();
    match numbers {
        Some(numbers) => format!("[{}]", numbers.join(", ")),
        None => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("\"{hex}\"")
        }
    }
}

/// Returns an element as a number from which `torch.tensor(.., dtype)` makes the same bits; `None` if there is none.
fn number(dtype: DType, bytes: &[u8]) -> Option<String> {
    let signed = |bits: u32| -> i64 {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        i64::from_le_bytes(word) << (64 - bits) >> (64 - bits)
    };
    let plain = |value: f64| value.is_finite().then(|| format!("{value:?}"));
    match dtype.kind() {
        DTypeKind::Signed => Some(signed(8 * dtype.size() as u32).to_string()),
        DTypeKind::Bool | DTypeKind::Unsigned => {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            let value = u64::from_le_bytes(word);
            let largest = if dtype == DType::Bool {
                1
            } else {
                i64::MAX as u64
            };
            (value <= largest).then(|| value.to_string())
        }
        DTypeKind::Float => match dtype {
            DType::Float64 => plain(f64::from_le_bytes(bytes.try_into().ok()?)),
            DType::Float32 => {
                let value = f32::from_le_bytes(bytes.try_into().ok()?);
                value.is_finite().then(|| format!("{value:?}"))
            }
            DType::Float16 => plain(half::f16::from_le_bytes(bytes.try_into().ok()?).to_f64()),
            DType::Bfloat16 => plain(half::bf16::from_le_bytes(bytes.try_into().ok()?).to_f64()),
            // torch cannot make all of these values from Python numbers.
            _ => None,
        },
        DTypeKind::Complex => {
            let (re, im) = bytes.split_at(bytes.len() / 2);
            let part = |bytes: &[u8]| match dtype {
                DType::Complex64 => bytes.try_into().ok().map(f32::from_le_bytes).map(f64::from),
                _ => bytes.try_into().ok().map(f64::from_le_bytes),
            };
            let (re, im) = (part(re)?, part(im)?);
            // In Python `-0.0+1j` is a sum, which loses the sign of the zero.
            let is_kept =
                |value: f64| value.is_finite() && !(value == 0.0 && value.is_sign_negative());
            (is_kept(re) && is_kept(im)).then(|| format!("{re:?}{im:+?}j"))
        }
    }
}

/// Writes Python objects as literals. Long texts become formulas: `text(7, 100997)` is the seventh text, with that length. Equal
/// texts get the same formula.
#[derive(Debug, Default)]
pub(super) struct Objects {
    texts: Vec<String>,
}

impl Objects {
    /// Returns true if any text was written as a formula.
    pub(super) fn has_texts(&self) -> bool {
        !self.texts.is_empty()
    }

    /// Returns a JSON value as a Python literal.
    pub(super) fn literal(&mut self, value: &Value) -> String {
        match value {
            Value::Null => "None".to_owned(),
            Value::Bool(true) => "True".to_owned(),
            Value::Bool(false) => "False".to_owned(),
            Value::Number(number) => number.to_string(),
            Value::String(text) if text.len() > LONGEST_TEXT => {
                let known = self.texts.iter().position(|known| known == text);
                let number = known.unwrap_or_else(|| {
                    self.texts.push(text.clone());
                    self.texts.len() - 1
                });
                format!("text({number}, {})", text.chars().count())
            }
            Value::String(text) => self::text(text),
            Value::Array(list) => {
                let list: Vec<_> = list.iter().map(|item| self.literal(item)).collect();
                format!("[{}]", list.join(", "))
            }
            Value::Object(map) => {
                let entries: Vec<_> = map
                    .iter()
                    .map(|(key, value)| format!("{}: {}", text(key), self.literal(value)))
                    .collect();
                format!("{{{}}}", entries.join(", "))
            }
        }
    }
}

/// Returns a text as a Python literal. JSON's escapes are valid in Python, except for characters beyond the first plane, which
/// are written as they are.
pub(super) fn text(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

/// Returns a Python tuple of numbers: `(2,)`.
pub(super) fn tuple(numbers: &[u64]) -> String {
    match numbers {
        [one] => format!("({one},)"),
        _ => {
            let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
            format!("({})", numbers.join(", "))
        }
    }
}

/// Returns a Python list of numbers.
pub(super) fn list<T: ToString>(numbers: impl IntoIterator<Item = T>) -> String {
    let numbers: Vec<_> = numbers.into_iter().map(|one| one.to_string()).collect();
    format!("[{}]", numbers.join(", "))
}

/// Breaks a literal in brackets into lines at spaces, if it is too long. `indent` is that of the lines after the first. Texts are
/// not broken.
pub(super) fn wrapped(line: &str, indent: usize) -> String {
    let mut out = String::new();
    let mut length = 0;
    let mut in_text = false;
    let mut word = String::new();
    let mut flush = |word: &mut String, length: &mut usize| {
        if *length > indent && *length + word.trim_end().len() > WIDTH {
            while out.ends_with(' ') {
                out.pop();
            }
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            *length = indent;
        }
        *length += word.len();
        out.push_str(word);
        word.clear();
    };
    let mut escaped = false;
    for character in line.chars() {
        word.push(character);
        let was_escaped = escaped;
        escaped = character == '\\' && !was_escaped;
        match character {
            '"' if !was_escaped => in_text = !in_text,
            ' ' if !in_text && word.trim_end().ends_with(',') => flush(&mut word, &mut length),
            _ => {}
        }
    }
    flush(&mut word, &mut length);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_very_elements_or_bytes() {
        let of = |dtype, bytes: &[u8]| elements(dtype, bytes);
        assert_eq!(of(DType::Int16, &[0xff, 0xff, 2, 0]), "[-1, 2]");
        assert_eq!(of(DType::Bool, &[1, 0]), "[1, 0]");
        assert_eq!(of(DType::Bool, &[1, 3]), "\"0103\"");
        assert_eq!(
            of(DType::Uint64, &[0xff; 8]),
            format!("\"{}\"", "ff".repeat(8))
        );
        let floats: Vec<u8> = [0.1f32, -0.0, 1e30]
            .iter()
            .flat_map(|x| x.to_le_bytes())
            .collect();
        assert_eq!(of(DType::Float32, &floats), "[0.1, -0.0, 1e30]");
        assert_eq!(of(DType::Float32, &f32::NAN.to_le_bytes()), "\"0000c07f\"");
        let complex: Vec<u8> = [1.5f32, -2.0]
            .iter()
            .flat_map(|x| x.to_le_bytes())
            .collect();
        assert_eq!(of(DType::Complex64, &complex), "[1.5-2.0j]");
        let signed: Vec<u8> = [-0.0f32, 2.0]
            .iter()
            .flat_map(|x| x.to_le_bytes())
            .collect();
        assert!(of(DType::Complex64, &signed).starts_with('"'));
        assert_eq!(of(DType::Float64, &[]), "[]");
    }

    #[test]
    fn long_texts_become_formulas_and_stay_apart() {
        let mut objects = Objects::default();
        let (a, b) = ("a".repeat(300), "b".repeat(300));
        let value = serde_json::json!([null, true, {"x": "short"}, a, b, a]);
        assert_eq!(
            objects.literal(&value),
            "[None, True, {\"x\": \"short\"}, text(0, 300), text(1, 300), text(0, 300)]"
        );
        assert!(objects.has_texts());
    }

    #[test]
    fn lines_break_after_commas_and_never_in_texts() {
        let line = format!("[{}]", vec!["123456789"; 30].join(", "));
        let wrapped = wrapped(&line, 4);
        assert!(wrapped.lines().count() > 2);
        assert!(wrapped.lines().all(|line| line.len() <= WIDTH));
        assert_eq!(
            wrapped.split_whitespace().collect::<Vec<_>>().join(" "),
            line
        );
        let text = format!("[\"{}\"]", "a, ".repeat(100));
        assert_eq!(self::wrapped(&text, 4), text);
        let escaped = format!("[\"{}\"]", "\\\", ".repeat(100));
        assert_eq!(self::wrapped(&escaped, 4), escaped);
    }
}
