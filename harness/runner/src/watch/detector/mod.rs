//! When what is seen of a program is worth a report.
//!
//! | module | holds |
//! |---|---|
//! | `hang_detector` | detects hangs in all worlds of a program |
//! | `world_detector` | decides when hang evidence of one world is reported |
//! | `monitor` | looks at the processes of one program, again and again |
//! | `event` | what a watch reports |
//! | `moves` | what moves in a world |

pub(super) mod event;
pub(super) mod hang_detector;
pub(super) mod monitor;
pub(super) mod moves;
pub(super) mod world_detector;
