//! The JSON schemas of files of expectations and of waivers, for editors.

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use super::Size;
use super::file::Written;
use super::waiver::WrittenWaiver;

impl JsonSchema for Size {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A size: `33`, `\"2..8\"`, `\"2..\"`, and for `numel` also `scalar`.",
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": "^(scalar|[0-9]+\\.\\.[0-9]*)$"}
            ]
        })
    }
}

/// Returns the JSON schema of files of expectations, draft 2020-12.
#[must_use]
pub fn schema() -> Value {
    of_list::<Written>("allranks expectations")
}

/// Returns the JSON schema of files of waivers, draft 2020-12.
#[must_use]
pub fn waiver_schema() -> Value {
    of_list::<WrittenWaiver>("allranks waivers")
}

fn of_list<T: JsonSchema>(title: &str) -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<Vec<T>>();
    schema.insert("title".to_owned(), Value::from(title));
    schema.to_value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::schema_tests::{accepts, read, repository};

    fn is_valid(schema: &Value, file: &std::path::Path) -> bool {
        accepts(schema, schema, &read(file))
    }

    #[test]
    fn what_loads_is_valid_against_the_schema() {
        let files = allranks_yaml::yaml_files(&repository("fixtures/expectations")).unwrap();
        assert!(files.len() > 3);
        for file in files {
            assert!(is_valid(&schema(), &file), "{}", file.display());
        }
        let waiver = serde_json::json!([{
            "requirement": "NUM-001", "match": {"backend": "mine", "op": "all_reduce"}, "outcome": "mismatch", "reason": "r",
            "url": "https://example.org/1", "expiry": "2026-12-31", "approver": "numerics team"
        }]);
        let of_waivers = waiver_schema();
        assert!(accepts(&of_waivers, &of_waivers, &waiver));
        assert!(
            !accepts(&schema(), &schema(), &waiver),
            "not an expectation"
        );
    }

    #[test]
    fn the_schema_knows_fields_and_values() {
        let folder = repository("fixtures/bad/expectations");
        // What is wrong beyond the form of a file, only loading it tells.
        for name in ["match-fields", "missing", "outcome", "when"] {
            let file = folder.join(format!("{name}.yaml"));
            assert!(!is_valid(&schema(), &file), "{name}");
        }
        for name in [
            "unknown-field",
            "no-requirement",
            "no-expiry",
            "no-approver",
        ] {
            let file = repository("fixtures/bad/waivers").join(format!("{name}.yaml"));
            assert!(!is_valid(&waiver_schema(), &file), "{name}");
        }
    }
}
