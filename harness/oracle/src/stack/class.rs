//! The classes of wrong answers above c10d: the first line of a failure. Names are stable, because result and expectations
//! files hold them.

/// What an answer looks like, and so which bug to look for.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
pub(super) enum StackClass {
    /// Bytes around a tensor were written to.
    GuardOverwritten,
    /// A tensor that is only read was written to.
    InputModified,
    /// Each rank has its own contribution in place of the result of all ranks.
    NotReduced,
    /// The same from some element on.
    TailNotReduced,
    /// What an earlier call or step must give.
    Stale,
    /// The sum in place of the average.
    AvgDidSum,
    /// The average, divided by the number of ranks once more.
    AvgDividedTwice,
    /// The sum in place of the smallest or the largest.
    OpDidSum,
    /// Gradients, divided by another number than asked for.
    DividedOtherwise,
    /// The smallest in place of the largest.
    DidMin,
    /// The largest in place of the smallest.
    DidMax,
    /// The first rank's contribution is missing.
    #[strum(serialize = "rank-dropped")]
    FirstRankDropped,
    /// The last rank's contribution is missing.
    #[strum(serialize = "rank-dropped")]
    LastRankDropped,
    /// A later tensor of a call has what belongs to its first.
    KthIsFirst,
    /// Blocks are joined along another dimension.
    Interleaved,
    /// Each rank has its own data in place of what others sent it.
    NotPermuted,
    /// Blocks are those of other ranks.
    #[strum(serialize = "chunk-shifted")]
    BlocksShifted,
    /// The average in place of a rank's own gradient, which was not to be reduced yet.
    ReducedEarly,
    /// The data of the first rank, which is not the root.
    WrongRoot,
    /// What a rank had before it was to receive the first rank's.
    OwnKept,
    /// Parameters that no rank used have a gradient, or those that some used have none.
    UnusedMistaken,
    /// The sum counts twice, or once for each rank.
    ReducedTwice,
    /// The sum over another group of the mesh.
    WrongGroup,
    /// The sum over all ranks in place of a group's.
    #[strum(serialize = "got-world-instead-of-group")]
    WholeWorld,
    /// Elements lie in reverse order.
    #[strum(serialize = "order-reversed")]
    Reversed,
    /// The last block is zero.
    TailZero,
    /// What had to be refused was accepted.
    NotRefused,
    /// Gradients were clipped by the norm of a rank's own shard.
    LocalNorm,
    /// The reduction was made in another element type than asked for.
    ReducedInAnotherType,
    /// What was written after a checkpoint had been asked for is in it.
    SavedLate,
    /// Ranks that have the same part of a tensor drew different random numbers for it.
    ReplicasDiffer,
    /// Ranks that have different parts of a tensor drew the same random numbers for them.
    ShardsAlike,
    /// Outputs are as they were before the call.
    StaleSentinel,
    /// Outputs are all zero.
    ZeroOutput,
    /// What is wrong is zero, and the rest is right.
    PartZero,
    /// None of the above.
    Unclassified,
}

impl StackClass {
    /// Returns the stable name.
    pub(super) fn name(self) -> &'static str {
        self.into()
    }

    /// Describes the mismatch in one line.
    pub(super) fn sentence(self) -> &'static str {
        match self {
            Self::GuardOverwritten => "bytes around a tensor were written to",
            Self::InputModified => "a tensor that is only read was written to",
            Self::NotReduced => "each rank has its own contribution: nothing was reduced",
            Self::TailNotReduced => {
                "from some element on, each rank has its own contribution: the tail was not reduced"
            }
            Self::Stale => "the result is that of an earlier call or step",
            Self::AvgDidSum => "the sum in place of the average",
            Self::AvgDividedTwice => "the average was divided by the number of ranks twice",
            Self::OpDidSum => "the sum in place of the smallest or the largest",
            Self::DividedOtherwise => "gradients were divided by another number than asked for",
            Self::DidMin => "the smallest in place of the largest",
            Self::DidMax => "the largest in place of the smallest",
            Self::FirstRankDropped => "the first rank's contribution is missing",
            Self::LastRankDropped => "the last rank's contribution is missing",
            Self::KthIsFirst => "a later tensor of the call has what belongs to its first",
            Self::Interleaved => "blocks are joined along another dimension than asked for",
            Self::NotPermuted => "each rank has its own data in place of what others sent it",
            Self::BlocksShifted => "blocks are those of the next rank",
            Self::ReducedEarly => "a gradient was reduced that was only to be accumulated",
            Self::WrongRoot => "the data are those of the first rank, which is not the root",
            Self::OwnKept => "a rank has what it had before, in place of the first rank's",
            Self::UnusedMistaken => {
                "a parameter that ranks left out has a gradient that is not its own"
            }
            Self::ReducedTwice => "what was reduced already was reduced again",
            Self::WrongGroup => "the ranks are those of another group of the mesh",
            Self::WholeWorld => "ranks outside the group took part",
            Self::Reversed => "elements lie in reverse order",
            Self::TailZero => "the last block is zero",
            Self::NotRefused => "what had to be refused was accepted",
            Self::LocalNorm => "gradients were clipped by the norm of each rank's own shard",
            Self::ReducedInAnotherType => {
                "the reduction was made in another element type than asked for"
            }
            Self::SavedLate => "the checkpoint has what was written after it had been asked for",
            Self::ReplicasDiffer => {
                "ranks that have the same part of a tensor drew different random numbers for it"
            }
            Self::ShardsAlike => {
                "ranks that have different parts of a tensor drew the same random numbers for them"
            }
            Self::StaleSentinel => "outputs are as they were before the call",
            Self::ZeroOutput => "outputs are all zero",
            Self::PartZero => {
                "elements are zero in place of what must be there; the others are right"
            }
            Self::Unclassified => "wrong bytes that no known bug explains",
        }
    }
}
