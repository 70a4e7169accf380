//! Follows what one rank has written as a sequence of phases: what it has begun, and what it is in.

use std::collections::{BTreeMap, HashSet};
use std::sync::LazyLock;

use rayon::prelude::*;
use regex::Regex;

use super::failure::TracebackEnd;
use super::moment::Moment;
use super::peer::peer;
use super::phase::{Edge, Mark, Nature};
use super::rank_log::RankLog;
use super::torch_calls::nature;
use super::watchdog::WORLD;

static DIGITS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\d+").ok());

/// What one rank has written, as a sequence of phases.
#[derive(Clone, Debug)]
pub(super) struct Logged {
    pub(super) log: RankLog,
    /// Phases it has begun, in order.
    pub(super) begun: Vec<Step>,
    /// Indices in `begun` of the phases that it is in, outermost first.
    pub(super) open: Vec<usize>,
}

/// A phase that a rank has begun.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// The name of the phase, as the log has it.
    pub(super) name: String,
    /// A key that is the same on all ranks that do the same.
    pub(super) key: String,
    pub(super) nature: Nature,
    pub(super) moment: Option<Moment>,
}

impl Logged {
    /// Returns the index in `begun` of the innermost phase that it is in; `None` if it is in none.
    pub(super) fn now(&self) -> Option<usize> {
        self.open.last().copied()
    }

    /// Returns the innermost phase that it is in; `None` if it is in none.
    pub(super) fn step(&self) -> Option<&Step> {
        self.begun.get(self.now()?)
    }

    /// Returns true if it has written an error that nothing but tearing down follows, or its watchdog ended its wait.
    pub(super) fn gave_up(&self) -> bool {
        self.log.final_errors().next().is_some() || self.log.watchdog.timed_out()
    }

    /// Returns the number of the collective of the whole world that timed out on it; `None` if none did.
    pub(super) fn timed_out_work(&self) -> Option<i64> {
        let works = self.log.watchdog.groups.get(WORLD)?;
        works.timed_out.as_ref().map(|work| work.number)
    }

    /// Counts how often it has begun the phase with this key.
    pub(super) fn times(&self, key: &str) -> usize {
        self.begun.iter().filter(|step| step.key == key).count()
    }

    /// Follows the marks of a rank. A phase whose end no rank ever writes is over when the next one begins; so are
    /// collectives and messages.
    fn of(rank: u32, mut log: RankLog, ended: &Ended, any_cut: bool) -> Self {
        let marks = std::mem::take(&mut log.marks);
        let mut logged = Self {
            begun: Vec::new(),
            open: Vec::new(),
            log,
        };
        let is_counted = |mark: &Mark| !any_cut || mark.name.contains(|c: char| c.is_ascii_digit());
        for (mark, moment) in marks.iter().filter(|(mark, _)| is_counted(mark)) {
            let stays = |step: &Step| {
                let is_call = matches!(step.nature, Nature::Collective(_) | Nature::Message { .. });
                ended.knows(&step.name, &step.nature) && !is_call
            };
            match mark.edge {
                Edge::Begin => {
                    while let Some(step) = logged.step() {
                        if stays(step) {
                            break;
                        }
                        logged.open.pop();
                    }
                    logged.open.push(logged.begun.len());
                    logged.begin(mark, *moment);
                }
                Edge::End => {
                    let is = |test: &dyn Fn(&Step) -> bool| {
                        let mut open = logged.open.iter();
                        open.rposition(|number| test(&logged.begun[*number]))
                    };
                    let begun = is(&|step| mark.names(&step.name));
                    let begun = begun.or_else(|| is(&|step| mark.is_like(&step.nature)));
                    match begun {
                        Some(place) => logged.open.truncate(place),
                        // It has gone on to something whose begin it has not written.
                        None => {
                            while logged.step().is_some_and(|step| !stays(step)) {
                                logged.open.pop();
                            }
                            logged.begin(mark, *moment);
                        }
                    }
                }
            }
        }
        logged.log.marks = marks;
        logged.interrupt(rank);
        logged
    }

    /// Adds the call, or the place in its own code, that the rank's last traceback shows it in.
    fn interrupt(&mut self, rank: u32) {
        let Some(place) = self.log.interrupted() else {
            return;
        };
        let is_ctrl_c = || {
            let mut words = self.log.final_errors();
            words.all(|error| error.starts_with("KeyboardInterrupt"))
        };
        let (name, nature) = match place {
            TracebackEnd::Call(call) => ((*call).to_owned(), nature(call)),
            TracebackEnd::Message { sends, code } => {
                let Some(peer) = peer(code, rank) else {
                    return;
                };
                Nature::message(*sends, peer)
            }
            TracebackEnd::Own(place) if is_ctrl_c() => (place.clone(), Nature::Own),
            TracebackEnd::Own(_) | TracebackEnd::Other => return,
        };
        let is_known = match self.step() {
            Some(step) => step.nature == nature || step.nature.waits(),
            None => false,
        };
        if !is_known {
            let edge = Edge::Begin;
            self.open.push(self.begun.len());
            self.begin(&Mark { edge, name, nature }, None);
        }
    }

    fn begin(&mut self, mark: &Mark, moment: Option<Moment>) {
        self.begun.push(Step {
            name: mark.name.clone(),
            key: key(mark),
            nature: mark.nature.clone(),
            moment,
        });
    }
}

/// The phases of which some rank writes that they are over.
#[derive(Default)]
struct Ended {
    names: HashSet<String>,
    natures: Vec<Nature>,
}

impl Ended {
    fn knows(&self, name: &str, nature: &Nature) -> bool {
        self.names.contains(name) || (*nature != Nature::Own && self.natures.contains(nature))
    }
}

/// Returns what each rank has written as phases. Which phases have an end, the marks of all ranks show.
pub(super) fn logged(rank_logs: BTreeMap<u32, RankLog>) -> BTreeMap<u32, Logged> {
    let mut ended = Ended::default();
    for (mark, _) in rank_logs.values().flat_map(|log| &log.marks) {
        if mark.edge == Edge::End {
            if !ended.names.contains(&mark.name) {
                ended.names.insert(mark.name.clone());
            }
            if !ended.natures.contains(&mark.nature) {
                ended.natures.push(mark.nature.clone());
            }
        }
    }
    let any_cut = rank_logs.values().any(|log| log.is_cut);
    let all: Vec<(u32, RankLog)> = rank_logs.into_iter().collect();
    all.into_par_iter()
        .map(|(rank, log)| (rank, Logged::of(rank, log, &ended, any_cut)))
        .collect()
}

/// Returns a key that is the same on all ranks that do the same: a call's name and the numbers beside it; otherwise the
/// whole name.
fn key(mark: &Mark) -> String {
    let call = match mark.nature {
        Nature::Collective(call) => call,
        Nature::NewGroup(_) => "new_group",
        Nature::Init => "init_process_group",
        Nature::Destroy => "destroy_process_group",
        Nature::Message { .. } | Nature::Own => return mark.name.clone(),
    };
    let numbers = DIGITS.as_ref().map(|digits| digits.find_iter(&mark.name));
    let numbers = numbers.into_iter().flatten().map(|number| number.as_str());
    std::iter::once(call)
        .chain(numbers)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::line::LogLine;

    #[test]
    fn an_end_without_its_begin_shows_that_the_rank_has_gone_on() {
        let now = |text: &str| {
            let mut log = RankLog::default();
            for line in text.lines() {
                log.read(&LogLine::read(line));
            }
            let logged = logged([(0, log)].into());
            logged[&0].step().map(|step| step.name.clone())
        };
        let begin = "Init torch distributed begin.";
        assert_eq!(now(begin).as_deref(), Some("init torch distributed"));
        assert_eq!(now(&format!("{begin}\nLoad weight end. type=Llama")), None);
    }
}
