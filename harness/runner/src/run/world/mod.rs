//! Runs one world, from its start to its end, or to the point where it fails.
//!
//! In: a [`WorldPlan`] and a [`World`](crate::world::World) whose processes have been started. Out: a [`WorldResult`]:
//! how it initialised and ended, and what is known of each rank. The results of its checks are given while it runs, each as
//! soon as nothing in the world can change it. Afterwards no process of the world is left.
//!
//! The work is divided in two. [`WorldState`](state::WorldState) is a state machine: it takes an
//! [`Event`](event::Event) and the time, and gives the
//! [`Action`](event::Action)s that follow. It reads no clock, waits for nothing, and touches neither socket nor process nor file.
//! [`WorldRunner`] waits for events and performs the actions, and decides nothing.
//!
//! | module | holds |
//! |---|---|
//! | `plan` | what a world is to do |
//! | `event` | the events that the state machine takes, and the actions that it gives |
//! | `state` | the state machine's data |
//! | `transitions` | takes an event, and makes the transitions that follow |
//! | `phase` | phases, what is waited for besides, why a world is left early |
//! | `clock` | the time of the state machine, in which delays of the harness do not pass |
//! | `processor_times` | tells a late rank from a busy machine |
//! | `alarm` | when the world must act although no event comes |
//! | `step_frame` | a step for one rank |
//! | `sending` | steps on their way |
//! | `opening` | imports, `init_process_group` and groups |
//! | `checks` | decides which check is sent next, and whether it can be |
//! | `apply_frame` | applies a rank's frame, and detects frames that break the protocol |
//! | `step_end` | a step that every rank has answered → a check result |
//! | `script_events` | what goes on in a script besides calls: marks, ranks that hold or are stopped |
//! | `script_control` | sends a script, does what it demands besides calls, decides what becomes of the world afterwards |
//! | `hang_checks` | the verdicts since something last moved, and which of them counts |
//! | `hang_verdict` | decides when a world in which nothing moves is looked at, and judges the verdict that a script demands |
//! | `evidence` | the hang evidence of each rank, and the query to the host |
//! | `lost_rank` | a rank whose connection breaks, and the answers that still count then |
//! | `failure` | why a world fails |
//! | `failed_world` | a failed world → check results |
//! | `shutdown` | every rank's `bye` and exit, or its death |
//! | `runner` | [`WorldRunner`] |
//! | `result` | [`WorldResult`] |
//!
//! # Phases
//!
//! Steps are sent ahead of the answers, so that a rank never waits for the harness: a rank may be 16 steps ahead of the
//! slowest. A *fence* is a point at which nothing more is sent before every rank has answered everything.
//!
//! | phase | waits for | then |
//! |---|---|---|
//! | `Connecting` | every rank's hello | `Shutdown`, if a driver lacks a call of the opening; else imports are sent: `Importing` |
//! | `Importing` | fence | the opening is sent to rank 0: `HostEntering` (`Opening` in a world of one); `Checks` if there is none |
//! | `HostEntering` | rank 0's entering init, or 2 s | `HostPause` |
//! | `HostPause` | 5 ms | the opening is sent to the others: `Opening` |
//! | `Opening` | fence | `Checks` |
//! | `Checks` | room for the next check; a fence before a script and after the last check | the check is sent, with its group test if it must be refused; a script: `Script`; after the last: teardown is sent: `Closing`, or `Shutdown` where the scripts have torn down themselves |
//! | `Script` | fence | `Checks` |
//! | `Closing` | fence | `Shutdown` |
//! | `Shutdown` | `bye` and end of every rank that was sent `finish` | `Reaping` |
//! | `LateAnswers` | answers to the step that the lost rank has answered, 2 s at most | `Reaping` |
//! | `Reaping` | ends of the processes killed, 10 s at most | `Finished` |
//!
//! Phases are left early:
//!
//! * A rank's connection breaks before its `bye`: its end is waited for, 1 s (the whole deadline, if a script sends it
//!   away). If the script under way sends it away, it has left; otherwise it has crashed, as has one that breaks the
//!   protocol, is refused, or ends before its hello: `LateAnswers`.
//! * Nothing moves for the world's deadline (5 s, where an expectation says that what is under way hangs; the patience for
//!   imports, before every rank has imported): it hangs: `Reaping`.
//! * Nothing moves for 0.6 s: evidence is gathered, and again every 0.4 s. A verdict that is proved twice in a row ends
//!   the world as a hang; in a script only if the script says which verdict must come.
//! * An init that failed, a check that raised, or a script after which the world is abandoned: `Reaping`. A script after
//!   which everything leaves: `Shutdown` of the ranks that are left.
//! * The machine hardly lets the ranks run, for ten times what they may take: the world is given up: `Reaping`.
//! * The run is interrupted: `Reaping`.
//!
//! Any event of a rank is progress, except what a rank reports while it waits.

mod alarm;
mod apply_frame;
mod checks;
mod clock;
mod event;
mod evidence;
mod failed_world;
mod failure;
#[cfg(test)]
pub(super) mod fixture;
mod hang_checks;
mod hang_verdict;
mod lost_rank;
mod opening;
mod phase;
mod plan;
mod processor_times;
mod result;
mod runner;
mod script_control;
mod script_events;
mod sending;
mod shutdown;
#[cfg(test)]
mod simulation;
mod state;
mod step_end;
mod step_frame;
mod transitions;

pub use plan::WorldPlan;
pub use result::WorldResult;
pub use runner::{Decided, WorldRunner};
