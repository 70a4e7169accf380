//! The addresses at which ranks meet.
//!
//! | module | holds |
//! |---|---|
//! | `hosts` | decides which addresses name the same host |
//! | `reach` | whether an endpoint that ranks dial can be reached |

pub(super) mod hosts;
pub(super) mod reach;
