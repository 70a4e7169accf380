//! The JSON schema of case files, for editors.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::file::CaseFile;

/// Returns the JSON schema of case files, draft 2020-12.
#[must_use]
pub fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    generator.into_root_schema_for::<CaseFile>().to_value()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::{Path, PathBuf};
    use std::{env, fs};

    use serde_json::json;

    use super::*;

    /// Compares a schema file of the repository with the schema that the types give; `ALLRANKS_UPDATE=1` writes the
    /// file.
    pub(crate) fn compare(file: &str, schema: &Value) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(file);
        let text = format!("{schema:#}\n");
        if env::var_os("ALLRANKS_UPDATE").is_some() {
            fs::write(&path, &text).unwrap();
        }
        let written = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == text,
            "{file} is not up to date: run the tests with ALLRANKS_UPDATE=1"
        );
    }

    #[test]
    fn the_schema_in_the_repository_is_up_to_date() {
        compare("cases/schema.json", &schema());
    }

    /// Returns true if a value is valid against a schema, with the keywords that our schemas use; another keyword is a
    /// panic, so that none is ignored.
    pub(crate) fn accepts(root: &Value, schema: &Value, value: &Value) -> bool {
        let Value::Object(keywords) = schema else {
            return schema == &Value::Bool(true);
        };
        let all = |list: &Value| -> Vec<bool> {
            let list = list.as_array().unwrap();
            list.iter()
                .map(|schema| accepts(root, schema, value))
                .collect()
        };
        let count = |limit: &Value| limit.as_u64().unwrap() as usize;
        keywords
            .iter()
            .all(|(keyword, limit)| match keyword.as_str() {
                "$schema" | "$defs" | "title" | "description" | "default" | "format" => true,
                "$ref" => {
                    let pointer = limit.as_str().unwrap().strip_prefix('#').unwrap();
                    accepts(root, root.pointer(pointer).expect(pointer), value)
                }
                "type" => match limit {
                    Value::Array(types) => types.iter().any(|name| is_type(name, value)),
                    name => is_type(name, value),
                },
                "const" => value == limit,
                "enum" => limit.as_array().unwrap().contains(value),
                "anyOf" => all(limit).contains(&true),
                "oneOf" => all(limit).into_iter().filter(|valid| *valid).count() == 1,
                "minimum" => value
                    .as_f64()
                    .is_none_or(|value| value >= limit.as_f64().unwrap()),
                "maximum" => value
                    .as_f64()
                    .is_none_or(|value| value <= limit.as_f64().unwrap()),
                "pattern" => {
                    let pattern = regex::Regex::new(limit.as_str().unwrap()).unwrap();
                    value.as_str().is_none_or(|text| pattern.is_match(text))
                }
                "minLength" => value
                    .as_str()
                    .is_none_or(|text| text.chars().count() >= count(limit)),
                "maxLength" => value
                    .as_str()
                    .is_none_or(|text| text.chars().count() <= count(limit)),
                "minItems" => value
                    .as_array()
                    .is_none_or(|items| items.len() >= count(limit)),
                "items" => value
                    .as_array()
                    .is_none_or(|items| items.iter().all(|item| accepts(root, limit, item))),
                "minProperties" => value
                    .as_object()
                    .is_none_or(|map| map.len() >= count(limit)),
                "maxProperties" => value
                    .as_object()
                    .is_none_or(|map| map.len() <= count(limit)),
                "required" => {
                    let names = limit.as_array().unwrap();
                    value.as_object().is_none_or(|map| {
                        names
                            .iter()
                            .all(|name| map.contains_key(name.as_str().unwrap()))
                    })
                }
                "properties" => value.as_object().is_none_or(|map| {
                    map.iter().all(|(name, value)| {
                        limit
                            .get(name)
                            .is_none_or(|schema| accepts(root, schema, value))
                    })
                }),
                "additionalProperties" => value.as_object().is_none_or(|map| {
                    let named = |name: &String| {
                        schema
                            .get("properties")
                            .is_some_and(|named| named.get(name).is_some())
                    };
                    map.iter()
                        .all(|(name, value)| named(name) || accepts(root, limit, value))
                }),
                other => panic!("`{other}` is not understood here"),
            })
    }

    fn is_type(name: &Value, value: &Value) -> bool {
        match name.as_str().unwrap() {
            "null" => value.is_null(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "string" => value.is_string(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            other => panic!("there is no type {other}"),
        }
    }

    pub(crate) fn read(path: &Path) -> Value {
        serde_yaml::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    }

    pub(crate) fn repository(path: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(path)
    }

    #[test]
    fn what_loads_is_valid_against_the_schema() {
        let root = repository("cases");
        let library = crate::case::load(std::slice::from_ref(&root)).unwrap();
        for case in &library.cases {
            let schema = schema();
            let file = root.join(&case.source);
            let is_valid = accepts(&schema, &schema, &read(&file));
            assert!(is_valid, "{}", file.display());
        }
    }

    #[test]
    fn the_schema_knows_ops_and_what_they_take() {
        let schema = schema();
        let case = |steps: Value| json!({"id": "x", "title": "t", "steps": steps});
        let accepts = |steps| accepts(&schema, &schema, &case(steps));
        assert!(accepts(
            json!([{"all_reduce": {"dtype": ["int8"], "numel": ["3W+1", 4], "op": "max"}}])
        ));
        assert!(!accepts(json!([])), "no steps");
        assert!(
            !accepts(json!([{"all_reduce": {"root": 0}}])),
            "not its parameter"
        );
        assert!(
            !accepts(json!([{"all_reduce": {}, "barrier": {}}])),
            "two ops"
        );
        assert!(!accepts(json!([{"all_reduc": {}}])), "no such op");
        assert!(
            !accepts(json!([{"all_reduce": {"dtype": "float"}}])),
            "no such dtype"
        );
        assert!(
            !accepts(json!([{"all_reduce": {"numel": []}}])),
            "an empty list"
        );
    }
}
