//! The comparison of every rank's answer with the expected result of the check, and which bug explains a wrong one.

use std::collections::BTreeSet;

use super::StackPrepared;
use super::bytes::{Placed, encoded};
use super::class::StackClass;
use super::drawn;
use crate::format::format_element;
use crate::{Mismatch, RankReply};
use allranks_model::names::Rank;
use allranks_model::record::Difference;

/// A tensor of a rank that is not as it must be.
struct WrongTensor<'a> {
    rank: u32,
    placed: &'a Placed,
    expected: Vec<u8>,
    got: &'a [u8],
    /// Indices of wrong elements.
    elements: Vec<usize>,
}

impl StackPrepared {
    /// Compares every rank's answer, all of whose calls returned, with the expected bytes. Returns the number of elements
    /// checked on each rank.
    ///
    /// # Errors
    /// The mismatch, classified.
    #[expect(
        clippy::result_large_err,
        reason = "callers take the mismatch apart at once"
    )]
    pub fn verify(&self, replies: &[RankReply]) -> Result<Vec<u64>, Mismatch> {
        self.compare(replies).map_err(|mismatch| *mismatch)?;
        Ok(self.checked())
    }

    fn compare(&self, replies: &[RankReply]) -> Result<(), Box<Mismatch>> {
        for (rank, (reply, own)) in (0..).zip(replies.iter().zip(&self.steps)) {
            if let Some(mismatch) = self.overwritten_guard(rank, &own.payload, &reply.payload) {
                return Err(mismatch);
            }
        }
        let wrong: Vec<WrongTensor<'_>> = (0..)
            .zip(replies)
            .flat_map(|(rank, reply)| self.wrong_on(rank, reply))
            .collect();
        match wrong.first() {
            None => self.drawn(replies),
            Some(first) => Err(self.mismatch(&wrong, first)),
        }
    }

    /// Compares random numbers with each other.
    fn drawn(&self, replies: &[RankReply]) -> Result<(), Box<Mismatch>> {
        let Some(wrong) = drawn::wrong(&self.ranks, &self.steps, replies) else {
            return Ok(());
        };
        Err(Box::new(Mismatch {
            class: wrong.class.name().to_owned(),
            sentence: format!("{}, in {}", wrong.class.sentence(), wrong.name),
            difference: None,
        }))
    }

    /// Returns the number of elements that [`Self::verify`] checks on each rank.
    #[must_use]
    pub fn checked(&self) -> Vec<u64> {
        let of_rank = |tensors: &Vec<Placed>| {
            let lengths = tensors.iter().map(|placed| placed.entry.len() as u64);
            lengths.sum()
        };
        self.ranks.iter().map(of_rank).collect()
    }

    /// Returns what a tensor must hold in the end.
    fn expected(&self, rank: u32, placed: &Placed) -> Vec<u8> {
        match &placed.entry.after {
            Some(numbers) => encoded(self.dtype, numbers),
            None => self.steps[rank as usize].payload[placed.range.clone()].to_vec(),
        }
    }

    fn wrong_on<'a>(&'a self, rank: u32, reply: &'a RankReply) -> Vec<WrongTensor<'a>> {
        let size = self.dtype.size();
        let tensors = self.ranks[rank as usize].iter();
        tensors
            .filter(|placed| placed.entry.drawn.is_none())
            .filter_map(|placed| {
                let expected = self.expected(rank, placed);
                let got = &reply.payload[placed.range.clone()];
                let pairs = got.chunks_exact(size).zip(expected.chunks_exact(size));
                let elements: Vec<usize> = (0..)
                    .zip(pairs)
                    .filter(|(_, (got, expected))| !placed.is_near(self.dtype, expected, got))
                    .map(|(index, _)| index)
                    .collect();
                (!elements.is_empty()).then_some(WrongTensor {
                    rank,
                    placed,
                    expected,
                    got,
                    elements,
                })
            })
            .collect()
    }

    fn overwritten_guard(&self, rank: u32, sent: &[u8], got: &[u8]) -> Option<Box<Mismatch>> {
        let tensors = self.ranks[rank as usize].iter();
        let outside = |placed: &Placed| {
            let storage = placed.storage();
            let mut bytes = storage.filter(|at| !placed.range.contains(at));
            bytes.find(|at| sent[*at] != got[*at])
        };
        let (placed, at) = tensors
            .filter_map(|placed| outside(placed).map(|at| (placed, at)))
            .next()?;
        let class = StackClass::GuardOverwritten;
        Some(Box::new(Mismatch {
            class: class.name().to_owned(),
            sentence: class.sentence().to_owned(),
            difference: Some(Difference {
                buffer: format!("guard of {}", placed.entry.name),
                rank: Rank(rank),
                index: (at - placed.storage().start) as u64,
                expected: format!("{:#04x}", sent[at]),
                actual: format!("{:#04x}", got[at]),
                wrong: 1,
                of: self.checked().iter().sum(),
                ranks: vec![Rank(rank)],
            }),
        }))
    }

    fn mismatch(&self, wrong: &[WrongTensor<'_>], first: &WrongTensor<'_>) -> Box<Mismatch> {
        let (class, is_whole) = self.class(wrong);
        let ranks: BTreeSet<u32> = wrong.iter().map(|tensor| tensor.rank).collect();
        let elements: usize = wrong.iter().map(|tensor| tensor.elements.len()).sum();
        let names: BTreeSet<&str> = wrong
            .iter()
            .map(|tensor| tensor.placed.entry.name.as_str())
            .collect();
        let mut sentence = format!("{}, in {}", class.sentence(), list(&names));
        if !is_whole {
            let of: usize = wrong.iter().map(|tensor| tensor.placed.entry.len()).sum();
            sentence += &format!(" (on {elements} of {of} elements)");
        }
        if let [only] = *ranks.iter().collect::<Vec<_>>() {
            sentence += &format!(" (on rank {only} only)");
        }
        let index = first.elements[0];
        let size = self.dtype.size();
        let element =
            |bytes: &[u8]| format_element(self.dtype, &bytes[index * size..(index + 1) * size]);
        Box::new(Mismatch {
            class: class.name().to_owned(),
            sentence,
            difference: Some(Difference {
                buffer: first.placed.entry.name.clone(),
                rank: Rank(first.rank),
                index: index as u64,
                expected: element(&first.expected),
                actual: element(first.got),
                wrong: elements as u64,
                of: self.checked().iter().sum(),
                ranks: ranks.into_iter().map(Rank).collect(),
            }),
        })
    }

    /// Returns the bug that explains all that is wrong, and whether it explains whole tensors.
    fn class(&self, wrong: &[WrongTensor<'_>]) -> (StackClass, bool) {
        let is_input = |tensor: &WrongTensor<'_>| {
            tensor.placed.entry.before.is_some() && tensor.placed.entry.after.is_none()
        };
        if wrong.iter().any(is_input) {
            return (StackClass::InputModified, true);
        }
        let classes = || {
            let guesses = wrong.iter().flat_map(|tensor| &tensor.placed.entry.guesses);
            let classes: BTreeSet<StackClass> = guesses.map(|(class, _)| *class).collect();
            classes.into_iter()
        };
        let is_whole = |class: &StackClass| {
            wrong.iter().all(|tensor| {
                let mut guesses = self.guesses(tensor, *class);
                guesses.any(|bytes| self.is_all(tensor, &bytes))
            })
        };
        // Of bugs that explain what is wrong, one that leaves right what is right comes first.
        let spares = |class: &StackClass| {
            let tensors = (0..)
                .zip(&self.ranks)
                .flat_map(|(rank, tensors)| tensors.iter().map(move |placed| (rank, placed)));
            let is_wrong = |rank: u32, placed: &Placed| {
                let mut wrong = wrong.iter();
                wrong.any(|tensor| tensor.rank == rank && std::ptr::eq(tensor.placed, placed))
            };
            let mut right = tensors.filter(|(rank, placed)| !is_wrong(*rank, placed));
            right.all(|(_, placed)| {
                let entry = &placed.entry;
                let mut guesses = entry
                    .guesses
                    .iter()
                    .filter(|(own, _)| own == class)
                    .peekable();
                guesses.peek().is_none()
                    || guesses.any(|(_, numbers)| entry.after.as_ref() == Some(numbers))
            })
        };
        if let Some(class) = classes().find(|class| is_whole(class) && spares(class)) {
            return (class, true);
        }
        if let Some(class) = classes().find(is_whole) {
            return (class, true);
        }
        let is_sent = |tensor: &WrongTensor<'_>| {
            let sent = &self.steps[tensor.rank as usize].payload;
            sent[tensor.placed.range.clone()] == *tensor.got
        };
        if wrong.iter().all(is_sent) {
            let is_unused = |tensor: &WrongTensor<'_>| {
                let mut guesses = tensor.placed.entry.guesses.iter();
                guesses.any(|(class, _)| *class == StackClass::UnusedMistaken)
            };
            return match wrong.iter().all(is_unused) {
                true => (StackClass::UnusedMistaken, true),
                false => (StackClass::StaleSentinel, true),
            };
        }
        let is_on_elements = |class: &StackClass| {
            wrong.iter().all(|tensor| {
                let mut guesses = self.guesses(tensor, *class);
                guesses.any(|bytes| {
                    let mut elements = tensor.elements.iter();
                    elements.all(|index| {
                        let (wanted, got) = (&bytes, tensor.got);
                        let (wanted, got) =
                            (self.element(wanted, *index), self.element(got, *index));
                        tensor.placed.is_near(self.dtype, wanted, got)
                    })
                })
            })
        };
        let is_tail = |tensor: &WrongTensor<'_>| {
            // What a tail has by chance right is not among its wrong elements.
            tensor.elements[0] > 0
                && *tensor.elements.last().unwrap_or(&0) + 1 == tensor.placed.entry.len()
        };
        match classes().find(is_on_elements) {
            Some(StackClass::NotReduced) if wrong.iter().any(is_tail) => {
                return (StackClass::TailNotReduced, true);
            }
            Some(class) => return (class, false),
            None => {}
        }
        let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        let mut all = wrong.iter();
        if all.all(|tensor| is_zero(tensor.got)) {
            return (StackClass::ZeroOutput, true);
        }
        let is_zero_where_wrong = |tensor: &WrongTensor<'_>| {
            let mut elements = tensor.elements.iter();
            elements.all(|index| is_zero(self.element(tensor.got, *index)))
        };
        match wrong.iter().all(is_zero_where_wrong) {
            true => (StackClass::PartZero, true),
            false => (StackClass::Unclassified, true),
        }
    }

    fn guesses<'a>(
        &'a self,
        tensor: &'a WrongTensor<'_>,
        class: StackClass,
    ) -> impl Iterator<Item = Vec<u8>> + 'a {
        let guesses = tensor.placed.entry.guesses.iter();
        guesses
            .filter(move |(own, _)| *own == class)
            .map(|(_, numbers)| encoded(self.dtype, numbers))
    }

    /// Returns true if a tensor holds these elements, each as near as the layer can be.
    fn is_all(&self, tensor: &WrongTensor<'_>, bytes: &[u8]) -> bool {
        let size = self.dtype.size();
        let mut pairs = bytes.chunks_exact(size).zip(tensor.got.chunks_exact(size));
        pairs.all(|(wanted, got)| tensor.placed.is_near(self.dtype, wanted, got))
    }

    fn element<'a>(&self, bytes: &'a [u8], index: usize) -> &'a [u8] {
        let size = self.dtype.size();
        &bytes[index * size..(index + 1) * size]
    }

    /// Returns a known bug that the data do not tell from the right result: one that leaves every tensor as it must be.
    pub(super) fn indistinct(&self) -> Option<String> {
        let mut classes = BTreeSet::new();
        let mut distinct = BTreeSet::new();
        for tensors in &self.ranks {
            for placed in tensors {
                for (class, numbers) in &placed.entry.guesses {
                    classes.insert(*class);
                    let entry = &placed.entry;
                    let is_far = |after: &Vec<f64>| {
                        let mut pairs = after.iter().zip(numbers);
                        // Both may be off, in either direction.
                        pairs.any(|(after, number)| (after - number).abs() > 2.0 * entry.within)
                    };
                    if entry.after.as_ref().is_none_or(is_far) {
                        distinct.insert(*class);
                    }
                }
            }
        }
        let mut tensors = self.ranks.iter().flatten();
        if tensors.any(|placed| placed.entry.drawn.is_some()) {
            // What is compared is the ranks' own numbers.
            return None;
        }
        if classes.is_empty() {
            return Some("no known bug would make a difference".to_owned());
        }
        let class = classes.difference(&distinct).next()?;
        let name = class.name();
        Some(format!(
            "the data do not distinguish {name} from the right result"
        ))
    }
}

/// `a, b and 3 more`.
fn list(names: &BTreeSet<&str>) -> String {
    const SHOWN: usize = 2;
    let shown: Vec<&str> = names.iter().copied().take(SHOWN).collect();
    match names.len() {
        all if all > SHOWN => format!("{} and {} more", shown.join(", "), all - SHOWN),
        _ => shown.join(" and "),
    }
}
