//! The hang evidence of one world, from its processes and their call traces.
//!
//! | module | holds |
//! |---|---|
//! | `hang_evidence` | builds the hang evidence of a job |
//! | `compared_world` | describes each rank of one world, from its call trace |
//! | `kept_messages` | the messages that the traces of both their sides still have |
//! | `sub_world` | finds a world that only some of a job's ranks are in |
//! | `whole_world` | decides whether all ranks of a world are on this host |
//! | `world_view` | what one look sees of a world |

pub(super) mod compared_world;
pub(super) mod hang_evidence;
pub(super) mod kept_messages;
pub(super) mod sub_world;
pub(super) mod whole_world;
pub(super) mod world_view;
