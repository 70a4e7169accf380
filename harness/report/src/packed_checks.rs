//! Stores checks in little memory: some hundred bytes for each that passed. Values that many checks share are stored once, the
//! others as JSON without default values. [`record`](CheckSet::record) makes a new record each time.

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

/// The size of a chunk, in bytes. Memory is allocated in chunks, because a list in one piece needs twice its size while it grows.
const CHUNK: usize = 1 << 20;

/// The checks of a run, packed.
#[derive(Clone)]
pub struct PackedChecks {
    entries: Vec<Entry>,
    chunks: Vec<Vec<u8>>,
    scenarios: Index<ScenarioId>,
    columns: Index<Column>,
    covers: Index<Vec<RequirementId>>,
    texts: Index<String>,
}

/// Where the bytes of a check are, and its fields that are read most often.
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

/// The other fields of a check. Numbers are indices of texts; a pair is a name and its value.
#[derive(Serialize, Deserialize)]
struct Packed<'a> {
    /// The check's id without the scenario's id.
    #[serde(rename = "n", borrow)]
    name: Cow<'a, str>,
    /// True if `name` is the whole id, because that does not begin with the scenario's id.
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

/// The fields that a passing check has not.
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

    fn text(&self, index: usize) -> &str {
        self.texts.get(index).expect("the index of a text")
    }
}

impl CheckSet for PackedChecks {
    fn count(&self) -> usize {
        self.entries.len()
    }

    fn brief(&self, index: usize) -> Brief<'_> {
        let entry = self.entries[index];
        let scenario = self.scenarios.get(entry.scenario as usize);
        let column = self.columns.get(entry.column as usize);
        Brief {
            scenario: scenario.expect("the index of a scenario"),
            column: column.expect("the index of a column"),
            outcome: entry.outcome,
            verdict: entry.verdict,
            duration_us: entry.duration_us,
        }
    }

    fn record(&self, index: usize) -> Cow<'_, CheckRecord> {
        let entry = self.entries[index];
        let bytes = &self.chunks[entry.chunk as usize][entry.start as usize..];
        let packed: Packed<'_> = serde_json::from_slice(&bytes[..entry.length as usize])
            .expect("what was packed can be unpacked");
        let brief = self.brief(index);
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
            covers: covers.expect("the index of a list").clone(),
            params: self.unpack_pairs(&packed.params),
            at: self.text(packed.at).to_owned(),
            outcome: brief.outcome,
            verdict: brief.verdict,
            summary: packed
                .summary
                .map_or_else(String::new, |index| self.text(index).to_owned()),
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
        self.entries = order.iter().map(|index| self.entries[*index]).collect();
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

/// Returns an index or a length as it is stored; a chunk has at most the bytes of one record or of [`CHUNK`].
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
