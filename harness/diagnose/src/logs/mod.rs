//! The verdict on a job from the logs of its ranks alone.
//!
//! In: files, folders, or a stream. Out: a [`Report`]. Logs are cut, buffered and silent about much, so what they show
//! is likely and not proved, unless an error names its own cause. A rank that only waits, or whose error says that
//! others went away, is never the culprit.
//!
//! | module | holds |
//! |---|---|
//! | `source` | files, and their lines |
//! | `records` | records of log collectors, as the lines that programs have written |
//! | `collector` | what a collector has put before lines |
//! | `writers` | pods, containers and hosts, and the ranks that run there |
//! | `owner` | the rank that wrote a file, by its name |
//! | `line` | one line: its rank, its time, its text |
//! | `signature` | the rank that a message begins with |
//! | `moment` | times at the start of lines |
//! | `phase` | `Before X`, `After X`, and what X is |
//! | `arrival` | lines in which a rank names itself as it comes to its world |
//! | `failure` | tracebacks, and what torch says of others |
//! | `environment` | `MASTER_PORT=29500` |
//! | `launcher` | torchrun's table of failures |
//! | `srun` | how srun says that its tasks ended |
//! | `node_failures` | nodes that a scheduler says have failed |
//! | `process_lines` | lines about processes, by rank once that is known |
//! | `process_table` | stopped processes that `ps` shows |
//! | `restart` | whether a launcher has started the job again |
//! | `deepspeed_launch` | the processes that DeepSpeed's launcher has started |
//! | `dead_workers` | workers that an engine says have died |
//! | `process_header` | the process that a line of NCCL or CANN begins with |
//! | `own_process` | lines in which a rank tells the id of its process |
//! | `traceback_lines` | the lines of a traceback of which only the first has headers |
//! | `connection` | whether a rank has come to the store of its rendezvous |
//! | `container_exits` | how containers ended |
//! | `pod_ends` | pods that a cluster has ended |
//! | `communicator` | the ranks that processes have in NCCL's communicators |
//! | `collective_trace` | the collectives that NCCL writes down as they are called |
//! | `group_creations` | the groups that a rank creates, in their order |
//! | `group_members` | the members that a rank says its groups have |
//! | `bootstrap` | what NCCL says of ranks that check in |
//! | `rank_claims` | the ranks that processes claim to be |
//! | `compared_values` | errors in which ranks compare what they have |
//! | `stack_titles` | the titles above stacks that name ranks |
//! | `stalled_tensors` | tensors that Horovod says ranks have not submitted |
//! | `lagging_ranks` | ranks that torch's own reports say have not joined a collective |
//! | `operation_counts` | how many operations NCCL's RAS says that ranks have launched |
//! | `message_timeouts` | the messages that a rank says have timed out |
//! | `message_tags` | the messages that a rank writes down with their tags |
//! | `watchdog` | the numbers in the lines of NCCL's watchdog |
//! | `recorder_dump`, `pickle` | dumps of flight recorders |
//! | `dumps` | those of a job that runs |
//! | `call_stacks` | stacks that py-spy has printed |
//! | `faulthandler` | stacks that Python has printed of its own process |
//! | `torch_calls` | the calls of `torch.distributed` that frames show |
//! | `pattern` | compiles the patterns of lines |
//! | `peer` | the other side of a message, by the line of code |
//! | `rank_list` | lists of ranks with commas |
//! | `rank_log` | everything one rank wrote, in order |
//! | `logged` | what one rank wrote, as phases: begun, and under way |
//! | `survey` | a first reading of a source: which ranks it is of |
//! | `source_logs` | one source split into the logs of its ranks |
//! | `job_lines` | lines about the job, or about other ranks than their writer |
//! | `job_sources` | all sources of a job, each split |
//! | `job` | the logs of all ranks, joined |
//! | `job_evidence` | these as evidence for the rules |
//! | `not_known` | what they leave open |
//! | `behind` | which ranks have not come to where the others wait |
//! | `dump_contradiction` | what dumps contradict each other in |
//! | `verdict` | which rule counts |
//!
//! A new kind of line: a reader beside `watchdog`, used by `rank_log`, or by `source_logs` if the line is no rank's.

mod arrival;
mod behind;
mod bootstrap;
mod call_stacks;
mod collective_trace;
mod collector;
mod communicator;
mod compared_values;
mod connection;
mod container_exits;
mod dead_workers;
mod deepspeed_launch;
mod dump_contradiction;
mod dumps;
mod environment;
mod failure;
mod faulthandler;
mod group_creations;
mod group_members;
mod job;
mod job_evidence;
mod job_lines;
mod job_sources;
mod lagging_ranks;
mod launcher;
mod line;
mod logged;
mod message_tags;
mod message_timeouts;
mod moment;
mod node_failures;
mod not_known;
mod operation_counts;
mod own_process;
mod owner;
mod pattern;
mod peer;
mod phase;
mod pickle;
mod pod_ends;
mod process_header;
mod process_lines;
mod process_table;
mod rank_claims;
mod rank_list;
mod rank_log;
mod recorder_dump;
mod records;
mod restart;
mod signature;
mod source;
mod source_logs;
mod srun;
mod stack_titles;
mod stalled_tensors;
mod survey;
mod torch_calls;
mod traceback_lines;
mod verdict;
mod watchdog;
mod writers;

use serde::Serialize;

use allranks_model::diagnosis::Diagnosis;
use allranks_model::record::RankLine;
pub use dumps::Dumps;
pub use source::{LogError, Source, read};

/// The version of a report's JSON format.
const FORMAT: u32 = 1;

/// What the logs of a job show.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version of this JSON format.
    pub format: u32,
    /// What is wrong; `None` if the logs show nothing wrong.
    pub verdict: Option<Diagnosis>,
    /// Without a verdict: what keeps the logs from showing that every rank has come through. Empty if they show it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_known: Vec<String>,
    /// Where every rank is; empty if there is a verdict, which says so itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<RankLine>,
    /// Notes on how the logs were read.
    pub notes: Vec<String>,
}

/// Reports what these logs show.
///
/// # Errors
/// No line of them belongs to a rank, or they say nothing of where ranks are.
pub fn report(sources: &[Source]) -> Result<Report, LogError> {
    let (job, notes) = job::Job::of(sources)?;
    if job.is_silent() {
        return Err(LogError::Silent);
    }
    let verdict = verdict::verdict(&job);
    let (places, not_known) = match &verdict {
        Some(_) => (Vec::new(), Vec::new()),
        None => (job.places(), job.not_known()),
    };
    Ok(Report {
        format: FORMAT,
        verdict,
        not_known,
        places,
        notes,
    })
}
