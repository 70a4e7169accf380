//! Writes the draft as XML, in one pass over its suites and cases.

use std::io::{self, Write};

use junit_report::{TestCase, TestResult};
use quick_xml::events::{BytesDecl, BytesText, Event};
use quick_xml::writer::{ElementWriter, Writer};

use super::case::{CaseExtra, CaseMaker};
use super::draft::{Cases, Draft, SuiteDraft, Totals, timestamp_text};
use super::{Dialect, Properties};
use crate::check_set::CheckSet;

type Out<'o> = &'o mut dyn Write;
type Xml<'o> = Writer<Out<'o>>;
type Attributes = Vec<(&'static str, String)>;

/// Writes the draft in one of the dialects.
///
/// # Errors
/// The file could not be written.
pub(super) fn write<C: CheckSet>(
    draft: &Draft,
    maker: &mut CaseMaker<'_, C>,
    dialect: Dialect,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut writer = Writer::new_with_indent(out, b' ', 1);
    writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("utf-8"), None)))?;
    let attributes = root_attributes(draft, dialect);
    start(&mut writer, "testsuites", &attributes).write_inner_content(|writer| {
        let mut suites = draft.suites.iter().enumerate();
        suites.try_for_each(|(id, suite)| write_suite(writer, id, suite, maker, dialect))
    })?;
    writer.get_mut().write_all(b"\n")
}

fn root_attributes(draft: &Draft, dialect: Dialect) -> Attributes {
    let totals = || draft.suites.iter().map(|suite| suite.totals);
    let count = |of: fn(Totals) -> usize| totals().map(of).sum::<usize>().to_string();
    let mut attributes = vec![
        ("name", draft.run.clone()),
        ("tests", count(|one| one.tests)),
        ("failures", count(|one| one.failures)),
        ("errors", count(|one| one.errors)),
        (
            "time",
            seconds(totals().map(|one| one.time.as_seconds_f64()).sum()),
        ),
    ];
    if dialect == Dialect::Extended {
        attributes.push(("skipped", count(|one| one.skipped)));
        attributes.push(("timestamp", timestamp_text(draft.started)));
    }
    attributes
}

fn write_suite<C: CheckSet>(
    writer: &mut Xml<'_>,
    id: usize,
    suite: &SuiteDraft,
    maker: &mut CaseMaker<'_, C>,
    dialect: Dialect,
) -> io::Result<()> {
    let totals = suite.totals;
    let attributes = [
        ("id", id.to_string()),
        ("name", suite.name.clone()),
        ("package", suite.package.clone()),
        ("tests", totals.tests.to_string()),
        ("errors", totals.errors.to_string()),
        ("failures", totals.failures.to_string()),
        ("timestamp", timestamp_text(suite.timestamp)),
        ("time", seconds(totals.time.as_seconds_f64())),
        ("skipped", totals.skipped.to_string()),
    ];
    start(writer, "testsuite", &attributes).write_inner_content(|writer| {
        write_properties(writer, &suite.properties)?;
        match &suite.cases {
            Cases::Checks { class, indices } => indices.iter().try_for_each(|index| {
                let (case, extra) = maker.check(*index, class);
                write_case(writer, &case, &extra, dialect)
            }),
            Cases::RunProblems(all) => all.iter().try_for_each(|problem| {
                let case = maker.run_problem(problem);
                write_case(writer, &case, &CaseExtra::default(), dialect)
            }),
        }
    })?;
    Ok(())
}

fn write_case(
    writer: &mut Xml<'_>,
    case: &TestCase,
    extra: &CaseExtra,
    dialect: Dialect,
) -> io::Result<()> {
    let mut attributes = vec![
        ("name", case.name.clone()),
        ("time", seconds(case.time.as_seconds_f64())),
    ];
    attributes.extend(case.classname.clone().map(|name| ("classname", name)));
    if dialect == Dialect::Extended {
        attributes.extend(case.filepath.clone().map(|file| ("file", file)));
        attributes.extend(extra.line.clone().map(|line| ("line", line)));
    } else if case.is_success() {
        start(writer, "testcase", &attributes).write_empty()?;
        return Ok(());
    }
    start(writer, "testcase", &attributes).write_inner_content(|writer| {
        if dialect == Dialect::Extended {
            write_properties(writer, &extra.properties)?;
        }
        write_result(writer, &case.result)?;
        if let Some(text) = &case.system_out {
            let element = writer.create_element("system-out");
            element.write_text_content(BytesText::new(text))?;
        }
        Ok(())
    })?;
    Ok(())
}

/// Writes the element for a failure, an error or a skipped check; nothing for a pass.
fn write_result(writer: &mut Xml<'_>, result: &TestResult) -> io::Result<()> {
    let (name, type_, message, cause) = match result {
        TestResult::Success => return Ok(()),
        TestResult::Skipped => {
            writer.create_element("skipped").write_empty()?;
            return Ok(());
        }
        TestResult::SkippedWithCause {
            type_,
            message,
            cause,
        } => ("skipped", type_, message, cause),
        TestResult::Error {
            type_,
            message,
            cause,
        } => ("error", type_, message, cause),
        TestResult::Failure {
            type_,
            message,
            cause,
        } => ("failure", type_, message, cause),
    };
    let attributes = [("type", type_.clone()), ("message", message.clone())];
    let element = start(writer, name, &attributes);
    match cause {
        Some(cause) => element.write_text_content(BytesText::new(cause))?,
        None => element.write_empty()?,
    };
    Ok(())
}

fn write_properties(writer: &mut Xml<'_>, properties: &Properties) -> io::Result<()> {
    if properties.is_empty() {
        return Ok(());
    }
    let element = writer.create_element("properties");
    element.write_inner_content(|writer| {
        for (name, value) in properties {
            let element = writer.create_element("property");
            let element = element.with_attributes([("name", name.as_str()), ("value", value)]);
            element.write_empty()?;
        }
        Ok(())
    })?;
    Ok(())
}

fn start<'w, 'o>(
    writer: &'w mut Xml<'o>,
    name: &'static str,
    attributes: &[(&'static str, String)],
) -> ElementWriter<'w, Out<'o>> {
    let attributes = attributes.iter();
    let attributes = attributes.map(|(name, value)| (*name, value.as_str()));
    writer.create_element(name).with_attributes(attributes)
}

/// Returns a time with three decimals, without an exponent. An empty sum is `0.000`, not `-0.000`.
fn seconds(time: f64) -> String {
    format!("{:.3}", time.abs())
}
