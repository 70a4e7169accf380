//! Files that pages show: cases, platform files and expectations must be valid.

use std::fs;
use std::path::Path;

use super::binary::run;
use super::page::Block;

/// What is wrong with an example: what the binary says of it. None for blocks that are not whole files.
pub fn invalid(block: &Block) -> Option<String> {
    let text = dedented(&block.lines);
    let has = |key: &str| text.lines().any(|line| line.starts_with(key));
    let folder = tempfile::tempdir().unwrap();
    let (name, option) = match () {
        () if block.language != "yaml" => return None,
        () if has("id: ") && has("title: ") => (format!("{}.yaml", id(&text)), None),
        () if has("device_type: ") => ("platform.yaml".to_owned(), Some("--platforms")),
        () if has("- match: ") => ("expectations.yaml".to_owned(), Some("--expectations")),
        () => return None,
    };
    let file = folder.path().join(&name);
    // Requirements that the page tells its reader to add are not there; any other will do.
    fs::write(&file, text.replace("COLL-900", "COLL-001")).unwrap();
    // What a case's program runs must exist.
    fs::write(folder.path().join("train.py"), "").unwrap();
    let mut arguments = vec!["list"];
    arguments.extend(option);
    arguments.push(file.to_str().unwrap());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let ran = run(&root, &arguments);
    (ran.code != Some(0)).then_some(ran.output)
}

/// A case's id without its folders: outside the suite, the id is the name of the file.
fn id(text: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix("id: "));
    let id = line.unwrap().split(" #").next().unwrap().trim();
    id.rsplit('/').next().unwrap().to_owned()
}

/// The lines without the indentation that all of them have.
fn dedented(lines: &[String]) -> String {
    let filled = lines.iter().filter(|line| !line.trim().is_empty());
    let indent = filled
        .map(|line| line.len() - line.trim_start().len())
        .min();
    let cut = |line: &String| format!("{}\n", line.get(indent.unwrap_or(0)..).unwrap_or_default());
    lines.iter().map(cut).collect()
}

#[cfg(test)]
fn block(language: &str, text: &str) -> Block {
    Block {
        line: 1,
        language: language.to_owned(),
        lines: text.lines().map(str::to_owned).collect(),
    }
}

#[test]
fn examples_that_are_wrong_are_found() {
    let case = "  id: x\n  title: a barrier\n  covers: [COLL-900]\n  steps:\n    - barrier: {}\n";
    assert_eq!(invalid(&block("yaml", case)), None);
    assert_eq!(invalid(&block("text", "id: x\ntitle: y\n")), None);
    let wrong = case.replace("barrier: {}", "barier: {}");
    assert!(invalid(&block("yaml", &wrong)).unwrap().contains("barier"));
    let platform = "name: x\ndevice_type: x\nevidence: gossip\nbackends: {y: {}}\n";
    assert!(
        invalid(&block("yaml", platform))
            .unwrap()
            .contains("gossip")
    );
    let expectation = "- match: {op: barrier}\n  outcome: pass\n  reason: x\n";
    assert!(invalid(&block("yaml", expectation)).is_some());
}
