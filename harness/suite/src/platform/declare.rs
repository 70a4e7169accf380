//! Decides whether a backend declares a check as supported, and says what it does not declare.

use super::{Backend, Support};
use crate::case::OneOrMany;
use allranks_model::axes::{Extent, Layout, LayoutOf, Pairs};
use allranks_model::capability::{Declared, ReceiveSource};
use allranks_model::op_check::OpCheck;

/// One aspect of a check that an entry of `supports:` may restrict.
struct Facet {
    /// Whether the entry allows the check's value.
    has: fn(&Support, &OpCheck) -> bool,
    /// The check's value as part of a sentence; `None` if the check has no such aspect.
    words: fn(&OpCheck) -> Option<String>,
}

/// All aspects, in the order in which a sentence names them. The first one up to which no entry allows everything is
/// what is not declared.
const FACETS: &[Facet] = &[
    Facet {
        has: |support, check| allows(&support.ops, &check.op),
        words: |check| Some(check.op.name().to_owned()),
    },
    Facet {
        has: |support, check| {
            check
                .reduce
                .is_none_or(|reduce| allows(&support.reduce, &reduce))
        },
        words: |check| check.reduce.map(|reduce| reduce.to_string()),
    },
    Facet {
        has: |support, check| !check.op.has_tensors() || allows(&support.dtypes, &check.dtype),
        words: |check| {
            check
                .op
                .has_tensors()
                .then(|| format!("on {}", check.dtype))
        },
    },
    Facet {
        has: |support, check| {
            !check.op.takes("layout")
                || has_one_layout(check)
                || allows(&support.layouts, &check.layout)
        },
        words: |check| Some(format!("with {} tensors", word(&check.layout))),
    },
    Facet {
        has: |support, check| {
            !check.op.takes("layout")
                || check.layout == Layout::Contiguous
                || allows(&support.layouts_of, &check.layout_of)
        },
        words: |check| {
            let which = match check.layout_of {
                LayoutOf::Input => "for its inputs only",
                LayoutOf::Output => "for its outputs only",
                LayoutOf::All => "for all of its tensors",
                LayoutOf::OddRanks => "on some ranks only",
            };
            Some(format!("with {} tensors {which}", word(&check.layout)))
        },
    },
    Facet {
        has: |support, check| !check.op.takes("tensor") || allows(&support.tensors, &check.tensor),
        words: |check| Some(format!("of {} tensors", word(&check.tensor))),
    },
    Facet {
        has: |support, check| !check.op.takes("joined") || allows(&support.joined, &check.joined),
        words: |check| Some(format!("in {} form", word(&check.joined))),
    },
    Facet {
        has: |support, check| {
            !check.op.takes("splits") || allows(&support.splits, &check.splits.kind())
        },
        words: |check| Some(format!("with {} sizes", word(&check.splits.kind()))),
    },
    Facet {
        has: |support, check| {
            !check.op.takes("placement") || allows(&support.placements, &check.placement)
        },
        words: |check| Some(word(&check.placement)),
    },
    Facet {
        has: |support, check| !check.op.takes("mode") || allows(&support.modes, &check.mode),
        words: |check| Some(format!("in {} mode", word(&check.mode))),
    },
    Facet {
        has: |support, check| !check.op.takes("pairs") || allows(&support.pairs, &pairs(check)),
        words: |check| match pairs(check) {
            Pairs::Own => Some("from a rank to itself".to_owned()),
            Pairs::Ring | Pairs::All | Pairs::Link { .. } => Some("between ranks".to_owned()),
        },
    },
    Facet {
        has: |support, check| !check.op.takes("object") || allows(&support.objects, &check.object),
        words: |check| Some(format!("of a {} object", word(&check.object))),
    },
    Facet {
        has: |support, check| allows(&support.world_sizes, &(check.group.size() as u32)),
        words: |check| Some(format!("in a group of {}", check.group.size())),
    },
];

impl Backend {
    /// Decides whether the platform file declares a check: it is supported if any entry of `supports` allows it.
    /// Entries for some torch versions only do not count; [`Platform::with_torch`](super::Platform::with_torch)
    /// settles them first. Otherwise the text names the least that no entry allows: `gloo does not declare all_reduce
    /// avg on int32`.
    #[must_use]
    pub fn declares(&self, check: &OpCheck) -> Declared {
        self.declares_by(check, |_| true)
    }

    /// Decides whether the platform file declares a message whose receiver names no source. Unsupported is only what would be
    /// supported with a source: `gloo does not declare send_recv without a source`.
    #[must_use]
    pub fn declares_any_source(&self, message: &OpCheck) -> Declared {
        let takes_any = |support: &Support| allows(&support.sources, &ReceiveSource::Any);
        let named = self.declares(message);
        match (named, self.declares_by(message, takes_any)) {
            (Declared::Supported, Declared::Unsupported(_)) => Declared::Unsupported(format!(
                "{} does not declare {} without a source",
                self.name,
                message.op.name()
            )),
            (_, _) => Declared::Supported,
        }
    }

    /// Decides whether an entry of `supports` that passes a test allows a check.
    fn declares_by(&self, check: &OpCheck, counts: impl Fn(&Support) -> bool) -> Declared {
        let mut entries: Vec<_> = self
            .supports
            .iter()
            .filter(|support| support.torch.is_none() && counts(support))
            .collect();
        for (index, facet) in FACETS.iter().enumerate() {
            entries.retain(|support| (facet.has)(support, check));
            if entries.is_empty() {
                return Declared::Unsupported(self.sentence(check, index));
            }
        }
        Declared::Supported
    }

    /// Names the op, what it computes on (if an entry has the op), and the aspect that is not declared.
    fn sentence(&self, check: &OpCheck, missing: usize) -> String {
        let mut words = vec![self.name.clone(), "does not declare".to_owned()];
        let last = if missing == 1 { 2 } else { missing };
        for (index, facet) in FACETS.iter().enumerate() {
            if index <= last.min(2) || index == last {
                words.extend((facet.words)(check));
            }
        }
        words.join(" ")
    }
}

/// Returns whether a field of an entry is absent or lists the value.
fn allows<T: PartialEq>(list: &Option<OneOrMany<T>>, value: &T) -> bool {
    list.as_ref()
        .is_none_or(|list| list.as_slice().contains(value))
}

/// Returns which ranks really send to which: in a group of one, a ring is a message from the rank to itself.
fn pairs(check: &OpCheck) -> Pairs {
    if check.group.size() == 1 {
        Pairs::Own
    } else {
        check.pairs
    }
}

/// Returns whether the tensors are empty, so that every layout is the same.
fn has_one_layout(check: &OpCheck) -> bool {
    check.extent == Extent::Flat(0)
}

/// Returns the name of a unit variant as files have it, with `-` for `_`.
fn word<T: serde::Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word.replace('_', "-"),
        Ok(other) => other.to_string(),
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use allranks_model::dtype::{DType, ReduceOp};
    use allranks_model::group::{Creation, Group};
    use allranks_model::names::Rank;
    use allranks_model::op::Op;

    pub(crate) fn op_check(op: Op, dtype: DType, reduce: Option<ReduceOp>, world: u32) -> OpCheck {
        let group = Group {
            name: "world".to_owned(),
            ranks: (0..world).map(Rank).collect(),
            backend: None,
            on_host: false,
            how: Creation::default(),
        };
        OpCheck {
            dtype,
            reduce,
            ..OpCheck::new(0, op, Arc::new(group))
        }
    }

    fn gloo(check: &OpCheck) -> Declared {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/platforms/cpu.yaml");
        let platforms = super::super::load(&[file]).unwrap();
        platforms[0].backends["gloo"].declares(check)
    }

    fn unsupported(text: &str) -> Declared {
        Declared::Unsupported(text.to_owned())
    }

    #[test]
    fn what_is_not_declared_is_named_as_shortly_as_can_be() {
        use DType::{Complex64, Float32, Int16, Int32};
        let all_reduce = |dtype, reduce| gloo(&op_check(Op::AllReduce, dtype, Some(reduce), 2));
        assert_eq!(all_reduce(Float32, ReduceOp::Avg), Declared::Supported);
        assert_eq!(
            all_reduce(Int32, ReduceOp::Avg),
            unsupported("gloo does not declare all_reduce avg on int32")
        );
        assert_eq!(
            all_reduce(Complex64, ReduceOp::Max),
            unsupported("gloo does not declare all_reduce max on complex64")
        );
        assert_eq!(
            gloo(&op_check(Op::Broadcast, Int16, None, 2)),
            unsupported("gloo does not declare broadcast on int16")
        );
        assert_eq!(
            gloo(&op_check(Op::AllToAll, Float32, None, 2)),
            unsupported("gloo does not declare all_to_all")
        );
    }

    #[test]
    fn what_a_check_does_not_have_is_not_asked_for() {
        // A barrier has no tensors, so no entry has to allow its dtype or its layout.
        let mut barrier = op_check(Op::Barrier, DType::Uint16, None, 2);
        barrier.layout = Layout::Strided;
        assert_eq!(gloo(&barrier), Declared::Supported);
    }

    #[test]
    fn an_entry_must_have_everything_at_once() {
        let mut message = op_check(Op::SendRecv, DType::Int16, None, 2);
        assert_eq!(gloo(&message), Declared::Supported);
        message.layout = Layout::Strided;
        assert_eq!(
            gloo(&message),
            unsupported("gloo does not declare send_recv on int16 with strided tensors")
        );
        assert_eq!(
            gloo(&op_check(Op::BatchIsendIrecv, DType::Float32, None, 1)),
            unsupported("gloo does not declare batch_isend_irecv on float32 from a rank to itself")
        );
    }

    #[test]
    fn a_receive_without_a_source_needs_an_entry_that_allows_it() {
        let declared = |entries: &str| {
            let text = format!(
                "name: t\ndevice_type: cpu\nevidence: host\nbackends:\n  gloo:\n    supports:\n{entries}"
            );
            let source = allranks_yaml::Source::new("t.yaml", text);
            let platform = crate::platform::parse(source, Path::new(""));
            let platform = platform.unwrap_or_else(|problems| panic!("{}", problems[0]));
            let message = op_check(Op::SendRecv, DType::Float32, None, 2);
            platform.backends["gloo"].declares_any_source(&message)
        };
        let named = "      - {ops: send_recv, sources: named}\n";
        let refused = unsupported("gloo does not declare send_recv without a source");
        assert_eq!(declared(named), refused);
        for any in [
            "      - {ops: send_recv}\n",
            "      - {ops: send_recv, sources: [named, any]}\n",
        ] {
            assert_eq!(declared(any), Declared::Supported);
            assert_eq!(declared(&format!("{named}{any}")), Declared::Supported);
        }
        // An entry that does not allow the message itself says nothing of its source.
        let other = "      - {ops: send_recv, dtypes: int8}\n";
        assert_eq!(declared(&format!("{named}{other}")), refused);
        assert_eq!(declared(other), Declared::Supported);
    }

    #[test]
    fn an_entry_for_some_versions_of_torch_counts_for_those_only() {
        let text = "name: t\ndevice_type: cpu\nevidence: host\nbackends:\n  gloo:\n    supports:\n      \
                    - ops: barrier\n      - {ops: all_to_all, torch: \">=2.12\"}\n";
        let source = allranks_yaml::Source::new("t.yaml", text);
        let platform = crate::platform::parse(source, Path::new(""));
        let platform = platform.unwrap_or_else(|problems| panic!("{}", problems[0]));
        let all_to_all = op_check(Op::AllToAll, DType::Float32, None, 2);
        let declared = |torch| platform.with_torch(torch).backends["gloo"].declares(&all_to_all);
        assert_eq!(declared(Some("2.15.0+cu132")), Declared::Supported);
        assert_eq!(declared(Some("2.12.0")), Declared::Supported);
        for torch in [Some("2.11.0"), None] {
            assert_ne!(declared(torch), Declared::Supported);
        }
        let unresolved = platform.backends["gloo"].declares(&all_to_all);
        assert_ne!(unresolved, Declared::Supported);
    }
}
