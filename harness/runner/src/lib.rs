//! # allranks-runner
//!
//! Starts worlds, runs scenarios in them, and judges the results. Async code is only in [`world`], [`run`] and
//! [`watch`].
//!
//! | module      | holds                                                                              |
//! |-------------|------------------------------------------------------------------------------------|
//! | [`probe`]   | what a platform file declares, observed on this machine                              |
//! | [`world`]   | ranks started together: processes, sockets, deadlines, what they leave behind        |
//! | [`script`]  | what each rank does move by move, and what every move must give                      |
//! | [`run`]     | ties one scenario together, and many side by side; emits records                     |
//! | [`check_result`] | the outcome of one check, and what is reported of it                                 |
//! | [`watch`]   | any distributed program under the hang diagnosis                                     |
//! | `foreign_listeners` | processes of other programs that listen where ranks meet                             |

pub mod check_result;
mod foreign_listeners;
pub mod probe;
pub mod run;
pub mod script;
pub mod watch;
pub mod world;
