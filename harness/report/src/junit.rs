//! Renders JUnit XML for CI systems, in two dialects, because no single file suits all readers:
//!
//! - `junit.xml` ([`Dialect::Strict`]) is valid against the schema that Jenkins' xunit plugin checks
//!   (`junit-10.xsd` in `jenkinsci/xunit-plugin`), which drops an invalid file whole: no `file` or `line` on a case, no
//!   properties of a case, nothing at the root but totals;
//! - `junit-extended.xml` ([`Dialect::Extended`]) adds those, for readers that use them (GitLab, `pytest`-like tools,
//!   annotating GitHub actions).
//!
//! How results are written:
//!
//! | status                                  | element                                      |
//! |-------------------------------------------|----------------------------------------------|
//! | passed                                    | none                                         |
//! | refused as declared, known failure, waived, not run | `skipped`, with the status as type and the reason |
//! | regression, unexpected pass               | `failure`, with the outcome or status as type |
//! | harness error, not run because the run was stopped | `error`                             |
//!
//! One `testsuite` for each column of the matrix; one more, `allranks`, holds what belongs to no check (the run was cut off, a
//! scenario left no check), so that a job cannot be green on half a run. Of a run that was stopped, the checks that it did not
//! reach say so themselves. `classname` is dotted and begins with platform, backend and world size; `name` is the check's id,
//! unique in the file and usable with `--filter`.
//!
//! The `junit-report` crate models a case. It would also hold suites, count their cases and write them, but all in memory,
//! without properties, lines, totals and how many cases are skipped, with `localhost` whatever the host was, and with text in
//! CDATA sections without a look at `]]>`. So `draft` counts what the suites have, `case` makes one case after the other, and
//! `write` writes them with `quick-xml`, the writer that `junit-report` uses as well.

mod case;
mod draft;
mod write;

use std::io::{self, Write};

use super::check_set::CheckSet;
use super::results::Results;

/// A pair for each property: its name and its value.
type Properties = Vec<(String, String)>;

/// A dialect of JUnit XML.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Valid against `junit-10.xsd`.
    Strict,
    /// With properties, files and lines.
    Extended,
}

/// The largest `message`, in bytes before escaping: it is one line in a list.
pub const MESSAGE_LIMIT: usize = 1_000;
/// The largest `system-out` of a case, in bytes before escaping.
pub const SYSTEM_OUT_LIMIT: usize = 64 * 1024;
/// The largest text of a failure, in bytes before escaping; `dorny/test-reporter` fails above 65,535 for all.
pub const TEXT_LIMIT: usize = 16 * 1024;
/// The largest size of all log excerpts in a file, in bytes: GitLab refuses files above 30 MB. Failing cases past it
/// keep the path of their log.
pub const EXCERPTS_LIMIT: usize = 12 * 1024 * 1024;

/// Renders a JUnit file into memory. Reads the ends of failing ranks' logs; a log that is missing is left out.
///
/// # Errors
/// Those of the XML writer, which has none for text that goes to memory.
pub fn render<C: CheckSet>(results: &Results<C>, dialect: Dialect) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    write(results, dialect, &mut bytes)?;
    Ok(bytes)
}

/// Writes a JUnit file, as [`render`] does, without ever holding all of it.
///
/// # Errors
/// It could not be written.
pub fn write<C: CheckSet>(
    results: &Results<C>,
    dialect: Dialect,
    out: &mut dyn Write,
) -> io::Result<()> {
    let draft = draft::Draft::of(results);
    write::write(&draft, &mut case::CaseMaker::new(results), dialect, out)
}
