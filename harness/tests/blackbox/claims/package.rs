//! A package in memory, to be changed and written again.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use ruzstd::decoding::StreamingDecoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Archive, Builder, EntryType, Header};

use super::super::stage::Stage;

/// The files of a package, by path.
#[derive(Clone, Debug)]
pub struct Package {
    pub files: BTreeMap<String, Vec<u8>>,
    /// Entries that come last, as they are.
    pub entries: Vec<(String, EntryType)>,
}

/// SHA-256 in hexadecimal.
pub fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Package {
    /// Reads a package.
    pub fn read(path: &Path) -> Self {
        let mut bytes = &std::fs::read(path).unwrap()[..];
        let mut tar = Vec::new();
        while !bytes.is_empty() {
            let mut frame = StreamingDecoder::new(&mut bytes).unwrap();
            frame.read_to_end(&mut tar).unwrap();
        }
        let mut files = BTreeMap::new();
        for entry in Archive::new(&tar[..]).entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            files.insert(path, bytes);
        }
        Self {
            files,
            entries: Vec::new(),
        }
    }

    /// Writes it onto a stage. Returns the path.
    pub fn write(&self, stage: &Stage, name: &str) -> String {
        let mut builder = Builder::new(Vec::new());
        for (path, bytes) in &self.files {
            let mut header = Header::new_gnu();
            header.set_mode(0o644);
            header.set_size(bytes.len() as u64);
            builder.append_data(&mut header, path, &bytes[..]).unwrap();
        }
        for (path, kind) in &self.entries {
            let mut header = Header::new_gnu();
            header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
            header.set_entry_type(*kind);
            header.set_size(0);
            header.set_cksum();
            builder.append(&header, &[][..]).unwrap();
        }
        let tar = builder.into_inner().unwrap();
        let path = stage.path(name);
        let packed = compress_to_vec(&tar[..], CompressionLevel::Fastest);
        File::create(&path).unwrap().write_all(&packed).unwrap();
        path.display().to_string()
    }

    /// A file as text.
    pub fn text(&self, path: &str) -> String {
        String::from_utf8(self.files[path].clone()).unwrap()
    }

    /// Replaces a part of a file, which must be there.
    pub fn replace(&mut self, path: &str, from: &str, to: &str) {
        let text = self.text(path);
        assert!(text.contains(from), "`{from}` is not in {path}:\n{text}");
        self.files
            .insert(path.to_owned(), text.replace(from, to).into_bytes());
    }

    /// The records of a run.
    pub fn records(&self, run: usize) -> Vec<Value> {
        let text = self.text(&format!("runs/{run}/results.jsonl"));
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Writes the records of a run as they are.
    pub fn set_records(&mut self, run: usize, records: &[Value]) {
        let lines: Vec<String> = records.iter().map(Value::to_string).collect();
        let text = format!("{}\n", lines.join("\n"));
        self.files
            .insert(format!("runs/{run}/results.jsonl"), text.into_bytes());
    }

    /// Changes the records of both runs, and makes totals and exit codes follow.
    pub fn change(&mut self, change: impl Fn(&mut Vec<Value>)) {
        for run in [1, 2] {
            self.change_run(run, &change);
        }
    }

    /// Changes the records of one run, and makes totals and exit code follow.
    pub fn change_run(&mut self, run: usize, change: impl Fn(&mut Vec<Value>)) {
        let mut records = self.records(run);
        change(&mut records);
        retotal(&mut records);
        self.set_records(run, &records);
    }

    /// Changes the record of the check with the lowest id for which this is so, in both runs: their records are in different orders.
    pub fn change_check(&mut self, is_it: impl Fn(&Value) -> bool, change: impl Fn(&mut Value)) {
        self.change(|records| {
            let checks = records
                .iter_mut()
                .filter(|record| record["type"] == "check" && is_it(record));
            change(
                checks
                    .min_by_key(|check| check["id"].as_str().unwrap().to_owned())
                    .unwrap(),
            );
        });
    }

    /// Changes the first record of both runs, what the run was made from among it.
    pub fn change_head(&mut self, change: impl Fn(&mut Value)) {
        for run in [1, 2] {
            let mut records = self.records(run);
            change(&mut records[0]);
            self.set_records(run, &records);
        }
    }

    /// Puts a file in, and lets both runs say that they were given it.
    pub fn give(&mut self, path: &str, text: &str) {
        let input = json!({"path": path, "sha256": digest(text.as_bytes())});
        self.files.insert(path.to_owned(), text.as_bytes().to_vec());
        self.change_head(|head| {
            let inputs = head["origin"]["inputs"].as_array_mut().unwrap();
            inputs.retain(|one| one["path"] != path);
            inputs.push(input.clone());
        });
    }

    /// Writes the manifest anew.
    pub fn relist(&mut self) {
        let mut manifest: Value = serde_json::from_slice(&self.files["manifest.json"]).unwrap();
        self.files.remove("manifest.json");
        let listed = self.files.iter().map(|(path, bytes)| {
            let entry = json!({"sha256": digest(bytes), "size": bytes.len()});
            (path.clone(), entry)
        });
        manifest["files"] = Value::Object(listed.collect());
        let bytes = serde_json::to_vec(&manifest).unwrap();
        self.files.insert("manifest.json".to_owned(), bytes);
    }
}

/// Makes the numbers in the first and the last record follow from the others.
fn retotal(records: &mut [Value]) {
    let mut totals = BTreeMap::<(&str, String), u64>::new();
    let (mut checks, mut scenarios) = (0, 0);
    for record in records.iter() {
        match record["type"].as_str() {
            Some("check") => {
                checks += 1;
                for (field, plural) in [("verdict", "verdicts"), ("outcome", "outcomes")] {
                    let word = record[field].as_str().unwrap().to_owned();
                    *totals.entry((plural, word)).or_default() += 1;
                }
            }
            Some("scenario") => scenarios += 1,
            _ => {}
        }
    }
    records[0]["planned"] = json!({"scenarios": scenarios, "checks": checks});
    let Some(end) = records.iter_mut().find(|record| record["type"] == "end") else {
        return;
    };
    let has = |plural, word: &str| totals.contains_key(&(plural, word.to_owned()));
    let is_unexpected = has("verdicts", "regression") || has("verdicts", "unexpected-pass");
    end["exit_code"] = match (
        has("outcomes", "harness-error"),
        is_unexpected,
        has("verdicts", "not-run"),
    ) {
        (true, _, _) => json!(10),
        (_, true, _) => json!(1),
        (_, _, true) => json!(4),
        _ => json!(0),
    };
    for plural in ["verdicts", "outcomes"] {
        let of_kind = totals.iter().filter(|((kind, _), _)| *kind == plural);
        end[plural] = of_kind
            .map(|((_, word), count)| (word.clone(), json!(count)))
            .collect();
    }
}
