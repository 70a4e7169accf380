//! The pass over the draft that puts right what the model cannot say: counts of skipped cases, totals, properties,
//! lines and times with three decimals. CDATA sections become escaped text, because some readers take only the first of
//! two.

use std::io;

use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};
use quick_xml::{Reader, Writer, XmlVersion};

use super::Dialect;
use super::draft::{CaseExtra, Draft, SuiteExtra};

type Attributes = Vec<(String, String)>;

/// Rewrites the draft in one of the dialects.
pub(super) fn revise(xml: &str, draft: &Draft, dialect: Dialect) -> io::Result<Vec<u8>> {
    let mut reader = Reader::from_str(xml);
    let mut revision = Revision {
        writer: Writer::new_with_indent(Vec::with_capacity(xml.len()), b' ', 1),
        draft,
        dialect,
        suite: None,
        case: None,
    };
    loop {
        match reader.read_event().map_err(io::Error::other)? {
            Event::Start(element) => revision.open(&element)?,
            Event::Empty(element) if revision.is_bare(&element) => revision.put_bare(&element)?,
            Event::Empty(element) => {
                revision.open(&element)?;
                revision.close(&element.to_end())?;
            }
            Event::End(element) => revision.close(&element)?,
            Event::CData(text) => {
                let text = text.into_inner();
                revision.put(Event::Text(BytesText::new(&text)))?;
            }
            Event::Eof => break,
            other => revision.put(other)?,
        }
    }
    let mut bytes = revision.writer.into_inner();
    bytes.push(b'\n');
    Ok(bytes)
}

struct Revision<'a> {
    writer: Writer<Vec<u8>>,
    draft: &'a Draft,
    dialect: Dialect,
    /// Index of the suite the pass is in, or was in last.
    suite: Option<usize>,
    /// Index of the case in it.
    case: Option<usize>,
}

impl<'a> Revision<'a> {
    fn open(&mut self, element: &BytesStart<'_>) -> io::Result<()> {
        let attributes = read_attributes(element)?;
        match element.name().as_ref() {
            "testsuites" => {
                let root = self.root_attributes();
                self.start("testsuites", &root)
            }
            "testsuite" => {
                self.suite = Some(self.suite.map_or(0, |index| index + 1));
                self.case = None;
                let attributes = self.suite_attributes(attributes)?;
                self.start("testsuite", &attributes)?;
                let properties = &self.suite_extra()?.properties;
                self.properties(properties)
            }
            "testcase" => {
                let extra = self.next_case()?;
                let attributes = self.case_attributes(attributes, extra);
                self.start("testcase", &attributes)?;
                match self.dialect {
                    Dialect::Strict => Ok(()),
                    Dialect::Extended => self.properties(&extra.properties),
                }
            }
            name => self.start(name, &attributes),
        }
    }

    fn close(&mut self, element: &BytesEnd<'_>) -> io::Result<()> {
        self.put(Event::End(element.borrow()))
    }

    /// Whether an element without content stays without: a passing case in the strict dialect, and what is neither a
    /// suite nor a case.
    fn is_bare(&self, element: &BytesStart<'_>) -> bool {
        match element.name().as_ref() {
            "testsuites" | "testsuite" => false,
            "testcase" => self.dialect == Dialect::Strict,
            _ => true,
        }
    }

    fn put_bare(&mut self, element: &BytesStart<'_>) -> io::Result<()> {
        let mut attributes = read_attributes(element)?;
        if element.name().as_ref() == "testcase" {
            let extra = self.next_case()?;
            attributes = self.case_attributes(attributes, extra);
        }
        let name = element.name();
        self.put(Event::Empty(with_attributes(name.as_ref(), &attributes)))
    }

    /// Advances to the next case of the suite, and returns what was drafted for it.
    fn next_case(&mut self) -> io::Result<&'a CaseExtra> {
        let index = self.case.map_or(0, |index| index + 1);
        self.case = Some(index);
        let extra = self.suite_extra()?.cases.get(index);
        extra.ok_or_else(|| io::Error::other("a case nobody drafted"))
    }

    fn case_attributes(&self, mut attributes: Attributes, extra: &CaseExtra) -> Attributes {
        set_time(&mut attributes);
        match self.dialect {
            Dialect::Strict => attributes.retain(|(name, _)| name != "file"),
            Dialect::Extended => {
                let line = extra.line.iter().cloned();
                attributes.extend(line.map(|line| ("line".to_owned(), line)));
            }
        }
        attributes
    }

    fn suite_extra(&self) -> io::Result<&'a SuiteExtra> {
        let extra = self.suite.and_then(|suite| self.draft.suites.get(suite));
        extra.ok_or_else(|| io::Error::other("a suite nobody drafted"))
    }

    fn root_attributes(&self) -> Attributes {
        let suites = self.draft.report.testsuites();
        let count = |of: fn(&junit_report::TestSuite) -> usize| {
            suites.iter().map(of).sum::<usize>().to_string()
        };
        let time: f64 = suites
            .iter()
            .map(|suite| suite.time().as_seconds_f64())
            .sum();
        let mut attributes = vec![
            ("name".to_owned(), self.draft.run.clone()),
            ("tests".to_owned(), count(junit_report::TestSuite::tests)),
            (
                "failures".to_owned(),
                count(junit_report::TestSuite::failures),
            ),
            ("errors".to_owned(), count(junit_report::TestSuite::errors)),
            ("time".to_owned(), seconds(time)),
        ];
        match self.dialect {
            Dialect::Strict => {}
            Dialect::Extended => {
                let skipped = count(junit_report::TestSuite::skipped);
                attributes.push(("skipped".to_owned(), skipped));
                attributes.push(("timestamp".to_owned(), self.draft.started.clone()));
            }
        }
        attributes
    }

    fn suite_attributes(&self, mut attributes: Attributes) -> io::Result<Attributes> {
        set_time(&mut attributes);
        // The model says `localhost` whatever the host was.
        attributes.retain(|(name, _)| name != "hostname");
        let suite = self
            .suite
            .and_then(|index| self.draft.report.testsuites().get(index));
        let suite = suite.ok_or_else(|| io::Error::other("a suite nobody drafted"))?;
        attributes.push(("skipped".to_owned(), suite.skipped().to_string()));
        Ok(attributes)
    }

    fn properties(&mut self, properties: &[(String, String)]) -> io::Result<()> {
        if properties.is_empty() {
            return Ok(());
        }
        self.start("properties", &[])?;
        for (name, value) in properties {
            let pair = [
                ("name".to_owned(), name.clone()),
                ("value".to_owned(), value.clone()),
            ];
            self.put(Event::Empty(with_attributes("property", &pair)))?;
        }
        self.put(Event::End(BytesEnd::new("properties")))
    }

    fn start(&mut self, name: &str, attributes: &[(String, String)]) -> io::Result<()> {
        self.put(Event::Start(with_attributes(name, attributes)))
    }

    fn put(&mut self, event: Event<'_>) -> io::Result<()> {
        self.writer.write_event(event)
    }
}

fn with_attributes<'n>(name: &'n str, attributes: &[(String, String)]) -> BytesStart<'n> {
    let attributes = attributes.iter();
    let attributes = attributes.map(|(name, value)| (name.as_str(), value.as_str()));
    BytesStart::new(name).with_attributes(attributes)
}

fn read_attributes(element: &BytesStart<'_>) -> io::Result<Attributes> {
    let attributes = element.attributes();
    attributes
        .map(|attribute| {
            let attribute = attribute.map_err(io::Error::other)?;
            let value = attribute
                .normalized_value(XmlVersion::Explicit1_0)
                .map_err(io::Error::other)?;
            Ok((attribute.key.as_ref().to_owned(), value.into_owned()))
        })
        .collect()
}

fn set_time(attributes: &mut Attributes) {
    for (name, value) in attributes {
        if name == "time" {
            *value = seconds(value.parse().unwrap_or(0.0));
        }
    }
}

/// At most three decimals, never an exponent, and never the `-0` that a sum of nothing is.
fn seconds(time: f64) -> String {
    format!("{:.3}", time.abs())
}
