//! The tables of a script: for each rank its tensors, what it passes, what it must get.

use std::fmt::Write;

use super::calls::Code;
use super::literal::{Objects, elements, tuple, wrapped};
use crate::dtype::DType;
use crate::oracle::{After, Exhibit};
use crate::plan::Check;

const VALUES: &str = include_str!("template/values.py");
const FUNCTIONS: &str = include_str!("template/tensors.py");

/// Tables as text, and what they need of the rest of the script.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// Python.
    pub text: String,
    /// Whether there is a table of tensors.
    pub has_tensors: bool,
    /// Whether objects hold `text(..)`.
    pub has_texts: bool,
    /// Whether some numbers may be a little off.
    has_tolerance: bool,
    /// Whether some elements are written as bytes.
    has_bytes: bool,
}

impl Tables {
    /// `exhibits` and `codes` have an entry for each rank.
    pub(super) fn new(check: &Check, exhibits: &[Vec<Exhibit>], codes: &[Code]) -> Self {
        let mut tables = Self::default();
        // A bystander's buffer is worth a table only where somebody's tensors are in it too.
        let is_taking_part = |exhibit: &Exhibit| exhibit.label != "bystander";
        tables.has_tensors = exhibits.iter().flatten().any(is_taking_part);
        if tables.has_tensors {
            tables.write_tensors(check, exhibits);
        }
        tables.write_objects(codes);
        tables
    }

    fn write_tensors(&mut self, check: &Check, exhibits: &[Vec<Exhibit>]) {
        let dtype = check.dtype;
        let tolerance = exhibits
            .iter()
            .flatten()
            .filter_map(|exhibit| match exhibit.after {
                After::Elements { tolerance, .. } => tolerance,
                After::Same | After::Anything => None,
            })
            .reduce(f64::max);
        let rows: Vec<Vec<String>> = exhibits
            .iter()
            .map(|exhibits| exhibits.iter().map(|one| row(dtype, one)).collect())
            .collect();
        // Outside of names, only bytes are texts in a row.
        self.has_bytes = rows
            .iter()
            .flatten()
            .any(|row| row.matches('"').count() > 2);
        self.has_tolerance = tolerance.is_some();
        let out = &mut self.text;
        let mut line = |line: String| {
            out.push_str(&line);
            out.push('\n');
        };
        line(format!("DTYPE = torch.{dtype}"));
        if let Some(tolerance) = tolerance {
            line(format!("TOLERANCE = {tolerance:?}  # absolute"));
        }
        line("SAME, ANY = \"as before\", \"anything\"".to_owned());
        line("# rank: tensor: (elements of storage, shape, strides, offset), values before the call, values after it".to_owned());
        line("TENSORS = {".to_owned());
        for (rank, rows) in rows.iter().enumerate() {
            line(format!("    {rank}: {{"));
            rows.iter().for_each(|row| line(wrapped(row, 12)));
            line("    },".to_owned());
        }
        line("}".to_owned());
    }

    /// The functions that make and compare tensors, with what these tables need and no more.
    pub(super) fn functions(&self) -> String {
        let tolerance = if self.has_tolerance {
            " or torch.allclose(t[name].to(torch.complex128), tensor.to(torch.complex128), rtol=0, atol=TOLERANCE)"
        } else {
            ""
        };
        let values = if self.has_bytes {
            "values(data)"
        } else {
            "torch.tensor(data, dtype=DTYPE)"
        };
        let functions = FUNCTIONS
            .replace("%%tolerance%%", tolerance)
            .replace("%%values%%", values);
        if self.has_bytes {
            format!("{VALUES}{functions}")
        } else {
            functions
        }
    }

    fn write_objects(&mut self, codes: &[Code]) {
        let mut objects = Objects::default();
        let members = || codes.iter().enumerate();
        let passed: Vec<_> = members()
            .filter_map(|(rank, code)| Some((rank, code.object.as_ref()?)))
            .map(|(rank, object)| {
                let literal = object.as_ref().map(|object| objects.literal(object));
                (rank, literal.unwrap_or_else(|| "None".to_owned()))
            })
            .collect();
        let answers: Vec<_> = members()
            .filter_map(|(rank, code)| Some((rank, objects.literal(code.answer.as_ref()?))))
            .collect();
        self.has_texts = objects.has_texts();
        self.write_table("OBJECTS", "what each rank passes", &passed);
        self.write_table("ANSWERS", "what each rank must get", &answers);
    }

    fn write_table(&mut self, name: &str, what: &str, rows: &[(usize, String)]) {
        let Some((_, first)) = rows.first() else {
            return;
        };
        let write = |out: &mut String, line: &str| {
            out.push_str(line);
            out.push('\n');
        };
        let out = &mut self.text;
        if rows.len() > 1 && rows.iter().all(|(_, row)| row == first) {
            let ranks: Vec<_> = rows.iter().map(|(rank, _)| rank.to_string()).collect();
            write(out, &wrapped(&format!("SHARED = {first}"), 4));
            let line = format!(
                "{name} = {{rank: SHARED for rank in [{}]}}  # {what}",
                ranks.join(", ")
            );
            return write(out, &line);
        }
        write(out, &format!("{name} = {{  # {what}"));
        for (rank, row) in rows {
            write(out, &wrapped(&format!("    {rank}: {row},"), 8));
        }
        write(out, "}");
    }
}

fn row(dtype: DType, exhibit: &Exhibit) -> String {
    let view = &exhibit.view;
    let (before, after) = match (&exhibit.before, &exhibit.after) {
        (Some(before), _) => (elements(dtype, before), &exhibit.after),
        (None, after) => ("None".to_owned(), after),
    };
    let after = match after {
        After::Same => "SAME".to_owned(),
        After::Anything => "ANY".to_owned(),
        After::Elements { bytes, .. } => elements(dtype, bytes),
    };
    let mut row = String::new();
    write!(
        row,
        "        \"{}\": (({}, {}, {}, {}), {before}, {after}),",
        exhibit.label,
        exhibit.elements,
        tuple(&view.shape),
        tuple(&view.strides),
        view.offset
    )
    .expect("writing to a string cannot fail");
    row
}
