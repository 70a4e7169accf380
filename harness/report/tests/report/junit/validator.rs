//! The rules of JUnit's readers, as a validator of our own: well-formed XML 1.0; the elements and attributes of
//! `junit-10.xsd` for the strict dialect, and ours for the extended one; unique names; sizes; counts that agree.

use std::collections::{BTreeMap, BTreeSet};

use allranks_report::junit::{Dialect, MESSAGE_LIMIT, SYSTEM_OUT_LIMIT, TEXT_LIMIT};
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

/// What a valid file holds.
#[derive(Debug, Default)]
pub struct Document {
    pub suites: Vec<Suite>,
    pub cases: Vec<Case>,
}

#[derive(Debug, Default)]
pub struct Suite {
    pub name: String,
    pub attributes: BTreeMap<String, String>,
    pub properties: Vec<(String, String)>,
}

#[derive(Debug, Default)]
pub struct Case {
    pub suite: usize,
    pub name: String,
    pub classname: String,
    pub attributes: BTreeMap<String, String>,
    pub properties: Vec<(String, String)>,
    pub result: Option<CaseResult>,
    pub system_out: Option<String>,
}

#[derive(Debug, Default)]
pub struct CaseResult {
    pub element: String,
    pub type_: String,
    pub message: String,
    pub text: String,
}

/// Reads a file and says the first rule it breaks.
pub fn validate(xml: &str, dialect: Dialect) -> Result<Document, String> {
    check_characters(xml)?;
    let mut reader = Reader::from_str(xml);
    reader.config_mut().check_end_names = true;
    let mut document = Document::default();
    let mut open: Vec<String> = Vec::new();
    let mut root = None;
    loop {
        match reader.read_event().map_err(|error| error.to_string())? {
            Event::Decl(_) if open.is_empty() && root.is_none() => {}
            Event::Start(element) => {
                let name = enter(&mut document, &mut root, &open, &element, dialect)?;
                open.push(name);
            }
            Event::Empty(element) => {
                enter(&mut document, &mut root, &open, &element, dialect)?;
            }
            Event::End(_) => {
                open.pop().ok_or("an end too many")?;
            }
            Event::Text(text) => put(&mut document, &open, &text.xml10_content())?,
            Event::GeneralRef(reference) => {
                let name = reference.into_inner();
                let text = quick_xml::escape::unescape(&format!("&{name};"))
                    .map_err(|error| error.to_string())?
                    .into_owned();
                put(&mut document, &open, &text)?;
            }
            Event::Eof => break,
            other => return Err(format!("unexpected {other:?}")),
        }
    }
    if !open.is_empty() {
        return Err(format!("left open: {open:?}"));
    }
    check_sizes(&document)?;
    check_names(&document)?;
    check_counts(&document, &root.ok_or("no root")?, dialect)?;
    Ok(document)
}

/// <https://www.w3.org/TR/xml/#charsets>, and no escape sequences.
fn check_characters(xml: &str) -> Result<(), String> {
    let legal = |c: char| matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
    match xml.char_indices().find(|(_, c)| !legal(*c)) {
        Some((at, c)) => Err(format!("character {c:?} at byte {at}")),
        None => Ok(()),
    }
}

type Attributes = BTreeMap<String, String>;

fn enter(
    document: &mut Document,
    root: &mut Option<Attributes>,
    open: &[String],
    element: &BytesStart<'_>,
    dialect: Dialect,
) -> Result<String, String> {
    let name = element.name().as_ref().to_owned();
    let parent = open.last().map_or("", String::as_str);
    let attributes = attributes(element)?;
    check_place(parent, &name, open, dialect)?;
    check_attributes(&name, &attributes, dialect)?;
    match name.as_str() {
        "testsuites" if root.is_some() => return Err("two roots".into()),
        "testsuites" => *root = Some(attributes),
        "testsuite" => document.suites.push(Suite {
            name: attributes["name"].clone(),
            attributes,
            properties: Vec::new(),
        }),
        "testcase" => document.cases.push(Case {
            suite: document.suites.len() - 1,
            name: attributes["name"].clone(),
            classname: attributes["classname"].clone(),
            attributes,
            ..Case::default()
        }),
        "property" => {
            let pair = (attributes["name"].clone(), attributes["value"].clone());
            let in_case = open.iter().any(|one| one == "testcase");
            let suite = document.suites.last_mut().ok_or("no suite")?;
            match document.cases.last_mut() {
                Some(case) if in_case => case.properties.push(pair),
                _ => suite.properties.push(pair),
            }
        }
        "failure" | "error" | "skipped" => {
            let case = document.cases.last_mut().ok_or("no case")?;
            let result = CaseResult {
                element: name.clone(),
                type_: attributes["type"].clone(),
                message: attributes["message"].clone(),
                text: String::new(),
            };
            if case.result.replace(result).is_some() {
                return Err(format!("two results in {}", case.name));
            }
        }
        "system-out" => {
            let case = document.cases.last_mut().ok_or("no case")?;
            if case.system_out.replace(String::new()).is_some() {
                return Err(format!("two outputs in {}", case.name));
            }
        }
        _ => {}
    }
    Ok(name)
}

fn put(document: &mut Document, open: &[String], text: &str) -> Result<(), String> {
    let element = open.last().map_or("", String::as_str);
    let case = document.cases.last_mut();
    match (element, case) {
        ("failure" | "error" | "skipped", Some(case)) => {
            case.result.get_or_insert_default().text.push_str(text);
            Ok(())
        }
        ("system-out", Some(case)) => {
            case.system_out.get_or_insert_default().push_str(text);
            Ok(())
        }
        _ if text.trim().is_empty() => Ok(()),
        _ => Err(format!("text in {element}: {text:?}")),
    }
}

fn attributes(element: &BytesStart<'_>) -> Result<Attributes, String> {
    element
        .attributes()
        .map(|attribute| {
            let attribute = attribute.map_err(|error| error.to_string())?;
            let value = attribute
                .normalized_value(XmlVersion::Explicit1_0)
                .map_err(|error| error.to_string())?;
            Ok((attribute.key.as_ref().to_owned(), value.into_owned()))
        })
        .collect()
}

fn check_place(parent: &str, name: &str, open: &[String], dialect: Dialect) -> Result<(), String> {
    let fine = match (parent, name) {
        ("", "testsuites")
        | ("testsuites", "testsuite")
        | ("testsuite", "properties" | "testcase")
        | ("properties", "property")
        | ("testcase", "failure" | "error" | "skipped" | "system-out") => true,
        ("testcase", "properties") => dialect == Dialect::Extended,
        _ => false,
    };
    if fine {
        Ok(())
    } else {
        Err(format!("{name} in {open:?} in {dialect:?}"))
    }
}

fn check_attributes(name: &str, found: &Attributes, dialect: Dialect) -> Result<(), String> {
    let (required, extended): (&[&str], &[&str]) = match name {
        "testsuites" => (
            &["name", "tests", "failures", "errors", "time"],
            &["skipped", "timestamp"],
        ),
        "testsuite" => (
            &[
                "id",
                "name",
                "package",
                "tests",
                "failures",
                "errors",
                "skipped",
                "time",
                "timestamp",
            ],
            &[],
        ),
        "testcase" => (&["name", "classname", "time"], &["file", "line"]),
        "failure" | "error" | "skipped" => (&["type", "message"], &[]),
        "property" => (&["name", "value"], &[]),
        _ => (&[], &[]),
    };
    for attribute in required {
        if !found.contains_key(*attribute) {
            return Err(format!("{name} has no {attribute}"));
        }
    }
    for (attribute, value) in found {
        let known = required.contains(&attribute.as_str())
            || (dialect == Dialect::Extended && extended.contains(&attribute.as_str()));
        if !known {
            return Err(format!("{name} has {attribute} in {dialect:?}"));
        }
        if attribute == "time" {
            check_time(value)?;
        }
        if value.contains('\n') {
            return Err(format!("{attribute} of {name} has several lines"));
        }
    }
    Ok(())
}

/// Digits, and at most three decimals.
fn check_time(time: &str) -> Result<(), String> {
    let (whole, decimals) = time.split_once('.').unwrap_or((time, ""));
    let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    if !whole.is_empty() && digits(whole) && digits(decimals) && decimals.len() <= 3 {
        Ok(())
    } else {
        Err(format!("time {time:?}"))
    }
}

fn check_sizes(document: &Document) -> Result<(), String> {
    for case in &document.cases {
        if let Some(result) = &case.result {
            if result.message.len() > MESSAGE_LIMIT || result.message.is_empty() {
                return Err(format!("message of {} bytes", result.message.len()));
            }
            if result.text.len() > TEXT_LIMIT {
                return Err(format!("text of {} bytes", result.text.len()));
            }
            if result.element != "skipped" && result.text.is_empty() {
                return Err(format!("{} fails without a text", case.name));
            }
        }
        if let Some(out) = &case.system_out
            && (out.len() > SYSTEM_OUT_LIMIT || !out.contains("repeat: allranks run"))
        {
            return Err(format!("system-out of {} bytes", out.len()));
        }
    }
    Ok(())
}

fn check_names(document: &Document) -> Result<(), String> {
    let mut names = BTreeSet::new();
    for case in &document.cases {
        if case.name.is_empty() || !names.insert(&case.name) {
            return Err(format!("name {:?} twice", case.name));
        }
        let fine = |c: char| c.is_alphanumeric() || "._-".contains(c);
        if !case.classname.contains('.') || !case.classname.chars().all(fine) {
            return Err(format!("classname {:?}", case.classname));
        }
    }
    let suites: BTreeSet<&String> = document.suites.iter().map(|suite| &suite.name).collect();
    if suites.len() == document.suites.len() {
        Ok(())
    } else {
        Err("two suites with one name".into())
    }
}

fn check_counts(document: &Document, root: &Attributes, dialect: Dialect) -> Result<(), String> {
    let mut totals = BTreeMap::<&str, usize>::new();
    for (index, suite) in document.suites.iter().enumerate() {
        let cases = || document.cases.iter().filter(|case| case.suite == index);
        let with = |element: &str| {
            let results = cases().filter_map(|case| case.result.as_ref());
            results.filter(|result| result.element == element).count()
        };
        let counts = [
            ("tests", cases().count()),
            ("failures", with("failure")),
            ("errors", with("error")),
            ("skipped", with("skipped")),
        ];
        for (name, count) in counts {
            *totals.entry(name).or_default() += count;
            if suite.attributes[name] != count.to_string() {
                return Err(format!("{name} of {} is not {count}", suite.name));
            }
        }
    }
    for (name, total) in totals {
        let wanted = dialect == Dialect::Extended || name != "skipped";
        if wanted && root[name] != total.to_string() {
            return Err(format!("{name} of the root is not {total}"));
        }
    }
    Ok(())
}
