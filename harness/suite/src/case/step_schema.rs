//! The JSON schema of a step.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use super::{
    BatchNormSpec, CheckpointSpec, ContextParallelSpec, DdpSpec, DtensorSpec, Fsdp2Spec,
    FunctionalSpec, MeshSpec, PipelineSpec, RANDOM, RandomNumbersSpec, RandomSpec, SCRIPT,
    ScriptSpec, StepParams, TensorParallelSpec, ZeroSpec,
};
use allranks_model::op::Op;
use allranks_model::stack::LayerName;

/// Returns the schema of a step: exactly one key, and for each op only the parameters that it takes.
pub(super) fn step(generator: &mut SchemaGenerator) -> Schema {
    // The parameters are described once; each op refers to those it takes.
    let params = generator.subschema_for::<StepParams>().to_value();
    let params = params["$ref"].as_str().unwrap_or_default();
    let mut steps: Map<String, Value> = Op::ALL
        .iter()
        .map(|op| {
            let taken: Map<String, Value> = op
                .keys()
                .into_iter()
                .map(|name| {
                    (
                        name.to_owned(),
                        json!({"$ref": format!("{params}/properties/{name}")}),
                    )
                })
                .collect();
            let params = json!({
                "description": op.meaning(),
                "type": "object",
                "properties": taken,
                "additionalProperties": false
            });
            (op.name().to_owned(), params)
        })
        .collect();
    steps.insert(
        SCRIPT.to_owned(),
        generator.subschema_for::<ScriptSpec>().to_value(),
    );
    steps.insert(
        RANDOM.to_owned(),
        generator.subschema_for::<RandomSpec>().to_value(),
    );
    for layer in LayerName::ALL {
        let parameters = match layer {
            LayerName::Functional => generator.subschema_for::<FunctionalSpec>(),
            LayerName::Ddp => generator.subschema_for::<DdpSpec>(),
            LayerName::Fsdp2 => generator.subschema_for::<Fsdp2Spec>(),
            LayerName::Mesh => generator.subschema_for::<MeshSpec>(),
            LayerName::Dtensor => generator.subschema_for::<DtensorSpec>(),
            LayerName::Pipeline => generator.subschema_for::<PipelineSpec>(),
            LayerName::Zero => generator.subschema_for::<ZeroSpec>(),
            LayerName::TensorParallel => generator.subschema_for::<TensorParallelSpec>(),
            LayerName::Checkpoint => generator.subschema_for::<CheckpointSpec>(),
            LayerName::BatchNorm => generator.subschema_for::<BatchNormSpec>(),
            LayerName::ContextParallel => generator.subschema_for::<ContextParallelSpec>(),
            LayerName::RandomNumbers => generator.subschema_for::<RandomNumbersSpec>(),
        };
        steps.insert(layer.name().to_owned(), parameters.to_value());
    }
    json_schema!({
        "description": "One op and the sweep of its parameters, a script, random sequences, or a layer above c10d and the sweep of its parameters.",
        "type": "object",
        "properties": steps,
        "additionalProperties": false,
        "minProperties": 1,
        "maxProperties": 1
    })
}

/// Returns the schema of a field with what the field means, beside what its type does.
pub(super) fn described(schema: Schema, meaning: &str) -> Value {
    let mut schema = schema.to_value();
    if let Value::Object(keywords) = &mut schema {
        keywords.insert("description".to_owned(), meaning.trim().into());
    }
    schema
}
