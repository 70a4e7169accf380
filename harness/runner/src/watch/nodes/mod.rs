//! What the watches of a job on several nodes tell each other, and the verdict from all of it.
//!
//! | module | holds |
//! |---|---|
//! | `node_evidence` | what one node has seen of a world, as a file |
//! | `member` | what one watch of a job on several nodes tells the others of itself |
//! | `other_watches` | the other watches of a job on several nodes, and which of them go on |
//! | `shared_job` | judges the evidence of all nodes of a job while it runs |
//! | `unreachable_master` | finds a rank 0 whose endpoint another host cannot reach |
//! | `evidence_files` | the files of one watch, written anew while its worlds live |
//! | `stored_rank` | one rank in a file of evidence |
//! | `seen_place` | where a rank was seen by its stack |
//! | `evidence_paths` | the names of files of evidence, and where they are found |
//! | `world_report` | the verdict on a world from the evidence of its nodes |
//! | `judged` | the last verdict on a job, as a file for its other watches |
//! | `evidence_versions` | which version of each file of evidence was read when |

pub(super) mod evidence_files;
pub(super) mod evidence_paths;
pub(super) mod evidence_versions;
pub(super) mod judged;
pub(super) mod member;
pub(super) mod node_evidence;
pub(super) mod other_watches;
pub(super) mod seen_place;
pub(super) mod shared_job;
pub(super) mod stored_rank;
pub(super) mod unreachable_master;
pub(super) mod world_report;
