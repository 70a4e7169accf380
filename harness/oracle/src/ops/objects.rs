//! Collectives of Python objects: JSON values, different in content and in size on every rank.

use serde_json::{Value, json};

use crate::hash::{Key, Stream, below};
use crate::rank_plan::{Answer, PlanBuilder};
use allranks_model::axes::ObjectKind;
use allranks_protocol::Call;

/// How many objects `broadcast_object_list` carries.
const LISTED: u32 = 2;

/// Returns the object that a position holds for another, or as one of its list. Every pair has an object of its own, except for
/// the `None`s of [`ObjectKind::Mixed`].
fn object(kind: ObjectKind, key: Key, position: u32, item: u32) -> Value {
    let words = key.stream(Stream::Object, position, item);
    match kind {
        ObjectKind::Small => json!({
            "rank": position,
            "item": item,
            "name": format!("{:x}", words.word(0)),
            "numbers": list(words, position + item + 1),
            "half": below(words.word(1), 1000) as f64 + 0.5,
            "none": null,
            "yes": words.word(2) & 1 == 0,
        }),
        ObjectKind::Large => Value::String(text(words, 100_000 + 997 * (position + 1) + item)),
        ObjectKind::Mixed if (position + item).is_multiple_of(2) => Value::Null,
        ObjectKind::Mixed => list(words, position + item + 1),
    }
}

fn list(words: Key, len: u32) -> Value {
    (0..u64::from(len))
        .map(|at| below(words.word(16 + at), 1 << 40))
        .collect()
}

fn text(words: Key, len: u32) -> String {
    let letter = |at: u64| char::from(b'a' + below(words.word(16 + at), 26) as u8);
    (0..u64::from(len)).map(letter).collect()
}

impl PlanBuilder<'_> {
    fn object(&self, position: u32, item: u32) -> Value {
        // Objects need no second attempt: their data are wide enough never to collide.
        let key = Key::of_check(self.seed, self.check.index, 0);
        object(self.check.object, key, position, item)
    }

    fn everyones(&self) -> Value {
        (0..self.ranks())
            .map(|position| self.object(position, 0))
            .collect()
    }
}

pub(super) fn all_gather(builder: &mut PlanBuilder<'_>) {
    let call = Call::AllGatherObject {
        group: builder.group(),
        object: builder.object(builder.position, 0),
    };
    let answer = Answer::Objects(builder.everyones());
    builder.ask(call, answer);
}

pub(super) fn gather(builder: &mut PlanBuilder<'_>) {
    let call = Call::GatherObject {
        group: builder.group(),
        object: builder.object(builder.position, 0),
        root: builder.root_ref(),
    };
    let answer = if builder.is_root() {
        builder.everyones()
    } else {
        Value::Null
    };
    builder.ask(call, Answer::Objects(answer));
}

pub(super) fn broadcast(builder: &mut PlanBuilder<'_>) {
    let list = |position: u32| {
        (0..LISTED)
            .map(|item| builder.object(position, item))
            .collect()
    };
    let call = Call::BroadcastObjectList {
        group: builder.group(),
        objects: list(builder.position),
        root: builder.root_ref(),
    };
    let answer = Answer::Objects(Value::Array(list(builder.root())));
    builder.ask(call, answer);
}

pub(super) fn scatter(builder: &mut PlanBuilder<'_>) {
    let root = builder.root();
    let objects = (0..builder.ranks())
        .map(|to| builder.object(root, to))
        .collect();
    let call = Call::ScatterObjectList {
        group: builder.group(),
        objects: builder.is_root().then_some(objects),
        root: builder.root_ref(),
    };
    let answer = Answer::Objects(builder.object(root, builder.position));
    builder.ask(call, answer);
}
