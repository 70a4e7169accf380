//! What the watches of a job on several nodes tell each other, and the verdict from all of it.
//!
//! | module | holds |
//! |---|---|
//! | `node_evidence` | keeps what one node has seen as a file, and merges the files of several |
//! | `member` | what one watch of a job on several nodes tells the others of itself |
//! | `other_watches` | the other watches of a job on several nodes, and which of them go on |
//! | `shared_job` | judges the evidence of all nodes of a job while it runs |
//! | `unreachable_master` | finds a rank 0 whose endpoint another host cannot reach |
//! | `evidence_files` | the files of one watch, written anew while its worlds live |

pub(super) mod evidence_files;
pub(super) mod member;
pub(super) mod node_evidence;
pub(super) mod other_watches;
pub(super) mod shared_job;
pub(super) mod unreachable_master;
