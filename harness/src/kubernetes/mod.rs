//! Manifests for Kubernetes whose Pods are node agents of a run: an Indexed Job with a headless Service, a JobSet, and a TrainJob of
//! Kubeflow. They hold no secret: the run's credentials come from a Secret that is made beside them.
//!
//! | module | holds |
//! |---|---|
//! | `options` | what the user says of Pods |
//! | `manifests` | the manifests |

mod manifests;
mod options;

pub use manifests::{Manifests, SECRET_KEY};
pub use options::PodOptions;
