//! The JSON schema of case files, for editors.

use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use super::StepParams;
use super::file::CaseFile;
use crate::plan::Op;

/// The schema of case files, JSON Schema draft 2020-12.
#[must_use]
pub fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    generator.into_root_schema_for::<CaseFile>().to_value()
}

/// A step: exactly one op, and for each op only the parameters it takes.
pub(super) fn step(generator: &mut SchemaGenerator) -> Schema {
    let all = StepParams::default();
    let _ = all;
    let params = generator.root_schema_for::<StepParams>().to_value();
    let fields = &params["properties"];
    let ops: Map<String, Value> = Op::ALL
        .into_iter()
        .map(|op| {
            let taken: Map<String, Value> = StepParams::all_allowed(op)
                .into_iter()
                .map(|name| (name.to_owned(), fields[name].clone()))
                .collect();
            let params =
                json!({"type": "object", "properties": taken, "additionalProperties": false});
            (op.name().to_owned(), params)
        })
        .collect();
    json_schema!({
        "description": "One op and the sweep of its parameters.",
        "type": "object",
        "properties": ops,
        "additionalProperties": false,
        "minProperties": 1,
        "maxProperties": 1
    })
}
