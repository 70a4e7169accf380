//! The fields of `match:` as texts: what each is at a point, so that points can be compared and entries written.

use crate::expectation::Point;
use crate::plan::Check;
use allranks_model::op_check::OpCheck;

/// A field of `match:` other than platform and backend.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    /// Its key.
    pub name: &'static str,
    /// Whether its values are numbers, which may be written as ranges.
    pub is_number: bool,
    /// Its value at a point, as it is written in YAML; `None` where it does not match, whatever is written.
    pub value: fn(&Point<'_>) -> Option<String>,
}

/// The values of all [`FIELDS`] at a point, in their order.
pub(super) type Cell = Vec<Option<String>>;

/// Every field, in the order in which entries name them; the later ones are left out first if that changes nothing.
pub(super) const FIELDS: &[Field] = &[
    Field::word("op", |point| {
        of_op(point, |op| Some(op.op.name().to_owned()))
    }),
    Field::word("case", |point| Some(point.case.to_string())),
    Field::word("script", |point| {
        of_check(point, |check| param(check, "script"))
    }),
    Field::word("over", |point| {
        of_check(point, |check| param(check, "over"))
    }),
    Field::word("reduce", |point| {
        of_op(point, |op| op.reduce.map(|reduce| reduce.to_string()))
    }),
    Field::word("layout", |point| {
        taken(point, "layout", |op| word(op.layout))
    }),
    Field::word("layout_of", |point| {
        taken(point, "layout_of", |op| word(op.layout_of))
    }),
    Field::word("dtype", |point| {
        taken(point, "dtype", |op| op.dtype.to_string())
    }),
    Field::word("values", |point| {
        taken(point, "values", |op| word(op.values))
    }),
    Field::word("tensor", |point| {
        taken(point, "tensor", |op| word(op.tensor))
    }),
    Field::word("joined", |point| {
        taken(point, "joined", |op| word(op.joined))
    }),
    Field::word("placement", |point| {
        taken(point, "placement", |op| word(op.placement))
    }),
    Field::word("non_root", |point| {
        taken(point, "non_root", |op| word(op.non_root))
    }),
    Field::word("splits", |point| {
        taken(point, "splits", |op| word(op.splits.kind()))
    }),
    Field::word("pairs", |point| taken(point, "pairs", |op| word(op.pairs))),
    Field::word("object", |point| {
        taken(point, "object", |op| word(op.object))
    }),
    Field::word("mode", |point| taken(point, "mode", |op| word(op.mode))),
    Field::number("count", |point| {
        taken(point, "count", |op| op.count.to_string())
    }),
    Field::number("tag", |point| taken(point, "tag", |op| op.tag.to_string())),
    Field::word("by", |point| {
        taken(point, "by", |op| {
            word(op.root.map_or(op.peer_by, |root| root.by))
        })
    }),
    Field::number("root", |point| {
        of_op(point, |op| op.root.map(|root| root.group_rank.to_string()))
    }),
    Field::number("numel", |point| {
        taken(point, "numel", |op| op.extent.to_string())
    }),
    Field::word("group", |point| {
        of_check(point, |check| Some(check.group.name.clone()))
    }),
    Field::number("group_size", |point| {
        of_check(point, |check| Some(check.group.size().to_string()))
    }),
    Field::word("device_id", |point| Some(point.device_id.name().to_owned())),
    Field::number("world_size", |point| Some(point.world_size.to_string())),
];

impl Field {
    const fn word(name: &'static str, value: fn(&Point<'_>) -> Option<String>) -> Self {
        Self {
            name,
            is_number: false,
            value,
        }
    }

    const fn number(name: &'static str, value: fn(&Point<'_>) -> Option<String>) -> Self {
        Self {
            name,
            is_number: true,
            value,
        }
    }
}

/// Returns the values of all fields at a point.
pub(super) fn cell(point: &Point<'_>) -> Cell {
    FIELDS.iter().map(|field| (field.value)(point)).collect()
}

fn of_check(point: &Point<'_>, value: impl Fn(&Check) -> Option<String>) -> Option<String> {
    point.check.and_then(value)
}

fn of_op(point: &Point<'_>, value: impl Fn(&OpCheck) -> Option<String>) -> Option<String> {
    point.check.and_then(Check::op).and_then(value)
}

/// Returns the value of an axis, if the op takes it.
fn taken(point: &Point<'_>, axis: &str, value: impl Fn(&OpCheck) -> String) -> Option<String> {
    of_op(point, |op| op.op.takes(axis).then(|| value(op)))
}

fn word(value: impl Into<&'static str>) -> String {
    value.into().to_owned()
}

fn param(check: &Check, name: &str) -> Option<String> {
    let mut params = check.params.iter();
    params
        .find(|(known, _)| known == name)
        .map(|(_, value)| value.clone())
}
