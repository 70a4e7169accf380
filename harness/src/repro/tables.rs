//! Writes the tables of a reproducer: for each rank its tensors, the objects that it passes, and those that it must receive.

use super::calls::Code;
use super::literal::{Objects, elements, tuple, wrapped};
use allranks_model::dtype::DType;
use allranks_oracle::{After, ExpectedTensor};

const VALUES: &str = include_str!("template/values.py");
const NEAR: &str = include_str!("template/near.py");
const FUNCTIONS: &str = include_str!("template/tensors.py");

/// The tensors of one op on every rank.
#[derive(Debug)]
pub(super) struct OpTensors {
    /// The prefix of their names: empty, or the op's name in a script and a dot.
    pub prefix: String,
    /// The element type of the tensors.
    pub dtype: DType,
    /// For each rank, its storages.
    pub expected_tensors: Vec<Vec<ExpectedTensor>>,
    /// True if they are compared after the calls.
    pub is_judged: bool,
}

/// The objects that object collectives take and must return.
#[derive(Debug)]
pub(super) struct OpObjects {
    /// The suffix of the tables' names, after `OBJECTS` and `ANSWERS`.
    pub suffix: String,
    /// For each rank, its code with the objects.
    pub codes: Vec<Code>,
}

/// The tables of a reproducer as Python text, and the helper functions that they need.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// The text of the table in Python.
    pub text: String,
    /// True if there is a table of tensors.
    pub has_tensors: bool,
    /// True if objects hold `text(..)`.
    pub has_texts: bool,
    /// True if some numbers have a tolerance.
    has_tolerance: bool,
    /// True if some tensors are not compared.
    has_unjudged: bool,
    /// True if some tensors have stride 0.
    has_expanded: bool,
    /// True if some elements are written as bytes.
    has_bytes: bool,
}

impl Tables {
    /// Writes the tables of these tensors and objects.
    pub(super) fn new(parts: &[OpTensors], passed: &[OpObjects]) -> Self {
        let mut tables = Self::default();
        // A bystander's buffer is written only if the table has tensors of other ranks too.
        let is_taking_part =
            |expected_tensor: &ExpectedTensor| expected_tensor.label != "bystander";
        tables.has_tensors = parts
            .iter()
            .flat_map(|part| part.expected_tensors.iter().flatten())
            .any(is_taking_part);
        if tables.has_tensors {
            tables.write_tensors(parts);
        }
        tables.write_objects(passed);
        tables
    }

    fn write_tensors(&mut self, parts: &[OpTensors]) {
        let all = || {
            parts
                .iter()
                .flat_map(|part| part.expected_tensors.iter().flatten())
        };
        self.has_tolerance = all().any(|expected_tensor| {
            matches!(
                expected_tensor.after,
                After::Elements {
                    tolerance: Some(_),
                    ..
                }
            )
        });
        self.has_unjudged = parts.iter().any(|part| !part.is_judged);
        self.has_expanded = all().any(|expected_tensor| expected_tensor.view.strides.contains(&0));
        let one = parts.windows(2).all(|two| two[0].dtype == two[1].dtype);
        let ranks = parts.iter().map(|part| part.expected_tensors.len()).max();
        let rows: Vec<Vec<String>> = (0..ranks.unwrap_or(0))
            .map(|rank| {
                let of = |part: &OpTensors| -> Vec<String> {
                    let dtype = match one {
                        true => "DTYPE".to_owned(),
                        false => format!("torch.{}", part.dtype),
                    };
                    let expected_tensors = part.expected_tensors[rank].iter();
                    expected_tensors
                        .map(|one| tensor_row(part, &dtype, one))
                        .collect()
                };
                parts.iter().flat_map(of).collect()
            })
            .collect();
        // Apart from names, only bytes are written as texts.
        self.has_bytes = rows
            .iter()
            .flatten()
            .any(|row| row.matches('"').count() > 2);
        let out = &mut self.text;
        let mut line = |line: &str| {
            out.push_str(line);
            out.push('\n');
        };
        if one {
            line(&format!("DTYPE = torch.{}", parts[0].dtype));
        }
        let mut rest = String::new();
        if self.has_unjudged {
            rest.push_str(" (None: not compared)");
        }
        if self.has_tolerance {
            rest.push_str(",\n# how far numbers may be off; where a NaN is expected, any is right");
        }
        line("SAME, ANY = \"as before\", \"anything\"");
        line(&format!(
            "# rank: tensor: (dtype, elements of storage, shape, strides, offset), values before, values after{rest}"
        ));
        line("TENSORS = {");
        for (rank, rows) in rows.iter().enumerate() {
            if rows.is_empty() {
                line(&format!("    {rank}: {{}},"));
                continue;
            }
            line(&format!("    {rank}: {{"));
            rows.iter().for_each(|row| line(&wrapped(row, 12)));
            line("    },");
        }
        line("}");
    }

    /// Returns the Python functions that make and compare the tensors of these tables.
    pub(super) fn functions(&self) -> String {
        let tolerance = if self.has_tolerance {
            "    elif tolerance:\n        tensor.copy_(near(t[name].detach(), tensor, *tolerance))\n"
        } else {
            ""
        };
        let values = if self.has_bytes {
            "values(data, dtype)"
        } else {
            "torch.tensor(data, dtype=dtype)"
        };
        let unjudged = if self.has_unjudged {
            "    if after is None:\n        return\n"
        } else {
            ""
        };
        let expanded = if self.has_expanded {
            "        if 0 in strides:  # its rows are one row in memory\n            target, data = tensor[0], data[0]\n"
        } else {
            ""
        };
        let functions = FUNCTIONS
            .replace("%%unjudged%%", unjudged)
            .replace("%%expanded%%", expanded)
            .replace("%%tolerance%%", tolerance)
            .replace("%%values%%", values);
        let near = if self.has_tolerance { NEAR } else { "" };
        let values = if self.has_bytes { VALUES } else { "" };
        format!("{values}{near}{functions}")
    }

    fn write_objects(&mut self, passed: &[OpObjects]) {
        let mut objects = Objects::default();
        for OpObjects { suffix, codes } in passed {
            let members = || codes.iter().enumerate();
            let given: Vec<_> = members()
                .filter_map(|(rank, code)| Some((rank, code.object.as_ref()?)))
                .map(|(rank, object)| {
                    let literal = object.as_ref().map(|object| objects.literal(object));
                    (rank, literal.unwrap_or_else(|| "None".to_owned()))
                })
                .collect();
            let answers: Vec<_> = members()
                .filter_map(|(rank, code)| Some((rank, objects.literal(code.answer.as_ref()?))))
                .collect();
            self.write_table(&format!("OBJECTS{suffix}"), "what each rank passes", &given);
            self.write_table(
                &format!("ANSWERS{suffix}"),
                "what each rank must get",
                &answers,
            );
        }
        self.has_texts = objects.has_texts();
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

/// Returns the tolerances of elements: one number if it is the same for all, otherwise a list.
fn tolerances(bounds: &[f64]) -> String {
    let number = |bound: &f64| match bound.is_finite() {
        true => format!("{bound:?}"),
        false => "1e999".to_owned(),
    };
    match bounds {
        [] => "0.0".to_owned(),
        [first, rest @ ..] if rest.iter().all(|bound| bound == first) => number(first),
        _ => {
            let numbers: Vec<String> = bounds.iter().map(number).collect();
            format!("[{}]", numbers.join(", "))
        }
    }
}

fn tensor_row(part: &OpTensors, dtype: &str, expected_tensor: &ExpectedTensor) -> String {
    let view = &expected_tensor.view;
    let before = match &expected_tensor.before {
        Some(before) => elements(part.dtype, before),
        None => "None".to_owned(),
    };
    let after = match &expected_tensor.after {
        _ if !part.is_judged => "None".to_owned(),
        After::Same => "SAME".to_owned(),
        After::Anything => "ANY".to_owned(),
        After::Elements { bytes, tolerance } => {
            let elements = elements(part.dtype, bytes);
            match tolerance {
                None => elements,
                Some(bounds) => format!("{elements}, {}", tolerances(bounds)),
            }
        }
    };
    format!(
        "        \"{}{}\": (({dtype}, {}, {}, {}, {}), {before}, {after}),",
        part.prefix,
        expected_tensor.label,
        expected_tensor.elements,
        tuple(&view.shape),
        tuple(&view.strides),
        view.offset
    )
}
