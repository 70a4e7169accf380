//! What one rank holds and does during a check, as data: buffers made of pieces, each with where its elements come from
//! before and after; the views and calls for the rank; and what the calls must answer.
//!
//! Everything else follows from it: [`super::payload`] computes the bytes, [`super::classify`] changes the origins to find
//! which bug explains an answer.

use serde_json::Value;

use super::geometry::{Form, TensorGeometry};
use allranks_model::axes::{Extent, Joined, Layout, LayoutOf, Mode, Splits};
use allranks_model::dtype::DType;
use allranks_model::names::Rank;
use allranks_model::op_check::OpCheck;
use allranks_protocol::{Call, Tensor};

/// What a piece holds when the step begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    /// What no correct result can be.
    Sentinel,
    /// The rank's own block of this slot.
    Own(u32),
    /// The one element that `premul_sum` multiplies by.
    Factor,
}

/// What a piece must hold when the step is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// What it held before.
    Keep,
    /// A rank's block.
    Copy {
        /// Global rank.
        rank: u32,
        /// The block's slot.
        slot: u32,
    },
    /// The blocks of this slot of every member, combined.
    Reduce {
        /// The blocks' slot.
        slot: u32,
    },
}

/// A run of elements of a buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    /// First element in the buffer.
    pub start: usize,
    /// Elements.
    pub len: usize,
    /// At the beginning.
    pub before: Fill,
    /// At the end.
    pub after: Origin,
}

/// What a buffer is to its op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Only read.
    Input,
    /// Written.
    Output,
    /// Read and written.
    Both,
    /// Handed over on a rank that must not be written to.
    NonRoot,
    /// Handed over on a rank that receives nothing, whose contents afterwards are unspecified.
    Unspecified,
    /// Held by a rank that does not take part.
    Bystander,
}

/// One storage and the tensor in it.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    /// What it is to its op.
    pub role: Role,
    /// Its number, where the op takes a list.
    pub number: Option<u32>,
    /// Elements.
    pub len: usize,
    /// Where they lie.
    pub place: TensorGeometry,
    /// First byte of the storage in the payload, and its length.
    pub storage: (usize, usize),
    /// Its pieces, in order; together all of it.
    pub pieces: Vec<Segment>,
}

impl Buffer {
    /// Returns true if it is the factor of `premul_sum`.
    pub(super) fn holds_a_factor(&self) -> bool {
        self.pieces.iter().any(|piece| piece.before == Fill::Factor)
    }

    /// Returns the buffer as reports name it: `output`, `output[2]`.
    pub(super) fn label(&self) -> String {
        let role = match self.role {
            Role::Input if self.holds_a_factor() => "factor",
            Role::Input => "input",
            Role::Output => "output",
            Role::Both | Role::NonRoot | Role::Unspecified => "tensor",
            Role::Bystander => "bystander",
        };
        match self.number {
            None => role.to_owned(),
            Some(number) => format!("{role}[{number}]"),
        }
    }
}

/// What a call must answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The sender's global rank.
    Sender(Rank),
    /// Python objects: one, or a list of them.
    Objects(Value),
}

/// A rank's share of a check.
#[derive(Clone, Debug, Default)]
pub(super) struct RankPlan {
    /// One for each storage.
    pub buffers: Vec<Buffer>,
    /// Views, for the protocol.
    pub tensors: Vec<Tensor>,
    /// Calls, for the protocol.
    pub calls: Vec<Call>,
    /// What calls must answer, by index.
    pub answers: Vec<(usize, Answer)>,
    /// Bytes of all storages.
    pub bytes: usize,
}

impl RankPlan {
    /// Returns the elements compared on this rank; of the guards, if its tensors have none.
    pub(super) fn elements(&self) -> u64 {
        let specified = self
            .buffers
            .iter()
            .filter(|buffer| buffer.role != Role::Unspecified);
        let elements: usize = specified.map(|buffer| buffer.len).sum();
        if elements > 0 {
            return elements as u64;
        }
        let guards = |buffer: &Buffer| buffer.storage.1 / buffer.place.size;
        self.buffers.iter().map(guards).sum::<usize>() as u64
    }
}

/// Lays out one rank's work.
pub(super) struct PlanBuilder<'a> {
    /// The check.
    pub check: &'a OpCheck,
    /// Seed of the run; objects depend on it.
    pub seed: u64,
    /// Its position in the group.
    pub position: u32,
    /// What has been laid out.
    pub work: RankPlan,
}

impl<'a> PlanBuilder<'a> {
    pub(super) fn new(check: &'a OpCheck, seed: u64, position: u32) -> Self {
        Self {
            check,
            seed,
            position,
            work: RankPlan::default(),
        }
    }

    /// Returns the number of members.
    pub(super) fn ranks(&self) -> u32 {
        self.check.group.size() as u32
    }

    /// Returns the global rank at a position of the group.
    pub(super) fn member(&self, position: u32) -> u32 {
        self.check.group.ranks[position as usize].0
    }

    /// Returns a length the check's shape can have: whole rows.
    pub(super) fn fit(&self, len: u64) -> usize {
        let len = len as usize;
        len - len % self.joined().width()
    }

    /// Elements of one contribution; of the `item`-th, where an op has several of different sizes.
    pub(super) fn len(&self, item: u32) -> usize {
        self.fit(self.check.extent.numel() + 3 * u64::from(item))
    }

    /// Elements of the share that is a position's own, where an op takes a list with a tensor for each member.
    pub(super) fn share(&self, item: u32, position: u32) -> usize {
        let uneven = self.len(item) + position as usize * self.joined().width();
        match &self.check.splits {
            Splits::Even => self.len(item),
            Splits::WithZero if position % 2 == 1 => 0,
            Splits::Uneven | Splits::WithZero => uneven,
            Splits::AllZero => 0,
            Splits::Explicit(_) => unreachable!("refused by the oracle"),
        }
    }

    /// Returns the form of one rank's contribution.
    pub(super) fn form(&self, item: u32) -> Form {
        if self.check.extent == Extent::Scalar && item == 0 {
            Form::Scalar
        } else {
            self.joined()
        }
    }

    /// Returns the form of all ranks' contributions in one tensor.
    pub(super) fn joined(&self) -> Form {
        match (self.check.extent, self.check.layout) {
            (Extent::Flat(_), Layout::Transposed) => Form::Columns,
            (Extent::Flat(_), Layout::Expanded) => Form::Rows,
            (Extent::Flat(_), Layout::ChannelsLast) => Form::Images,
            (Extent::Scalar, _)
            | (
                Extent::Flat(_),
                Layout::Contiguous | Layout::Strided | Layout::Offset | Layout::Unaligned,
            ) => Form::Flat,
        }
    }

    /// Returns the layout of a buffer.
    fn layout(&self, role: Role) -> Layout {
        let has_it = match self.check.layout_of {
            LayoutOf::All => true,
            LayoutOf::Input => role == Role::Input,
            LayoutOf::Output => role == Role::Output,
            LayoutOf::OddRanks => self.position % 2 == 1,
        };
        if has_it {
            self.check.layout
        } else {
            Layout::Contiguous
        }
    }

    /// Split sizes count rows, not elements.
    pub(super) fn rows(&self, len: usize) -> u64 {
        (len / self.joined().width()) as u64
    }

    /// Adds a buffer made of pieces, each a length, what is there before and what must be there after, and returns its index.
    pub(super) fn buffer(
        &mut self,
        role: Role,
        number: Option<u32>,
        form: Form,
        pieces: impl IntoIterator<Item = (usize, Fill, Origin)>,
    ) -> usize {
        let mut len = 0;
        let pieces = pieces
            .into_iter()
            .map(|(piece, before, after)| {
                let start = len;
                len += piece;
                Segment {
                    start,
                    len: piece,
                    before,
                    after,
                }
            })
            .collect();
        let start = self.work.bytes;
        let turn = self.check.extent.numel() as usize
            + 5 * self.position as usize
            + 3 * self.work.buffers.len();
        let size = self.check.dtype.size();
        let (place, bytes) = TensorGeometry::new(start, size, len, form, self.layout(role), turn);
        self.work.bytes += bytes;
        self.work.buffers.push(Buffer {
            role,
            number,
            len,
            place,
            storage: (start, bytes),
            pieces,
        });
        self.work.buffers.len() - 1
    }

    /// Adds a view of a whole buffer, and returns its index.
    pub(super) fn whole(&mut self, buffer: usize, form: Form) -> usize {
        let Buffer { place, len, .. } = self.work.buffers[buffer];
        self.view(buffer, place, len, form, None)
    }

    /// Returns a view of a buffer with a piece for each rank, in the shape the check gives to such tensors.
    pub(super) fn joint_view(&mut self, buffer: usize) -> usize {
        let Buffer { place, len, .. } = self.work.buffers[buffer];
        let stacked = match self.check.joined {
            Joined::Cat => None,
            Joined::Stack => Some(u64::from(self.ranks())),
        };
        // Stacked, a 0-dim contribution is one row and has no dimension of its own.
        let form = match (stacked, self.check.extent) {
            (Some(_), Extent::Scalar) => Form::Scalar,
            _ => self.joined(),
        };
        self.view(buffer, place, len, form, stacked)
    }

    /// Adds a view of one piece of a buffer, and returns its index.
    pub(super) fn part(&mut self, buffer: usize, piece: u32, form: Form) -> usize {
        let Buffer {
            place, ref pieces, ..
        } = self.work.buffers[buffer];
        let Segment { start, len, .. } = pieces[piece as usize];
        self.view(buffer, place.from(start), len, form, None)
    }

    fn view(
        &mut self,
        buffer: usize,
        place: TensorGeometry,
        len: usize,
        form: Form,
        stacked: Option<u64>,
    ) -> usize {
        let dtype: DType = self.check.dtype;
        self.work
            .tensors
            .push(place.tensor(buffer, dtype, len, form, stacked));
        self.work.tensors.len() - 1
    }

    /// Adds a buffer of one piece and a view of it, and returns the view's index.
    pub(super) fn tensor(
        &mut self,
        role: Role,
        number: Option<u32>,
        item: u32,
        before: Fill,
        after: Origin,
    ) -> usize {
        let len = self.len(item);
        self.sized(role, number, item, (len, before, after))
    }

    /// The same of a given length.
    pub(super) fn sized(
        &mut self,
        role: Role,
        number: Option<u32>,
        item: u32,
        piece: (usize, Fill, Origin),
    ) -> usize {
        let form = self.form(item);
        let buffer = self.buffer(role, number, form, [piece]);
        self.whole(buffer, form)
    }

    /// Returns true if calls are made with `async_op`.
    pub(super) fn is_async(&self) -> bool {
        self.check.mode == Mode::Async
    }

    /// Makes a call, and waits for it if it is async.
    pub(super) fn call(&mut self, call: Call) {
        let index = self.work.calls.len();
        self.work.calls.push(call);
        if self.is_async() {
            self.work.calls.push(Call::Wait {
                work: index,
                timeout_ms: None,
            });
        }
    }

    /// Makes a call that is never async and must answer.
    pub(super) fn ask(&mut self, call: Call, answer: Answer) {
        self.work.answers.push((self.work.calls.len(), answer));
        self.work.calls.push(call);
    }
}
