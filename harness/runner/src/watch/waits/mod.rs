//! What a rank waits for besides its peers, and for how long it may.
//!
//! | module | holds |
//! |---|---|
//! | `deadlock` | finds ranks whose threads wait for each other |
//! | `file_locks` | finds ranks that wait for the lock of a file |
//! | `kernel_wait` | what a process waits for, by where it sleeps in the kernel |
//! | `connections` | finds ranks that wait for an answer of another one |
//! | `shared_memory` | finds ranks that may wait for what another one writes into shared memory |
//! | `late_rank` | the verdict on a rank that keeps others waiting |
//! | `below` | what the processes below ranks have used of the processor |
//! | `patiences` | for how long a rank may keep others waiting in code of its own |

pub(super) mod below;
pub(super) mod connections;
pub(super) mod deadlock;
pub(super) mod file_locks;
pub(super) mod kernel_wait;
pub(super) mod late_rank;
pub(super) mod patiences;
pub(super) mod shared_memory;
