//! # allranks-suite
//!
//! The files of a suite (cases, platforms, expectations), and the plan that is made from them.
//!
//! | module          | holds                                                                                      |
//! |-----------------|--------------------------------------------------------------------------------------------|
//! | [`case`]        | one YAML file: a scenario template and its matrix; profiles; requirements; strict, with excerpts |
//! | [`platform`]    | a kind of device as its YAML file declares it                                                |
//! | [`plan`]        | scenarios × checks: what will run, what will not, and why                                    |
//! | [`expectation`] | known failures, and the verdict that an outcome has against them                             |

pub mod case;
pub mod expectation;
pub mod plan;
pub mod platform;
