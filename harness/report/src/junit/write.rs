//! Writes the draft as XML, in one pass over its suites and cases.

use std::io;

use junit_report::{TestCase, TestResult, TestSuite};
use quick_xml::events::{BytesDecl, BytesText, Event};
use quick_xml::writer::{ElementWriter, Writer};

use super::Dialect;
use super::draft::{CaseExtra, Draft, Properties, SuiteDraft, timestamp_text};

type Xml = Writer<Vec<u8>>;
type Attributes = Vec<(&'static str, String)>;

/// Writes the draft in one of the dialects.
///
/// # Errors
/// Those of `quick-xml`, which has none for text that goes to memory.
pub(super) fn write(draft: &Draft, dialect: Dialect) -> io::Result<Vec<u8>> {
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 1);
    writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("utf-8"), None)))?;
    let attributes = root_attributes(draft, dialect);
    start(&mut writer, "testsuites", &attributes).write_inner_content(|writer| {
        let mut suites = draft.suites.iter().enumerate();
        suites.try_for_each(|(id, suite)| write_suite(writer, id, suite, dialect))
    })?;
    let mut bytes = writer.into_inner();
    bytes.push(b'\n');
    Ok(bytes)
}

fn root_attributes(draft: &Draft, dialect: Dialect) -> Attributes {
    let suites = || draft.suites.iter().map(|draft| &draft.suite);
    let count = |of: fn(&TestSuite) -> usize| suites().map(of).sum::<usize>().to_string();
    let mut attributes = vec![
        ("name", draft.run.clone()),
        ("tests", count(TestSuite::tests)),
        ("failures", count(TestSuite::failures)),
        ("errors", count(TestSuite::errors)),
        (
            "time",
            seconds(suites().map(|one| one.time().as_seconds_f64()).sum()),
        ),
    ];
    if dialect == Dialect::Extended {
        attributes.push(("skipped", count(TestSuite::skipped)));
        attributes.push(("timestamp", timestamp_text(draft.started)));
    }
    attributes
}

fn write_suite(
    writer: &mut Xml,
    id: usize,
    draft: &SuiteDraft,
    dialect: Dialect,
) -> io::Result<()> {
    let suite = &draft.suite;
    let attributes = [
        ("id", id.to_string()),
        ("name", suite.name.clone()),
        ("package", suite.package.clone()),
        ("tests", suite.tests().to_string()),
        ("errors", suite.errors().to_string()),
        ("failures", suite.failures().to_string()),
        ("timestamp", timestamp_text(suite.timestamp)),
        ("time", seconds(suite.time().as_seconds_f64())),
        ("skipped", suite.skipped().to_string()),
    ];
    start(writer, "testsuite", &attributes).write_inner_content(|writer| {
        write_properties(writer, &draft.properties)?;
        let mut cases = suite.testcases.iter().zip(&draft.cases);
        cases.try_for_each(|(case, extra)| write_case(writer, case, extra, dialect))
    })?;
    Ok(())
}

fn write_case(
    writer: &mut Xml,
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

/// The element that tells anything but a pass.
fn write_result(writer: &mut Xml, result: &TestResult) -> io::Result<()> {
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

fn write_properties(writer: &mut Xml, properties: &Properties) -> io::Result<()> {
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

fn start<'w>(
    writer: &'w mut Xml,
    name: &'static str,
    attributes: &[(&'static str, String)],
) -> ElementWriter<'w, Vec<u8>> {
    let attributes = attributes.iter();
    let attributes = attributes.map(|(name, value)| (*name, value.as_str()));
    writer.create_element(name).with_attributes(attributes)
}

/// Three decimals, never an exponent, and never the `-0` that a sum of nothing is.
fn seconds(time: f64) -> String {
    format!("{:.3}", time.abs())
}
