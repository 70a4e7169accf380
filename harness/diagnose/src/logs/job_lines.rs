//! Reads the lines that say something of the job or of other ranks than their writer, in one source and in all of a job.

use std::collections::{BTreeMap, BTreeSet};

use super::arrival::Counts;
use super::bootstrap::Bootstrap;
use super::compared_values::ComparedValues;
use super::dead_workers::DeadWorkers;
use super::failure::Accusations;
use super::lagging_ranks::LaggingRanks;
use super::launcher::Launcher;
use super::node_failures::NodeFailures;
use super::pod_ends::PodEnds;
use super::process_table::ProcessTable;
use super::rank_claims::RankClaims;
use super::stalled_tensors::StalledTensors;

/// What such lines say, by what wrote them or what they are about.
#[derive(Clone, Debug, Default)]
pub(super) struct JobLines {
    /// What torchrun, srun and the like say of the ends of ranks.
    pub(super) launcher: Launcher,
    /// What torch says of other ranks.
    pub(super) accusations: Accusations,
    /// How many ranks have come, as counted by those that wait for them.
    pub(super) counts: Counts,
    /// The workers that an engine or the kernel says have died.
    pub(super) dead_workers: DeadWorkers,
    /// The nodes that a scheduler says have failed.
    pub(super) node_failures: NodeFailures,
    /// The processes that a table of `ps` shows to be stopped.
    pub(super) process_table: ProcessTable,
    /// What errors say that ranks have, where not all have the same.
    pub(super) compared_values: ComparedValues,
    /// The tensors that Horovod says some ranks have not submitted.
    pub(super) stalled_tensors: StalledTensors,
    /// What NCCL says of ranks that check in.
    pub(super) bootstrap: Bootstrap,
    /// The ranks that processes claim to be.
    pub(super) rank_claims: RankClaims,
    /// What torch's own reports say of ranks that have not joined a collective.
    pub(super) lagging_ranks: LaggingRanks,
    /// The pods, containers or hosts that lines begin with, and the ranks that run there.
    pub(super) pods: BTreeMap<String, BTreeSet<u32>>,
    /// The pods that a cluster says it has ended.
    pub(super) pod_ends: PodEnds,
}

impl JobLines {
    /// Reads the next line, which a rank has written if it is known. Dead workers are read apart, since an engine that is one of several
    /// numbers its own workers from 0, and so are the claims of processes, which need the line's writer.
    pub(super) fn read(&mut self, text: &str, rank: Option<u32>) {
        self.launcher.read(text);
        self.accusations.read(text, rank);
        self.counts.read(text);
        self.node_failures.read(text);
        self.process_table.read(text);
        self.compared_values.read(text);
        self.stalled_tensors.read(text);
        self.bootstrap.read(text);
        self.lagging_ranks.read(text, rank);
        self.pod_ends.read(text);
    }

    /// Ends the reading of a source: no more lines come.
    pub(super) fn close(&mut self) {
        self.launcher.close();
        self.lagging_ranks.close();
        self.rank_claims.close();
    }

    /// Notes that a rank has written of a step.
    pub(super) fn step(&mut self, rank: u32) {
        self.accusations.step(rank);
        self.stalled_tensors.step();
    }

    /// Adds what another source says.
    pub(super) fn merge(&mut self, other: Self) {
        self.launcher.merge(other.launcher);
        self.accusations.merge(other.accusations);
        self.counts.merge(other.counts);
        self.dead_workers.lines.merge(other.dead_workers.lines);
        self.node_failures.merge(other.node_failures);
        self.process_table.lines.merge(other.process_table.lines);
        self.compared_values.merge(other.compared_values);
        self.stalled_tensors.merge(other.stalled_tensors);
        self.bootstrap.merge(other.bootstrap);
        self.rank_claims.merge(other.rank_claims);
        self.lagging_ranks.merge(other.lagging_ranks);
        self.pods.extend(other.pods);
        self.pod_ends.merge(other.pod_ends);
    }

    /// Gives processes that lines name by their ids the ranks that are known of them.
    pub(super) fn name_processes(&mut self, rank_of: impl Fn(&str) -> Option<u32>) {
        self.dead_workers.lines.name(&rank_of);
        self.process_table.lines.name(rank_of);
    }
}
