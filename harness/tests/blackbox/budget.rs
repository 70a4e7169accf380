//! How many trials run at once. Most of them mostly wait, for a rank that hangs or an import: each asks for as much of the
//! machine as it keeps busy, and what all of them ask for together is limited.

use std::num::NonZeroUsize;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

/// Parts of a core, each enough for a trial that waits.
const PARTS: usize = 6;

/// How much of the machine a trial keeps busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Load {
    /// Little: its processes start, and wait for each other.
    Waits,
    /// A third of a core: torch is imported, mostly once.
    Imports,
    /// Two thirds of a core: several processes import torch, or compute, and then wait.
    Computes,
}

impl Load {
    fn parts(self) -> usize {
        match self {
            Self::Waits => 1,
            Self::Imports => PARTS / 3,
            Self::Computes => PARTS * 2 / 3,
        }
    }
}

/// The machine, of which trials take parts in the order in which they ask, so that none is left waiting for smaller ones.
#[derive(Debug)]
pub struct Budget {
    all: usize,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug)]
struct Queue {
    free: usize,
    /// Number of trials that have asked.
    asked: u64,
    /// Number of trials that have been given their part.
    served: u64,
}

/// A part of the machine; dropping it gives it back.
#[derive(Debug)]
pub struct Part<'a> {
    budget: &'a Budget,
    parts: usize,
}

impl Budget {
    /// The cores that this process may use.
    pub fn of_machine() -> Self {
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let all = cores * PARTS;
        Self {
            all,
            queue: Mutex::new(Queue {
                free: all,
                asked: 0,
                served: 0,
            }),
            changed: Condvar::new(),
        }
    }

    /// Returns the largest number of trials that run at once.
    pub fn all(&self) -> usize {
        self.all
    }

    /// Waits until there is room for a trial, and for those that asked before.
    pub fn take(&self, load: Load) -> Part<'_> {
        let parts = load.parts();
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = queue.asked;
        queue.asked += 1;
        let must_wait = |queue: &mut Queue| queue.served < turn || queue.free < parts;
        let waited = self.changed.wait_while(queue, must_wait);
        let mut queue = waited.unwrap_or_else(PoisonError::into_inner);
        queue.served += 1;
        queue.free -= parts;
        drop(queue);
        self.changed.notify_all();
        Part {
            budget: self,
            parts,
        }
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        let queue = self.budget.queue.lock();
        queue.unwrap_or_else(PoisonError::into_inner).free += self.parts;
        self.budget.changed.notify_all();
    }
}
