//! # allranks-model
//!
//! The vocabulary that every layer shares: names of ranks and checks, dtypes, ops and the axes along which they vary, process
//! groups, init recipes, outcomes and verdicts, diagnoses, and the records of `results.jsonl`. Plain data: no I/O and no async.
//!
//! | module              | holds                                                                        |
//! |---------------------|------------------------------------------------------------------------------|
//! | [`names`]           | ids of cases, scenarios, checks and requirements; ranks and world sizes        |
//! | [`dtype`]           | dtypes and reduce operators                                                    |
//! | [`op`]              | what a check exercises, and what kind of thing each op is                      |
//! | [`axes`]            | the values of axes: extents, layouts, roots, splits, values, ...               |
//! | [`axis`]            | the table of all axes: keys, ops, fields, ids                                   |
//! | [`written`]         | how values of axes are written in case files                                    |
//! | [`op_check`]        | one op at one point of its axes, in one group                                  |
//! | [`group`]           | process groups of a scenario                                                   |
//! | [`recipe`], [`store`], [`launcher`] | how a world initialises, finds its store, and is started       |
//! | [`placement`]       | how many ranks of a world run on each node                                      |
//! | [`capability`]      | what a platform file declares and promises of a backend                        |
//! | [`evidence`]        | whether a result comes from hardware, the host or a simulated device           |
//! | [`excerpt`]         | texts of ranks and programs, cut to a length that records can hold              |
//! | [`outcome`]         | what happened ([`outcome::Outcome`]) and what it means ([`outcome::Verdict`])   |
//! | [`diagnosis`]       | the verdict on a hang, its text, and sets of ranks for people                  |
//! | [`flight_recorder`] | an op as the backend's own records have it                                     |
//! | [`stack`]         | what runs above c10d: layers, each at one point of its axes                     |
//! | [`status`]        | outcome and verdict in one word for people                                      |
//! | [`rank_line`]       | a line about one rank, in records and diagnoses                                |
//! | [`record`]          | the lines of `results.jsonl`                                                   |
//! | [`version`]         | versions of torch                                                              |

pub mod axes;
pub mod axis;
pub mod capability;
pub mod diagnosis;
pub mod dtype;
pub mod evidence;
pub mod excerpt;
pub mod flight_recorder;
pub mod group;
pub mod launcher;
pub mod names;
pub mod op;
pub mod op_check;
pub mod outcome;
pub mod placement;
pub mod rank_line;
pub mod recipe;
pub mod record;
#[cfg(test)]
mod spelling;
pub mod stack;
pub mod status;
pub mod store;
pub mod version;
pub mod written;
