//! World.
