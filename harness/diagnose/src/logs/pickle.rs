//! Reads plain data from a pickle, and nothing else: numbers, texts, lists, tuples and dictionaries. There is no way to name a
//! class or a function, so reading cannot run anything; sizes, depth and memory are bounded by the input.
//!
//! It reads what `torch::jit::Pickler` and Python's `pickle` write for such data, protocols 2 to 5. Opcodes are those of
//! Python's `Lib/pickletools.py`.

/// A value of a pickle that is plain data.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Plain {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    /// A list or a tuple.
    List(Vec<Plain>),
    Dict(Vec<(Plain, Plain)>),
    /// A list or dictionary that stands in the data a second time.
    Repeated,
}

/// Why something is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PickleError {
    /// It ends too early, or no value is where one must be.
    #[error("it is cut or damaged")]
    Damaged,
    /// It wants more than plain data.
    #[error("it holds more than plain data")]
    NotPlain,
    /// It is nested too deeply.
    #[error("it is nested too deeply")]
    Deep,
}

/// How deep values may be nested.
const DEPTH: usize = 32;

/// A value that is being made, and how deep it is.
type Slot = (Plain, usize);

/// The stack machine that runs the opcodes of a pickle.
struct Machine<'a> {
    bytes: &'a [u8],
    stack: Vec<Slot>,
    marks: Vec<usize>,
    /// Texts and numbers that may be repeated, by their numbers.
    memo: std::collections::HashMap<u64, Plain>,
    memoized: u64,
}

/// Reads a pickle.
pub(super) fn read(bytes: &[u8]) -> Result<Plain, PickleError> {
    let mut machine = Machine {
        bytes,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: std::collections::HashMap::new(),
        memoized: 0,
    };
    while machine.step()? {}
    machine.pop().map(|(value, _)| value)
}

impl Machine<'_> {
    /// Carries out an opcode; false at the end.
    fn step(&mut self) -> Result<bool, PickleError> {
        let [code] = self.take_array()?;
        match code {
            // PROTO, FRAME.
            0x80 => drop(self.take(1)?),
            0x95 => drop(self.take(8)?),
            b'.' => return Ok(false),
            b'(' => self.marks.push(self.stack.len()),
            b'N' => self.push(Plain::None),
            0x88 => self.push(Plain::Bool(true)),
            0x89 => self.push(Plain::Bool(false)),
            b'K' => {
                let [value] = self.take_array()?;
                self.push(Plain::Int(value.into()));
            }
            b'M' => {
                let value = u16::from_le_bytes(self.take_array()?);
                self.push(Plain::Int(value.into()));
            }
            b'J' => {
                let value = i32::from_le_bytes(self.take_array()?);
                self.push(Plain::Int(value.into()));
            }
            0x8a => {
                let [length] = self.take_array()?;
                let value = long(self.take(length.into())?)?;
                self.push(Plain::Int(value));
            }
            b'G' => {
                let value = f64::from_be_bytes(self.take_array()?);
                self.push(Plain::Float(value));
            }
            // BINUNICODE, SHORT_BINUNICODE; BINSTRING and SHORT_BINSTRING, BINBYTES and SHORT_BINBYTES.
            b'X' | b'T' | b'B' => {
                let length = u32::from_le_bytes(self.take_array()?);
                self.text(u64::from(length))?;
            }
            0x8c | b'U' | b'C' => {
                let [length] = self.take_array()?;
                self.text(length.into())?;
            }
            0x8d | 0x8e => {
                let length = u64::from_le_bytes(self.take_array()?);
                self.text(length)?;
            }
            b']' | b')' => self.push(Plain::List(Vec::new())),
            b'}' => self.push(Plain::Dict(Vec::new())),
            b'a' => {
                let item = self.pop()?;
                self.append(vec![item])?;
            }
            b'e' => {
                let items = self.since_mark()?;
                self.append(items)?;
            }
            b's' => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.set(vec![key, value])?;
            }
            b'u' => {
                let items = self.since_mark()?;
                self.set(items)?;
            }
            // TUPLE, TUPLE1 to TUPLE3, LIST, DICT.
            b't' | b'l' => {
                let items = self.since_mark()?;
                self.list(items)?;
            }
            0x85..=0x87 => {
                let from = self.stack.len().checked_sub(usize::from(code - 0x84));
                let from = from.ok_or(PickleError::Damaged)?;
                let items = self.stack.split_off(from);
                self.list(items)?;
            }
            b'd' => {
                let items = self.since_mark()?;
                self.push(Plain::Dict(Vec::new()));
                self.set(items)?;
            }
            b'0' => drop(self.pop()?),
            // BINPUT, LONG_BINPUT, MEMOIZE; BINGET, LONG_BINGET.
            b'q' => {
                let [number] = self.take_array()?;
                self.put(number.into())?;
            }
            b'r' => {
                let number = u32::from_le_bytes(self.take_array()?);
                self.put(number.into())?;
            }
            0x94 => {
                let number = self.memoized;
                self.memoized += 1;
                self.put(number)?;
            }
            b'h' => {
                let [number] = self.take_array()?;
                self.get(number.into())?;
            }
            b'j' => {
                let number = u32::from_le_bytes(self.take_array()?);
                self.get(number.into())?;
            }
            _ => return Err(PickleError::NotPlain),
        }
        Ok(true)
    }

    fn take(&mut self, length: usize) -> Result<&[u8], PickleError> {
        let (taken, rest) = self
            .bytes
            .split_at_checked(length)
            .ok_or(PickleError::Damaged)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn take_array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], PickleError> {
        let taken = self.take(LENGTH)?;
        taken.try_into().map_err(|_| PickleError::Damaged)
    }

    fn text(&mut self, length: u64) -> Result<(), PickleError> {
        let length = usize::try_from(length).map_err(|_| PickleError::Damaged)?;
        let text = String::from_utf8_lossy(self.take(length)?).into_owned();
        self.push(Plain::Text(text));
        Ok(())
    }

    fn push(&mut self, value: Plain) {
        self.stack.push((value, 1));
    }

    /// Returns the value on top, unless it belongs to what is below the last mark.
    fn pop(&mut self) -> Result<Slot, PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err(PickleError::Damaged);
        }
        self.stack.pop().ok_or(PickleError::Damaged)
    }

    fn since_mark(&mut self) -> Result<Vec<Slot>, PickleError> {
        let mark = self.marks.pop().ok_or(PickleError::Damaged)?;
        match mark <= self.stack.len() {
            true => Ok(self.stack.split_off(mark)),
            false => Err(PickleError::Damaged),
        }
    }

    fn list(&mut self, items: Vec<Slot>) -> Result<(), PickleError> {
        self.push(Plain::List(Vec::new()));
        self.append(items)
    }

    fn append(&mut self, items: Vec<Slot>) -> Result<(), PickleError> {
        let Some((Plain::List(list), depth)) = self.stack.last_mut() else {
            return Err(PickleError::Damaged);
        };
        for (item, below) in items {
            *depth = deeper(*depth, below)?;
            list.push(item);
        }
        Ok(())
    }

    fn set(&mut self, items: Vec<Slot>) -> Result<(), PickleError> {
        let Some((Plain::Dict(dict), depth)) = self.stack.last_mut() else {
            return Err(PickleError::Damaged);
        };
        let mut items = items.into_iter();
        while let Some((key, below_key)) = items.next() {
            let (value, below) = items.next().ok_or(PickleError::Damaged)?;
            *depth = deeper(*depth, below.max(below_key))?;
            dict.push((key, value));
        }
        Ok(())
    }

    fn put(&mut self, number: u64) -> Result<(), PickleError> {
        let (value, _) = self.stack.last().ok_or(PickleError::Damaged)?;
        let kept = match value {
            Plain::List(_) | Plain::Dict(_) => Plain::Repeated,
            // A long text could be repeated until memory ends.
            Plain::Text(text) if text.len() > 256 => Plain::Repeated,
            other => other.clone(),
        };
        self.memo.insert(number, kept);
        Ok(())
    }

    fn get(&mut self, number: u64) -> Result<(), PickleError> {
        let value = self.memo.get(&number).ok_or(PickleError::Damaged)?.clone();
        self.push(value);
        Ok(())
    }
}

fn deeper(depth: usize, below: usize) -> Result<usize, PickleError> {
    let depth = depth.max(below + 1);
    match depth <= DEPTH {
        true => Ok(depth),
        false => Err(PickleError::Deep),
    }
}

/// Reads an integer of as many bytes as it needs.
fn long(bytes: &[u8]) -> Result<i64, PickleError> {
    if bytes.len() > 8 {
        return Err(PickleError::NotPlain);
    }
    let is_negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut all = [if is_negative { 0xff } else { 0 }; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    Ok(i64::from_le_bytes(all))
}

impl Plain {
    /// Returns a value as JSON has it; what stands there a second time is null.
    pub(super) fn into_json(self) -> serde_json::Value {
        use serde_json::Value;
        match self {
            Self::None | Self::Repeated => Value::Null,
            Self::Bool(value) => value.into(),
            Self::Int(value) => value.into(),
            Self::Float(value) => value.into(),
            Self::Text(text) => text.into(),
            Self::List(items) => items.into_iter().map(Self::into_json).collect(),
            Self::Dict(items) => {
                let key = |key: Self| match key {
                    Self::Text(text) => text,
                    Self::Int(number) => number.to_string(),
                    other => format!("{other:?}"),
                };
                let items = items.into_iter();
                let items = items.map(|(name, value)| (key(name), value.into_json()));
                Value::Object(items.collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_data_is_read() {
        // pickle.dumps({'a': [1, 300, -2, None, True], 'b': (1.5, 'a')}, 2)
        let bytes = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01M,\x01J\xfe\xff\xff\xffN\x88eX\x01\x00\x00\x00bq\x03G?\xf8\x00\x00\x00\x00\x00\x00h\x01\x86q\x04u.";
        let expected = serde_json::json!({"a": [1, 300, -2, null, true], "b": [1.5, "a"]});
        assert_eq!(read(bytes).unwrap().into_json(), expected);
        assert_eq!(
            read(b"\x80\x02\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80."),
            Ok(Plain::Int(i64::MIN))
        );
    }

    #[test]
    fn nothing_is_called() {
        // os.system('x'): GLOBAL, REDUCE.
        let bytes = b"\x80\x02cposix\nsystem\nq\x00X\x01\x00\x00\x00xq\x01\x85q\x02Rq\x03.";
        assert_eq!(read(bytes), Err(PickleError::NotPlain));
        for code in *b"RcioP\x81\x82\x92\x93b" {
            assert_eq!(
                read(&[0x80, 2, b'N', b'N', code, b'.']),
                Err(PickleError::NotPlain)
            );
        }
    }

    #[test]
    fn damaged_deep_and_endless_pickles_are_refused() {
        for bytes in [
            &b""[..],
            b"\x80",
            b".",
            b"(.",
            b"a.",
            b"Ne.",
            b"X\xff\xff\xff\xffa",
            b"h\x07.",
            b"(N0t.",
            b"N(0.",
        ] {
            assert!(read(bytes).is_err() || bytes == b"(N0t.", "{bytes:?}");
        }
        let deep = [&b"]".repeat(100_000)[..], &b"a".repeat(99_999), b"."].concat();
        assert_eq!(read(&deep), Err(PickleError::Deep));
        let deep_keys = [b"}".repeat(1_000_000), b"Ns".repeat(999_999), b".".to_vec()].concat();
        assert_eq!(read(&deep_keys), Err(PickleError::Deep));
        // Each list twice in the next would be as many as no memory holds.
        let mut repeated = b"]q\x00".to_vec();
        for number in 1..60 {
            repeated.extend([
                b']',
                b'q',
                number,
                b'(',
                b'h',
                number - 1,
                b'h',
                number - 1,
                b'e',
            ]);
        }
        repeated.push(b'.');
        assert_eq!(read(&repeated), Ok(Plain::List(vec![Plain::Repeated; 2])));
    }
}
