//! Manifests for Kubernetes whose Pods are node agents of a run: an Indexed Job with a headless Service, a JobSet, and a TrainJob
//! of Kubeflow. They contain no secret: the run's credentials are in a Secret that the user creates.
//!
//! | module | holds |
//! |---|---|
//! | `options` | the options for Pods |
//! | `manifests` | the manifests |

mod manifests;
mod options;

pub use manifests::{Manifests, SECRET_KEY};
pub use options::PodOptions;
