//! That the table of parameters and the fields of a step are the same.

use super::StepParams;
use allranks_model::op::Op;

#[test]
fn every_parameter_of_the_table_is_a_field() {
    let fields = serde_json::to_value(StepParams::default()).unwrap();
    let fields = fields.as_object().unwrap();
    let mut used: Vec<_> = Op::ALL.iter().flat_map(|op| op.all_parameters()).collect();
    used.sort_unstable();
    used.dedup();
    let mut fields: Vec<_> = fields.keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(used, fields);
}
