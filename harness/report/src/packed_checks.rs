//! Checks in little memory: some hundred bytes for each that passed. What many checks share is stored once, the rest as JSON without
//! what has its default; a record is made anew each time that it is asked for.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::check_set::{Brief, CheckSet};
use super::index::Index;
use allranks_model::diagnosis::Diagnosis;
use allranks_model::names::{CaseId, CheckId, RequirementId, ScenarioId};
use allranks_model::outcome::{Outcome, Verdict};
use allranks_model::record::{CheckRecord, Column, Difference, FORMAT, RankLine, Reason};

/// Bytes that are allocated at a time: a list that grows as one piece needs twice its size while it is moved.
const CHUNK: usize = 1 << 20;

/// Checks in little memory.
#[derive(Clone)]
pub struct PackedChecks {
    entries: Vec<Entry>,
    chunks: Vec<Vec<u8>>,
    scenarios: Index<ScenarioId>,
    columns: Index<Column>,
    covers: Index<Vec<RequirementId>>,
    texts: Index<String>,
}

/// Where a check is, and what is asked of it most often.
#[derive(Clone, Copy)]
struct Entry {
    chunk: u32,
    start: u32,
    length: u32,
    scenario: u32,
    column: u32,
    outcome: Outcome,
    verdict: Verdict,
    duration_us: u64,
}

/// The rest of a check. Numbers are places of texts, in pairs for a name and its value.
#[derive(Serialize, Deserialize)]
struct Packed<'a> {
    /// The id without that of the scenario.
    #[serde(rename = "n", borrow)]
    name: Cow<'a, str>,
    /// Whether `name` is all of the id: it does not begin with that of the scenario.
    #[serde(rename = "i", default, skip_serializing_if = "is_false")]
    is_whole: bool,
    #[serde(rename = "f", default = "format", skip_serializing_if = "is_format")]
    format: u32,
    #[serde(rename = "c")]
    case: usize,
    #[serde(rename = "r")]
    covers: usize,
    #[serde(rename = "p", default, skip_serializing_if = "Vec::is_empty")]
    params: Vec<(usize, usize)>,
    #[serde(rename = "a")]
    at: usize,
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    summary: Option<usize>,
    #[serde(rename = "o", default, skip_serializing_if = "Vec::is_empty")]
    observations: Vec<(usize, usize)>,
    #[serde(rename = "e", default, skip_serializing_if = "<[u64]>::is_empty")]
    checked: Cow<'a, [u64]>,
    #[serde(rename = "x", default, skip_serializing_if = "Option::is_none")]
    rare: Option<Rare<'a>>,
}

/// What only a check has that is not simply right.
#[derive(Default, Serialize, Deserialize)]
struct Rare<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    remark: Cow<'a, Option<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    class: Cow<'a, Option<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    difference: Cow<'a, Option<Difference>>,
    #[serde(default, skip_serializing_if = "<[RankLine]>::is_empty")]
    ranks: Cow<'a, [RankLine]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    diagnosis: Cow<'a, Option<Box<Diagnosis>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expectation: Cow<'a, Option<Reason>>,
}

impl Default for PackedChecks {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            chunks: Vec::new(),
            scenarios: Index::new(),
            columns: Index::new(),
            covers: Index::new(),
            texts: Index::new(),
        }
    }
}

impl fmt::Debug for PackedChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.records()).finish()
    }
}

impl PartialEq for PackedChecks {
    fn eq(&self, other: &Self) -> bool {
        self.count() == other.count() && self.records().eq(other.records())
    }
}

impl PackedChecks {
    /// Stores bytes in one piece; returns their chunk, and where they begin in it.
    fn store(&mut self, bytes: &[u8]) -> (u32, u32) {
        let has_room = |chunk: &Vec<u8>| chunk.capacity() - chunk.len() >= bytes.len();
        if !self.chunks.last().is_some_and(has_room) {
            self.chunks.push(Vec::with_capacity(CHUNK.max(bytes.len())));
        }
        let number = self.chunks.len() - 1;
        let chunk = &mut self.chunks[number];
        let start = chunk.len();
        chunk.extend_from_slice(bytes);
        (narrow(number), narrow(start))
    }

    fn pack_pairs(&mut self, pairs: &BTreeMap<String, String>) -> Vec<(usize, usize)> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (self.texts.of(name), self.texts.of(value)))
            .collect()
    }

    fn unpack_pairs(&self, pairs: &[(usize, usize)]) -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (self.text(*name).to_owned(), self.text(*value).to_owned()))
            .collect()
    }

    fn text(&self, place: usize) -> &str {
        self.texts.get(place).expect("a text has a place")
    }
}

impl CheckSet for PackedChecks {
    fn count(&self) -> usize {
        self.entries.len()
    }

    fn brief(&self, place: usize) -> Brief<'_> {
        let entry = self.entries[place];
        let scenario = self.scenarios.get(entry.scenario as usize);
        let column = self.columns.get(entry.column as usize);
        Brief {
            scenario: scenario.expect("a scenario has a place"),
            column: column.expect("a column has a place"),
            outcome: entry.outcome,
            verdict: entry.verdict,
            duration_us: entry.duration_us,
        }
    }

    fn record(&self, place: usize) -> Cow<'_, CheckRecord> {
        let entry = self.entries[place];
        let bytes = &self.chunks[entry.chunk as usize][entry.start as usize..];
        let packed: Packed<'_> = serde_json::from_slice(&bytes[..entry.length as usize])
            .expect("what was packed can be unpacked");
        let brief = self.brief(place);
        let id = match packed.is_whole {
            true => packed.name.into_owned(),
            false => format!("{}#{}", brief.scenario, packed.name),
        };
        let covers = self.covers.get(packed.covers);
        let rare = packed.rare.unwrap_or_default();
        Cow::Owned(CheckRecord {
            format: packed.format,
            id: CheckId(id),
            scenario: brief.scenario.clone(),
            case: CaseId(self.text(packed.case).to_owned()),
            column: brief.column.clone(),
            covers: covers.expect("a list has a place").clone(),
            params: self.unpack_pairs(&packed.params),
            at: self.text(packed.at).to_owned(),
            outcome: brief.outcome,
            verdict: brief.verdict,
            summary: packed
                .summary
                .map_or_else(String::new, |place| self.text(place).to_owned()),
            remark: rare.remark.into_owned(),
            class: rare.class.into_owned(),
            difference: rare.difference.into_owned(),
            ranks: rare.ranks.into_owned(),
            diagnosis: rare.diagnosis.into_owned(),
            expectation: rare.expectation.into_owned(),
            observations: self.unpack_pairs(&packed.observations),
            checked: packed.checked.into_owned(),
            duration_us: brief.duration_us,
        })
    }

    fn add(&mut self, check: CheckRecord) {
        let id = check.id.as_str();
        let name = id.strip_prefix(check.scenario.as_str());
        let name = name.and_then(|rest| rest.strip_prefix('#'));
        let rare = Rare::of(&check);
        let packed = Packed {
            name: Cow::Borrowed(name.unwrap_or(id)),
            is_whole: name.is_none(),
            format: check.format,
            case: self.texts.of(&check.case.0),
            covers: self.covers.of(&check.covers),
            params: self.pack_pairs(&check.params),
            at: self.texts.of(&check.at),
            summary: match check.summary.is_empty() {
                true => None,
                false => Some(self.texts.of(&check.summary)),
            },
            observations: self.pack_pairs(&check.observations),
            checked: Cow::Borrowed(&check.checked),
            rare: (!rare.is_empty()).then_some(rare),
        };
        let bytes = serde_json::to_vec(&packed).expect("texts and numbers can be packed");
        let (chunk, start) = self.store(&bytes);
        self.entries.push(Entry {
            chunk,
            start,
            length: narrow(bytes.len()),
            scenario: narrow(self.scenarios.of(&check.scenario)),
            column: narrow(self.columns.of(&check.column)),
            outcome: check.outcome,
            verdict: check.verdict,
            duration_us: check.duration_us,
        });
    }

    fn reorder(&mut self, order: &[usize]) {
        self.entries = order.iter().map(|place| self.entries[*place]).collect();
    }
}

impl<'a> Rare<'a> {
    fn of(check: &'a CheckRecord) -> Self {
        Self {
            remark: Cow::Borrowed(&check.remark),
            class: Cow::Borrowed(&check.class),
            difference: Cow::Borrowed(&check.difference),
            ranks: Cow::Borrowed(&check.ranks),
            diagnosis: Cow::Borrowed(&check.diagnosis),
            expectation: Cow::Borrowed(&check.expectation),
        }
    }

    fn is_empty(&self) -> bool {
        self.remark.is_none()
            && self.class.is_none()
            && self.difference.is_none()
            && self.ranks.is_empty()
            && self.diagnosis.is_none()
            && self.expectation.is_none()
    }
}

/// Returns a place or length as it is stored; a chunk has at most the bytes of one record or of [`CHUNK`].
fn narrow(number: usize) -> u32 {
    u32::try_from(number).expect("four thousand million are not reached")
}

fn is_false(value: &bool) -> bool {
    !value
}

fn format() -> u32 {
    FORMAT
}

fn is_format(format: &u32) -> bool {
    *format == FORMAT
}
