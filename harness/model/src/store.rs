//! The ways in which the ranks of a world find their store.

use serde::{Deserialize, Serialize};

/// How ranks find each other: the `init_method` or store handed to `init_process_group`.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum StoreMethod {
    /// `env://`: `MASTER_ADDR` and `MASTER_PORT` from the environment.
    Env,
    /// `tcp://host:port` with explicit rank and world size.
    Tcp,
    /// `file:///path` with explicit rank and world size.
    File,
    /// An explicit `TCPStore` passed as `store=`.
    Store,
}

impl StoreMethod {
    /// Returns the name in case files and in the rank protocol.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the address that a rank is given: a URL for `init_method`, or `host:port` of the store that the rank creates itself;
    /// `None` if the environment holds the address.
    #[must_use]
    pub fn url(self, host: &str, port: u16, file: &str) -> Option<String> {
        match self {
            Self::Env => None,
            Self::Tcp => Some(format!("tcp://{host}:{port}")),
            Self::File => Some(format!("file://{file}")),
            Self::Store => Some(format!("{host}:{port}")),
        }
    }
}
