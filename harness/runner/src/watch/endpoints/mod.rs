//! The addresses at which ranks meet.
//!
//! | module | holds |
//! |---|---|
//! | `hosts` | decides which addresses name the same host |
//! | `reach` | whether an endpoint that ranks dial can be reached |
//! | `listeners` | what listens, or does not, at the endpoints that ranks dial |

pub(super) mod hosts;
pub(super) mod listeners;
pub(super) mod reach;
