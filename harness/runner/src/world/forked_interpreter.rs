//! Runs Python scripts in processes that are forked from a zygote, which has imported torch already. A run that probes platforms
//! in this way imports torch once: the zygote is the one from which its ranks are forked later.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;

use super::LocalLauncher;
use super::zygote::Zygote;
use allranks_protocol::ForkedScript;

/// Runs Python scripts in processes that are forked from a launcher's zygote.
#[derive(Clone, Debug)]
pub struct ForkedInterpreter {
    launcher: Arc<LocalLauncher>,
    runtime: Handle,
    /// The zygote, once it has been started; none if that failed, which is not tried again for a script.
    zygote: Arc<OnceCell<Option<Arc<Zygote>>>>,
}

impl ForkedInterpreter {
    /// Starts the launcher's zygote in the background, on this runtime.
    #[must_use]
    pub fn new(launcher: Arc<LocalLauncher>, runtime: Handle) -> Self {
        let interpreter = Self {
            launcher,
            runtime,
            zygote: Arc::default(),
        };
        let in_background = interpreter.clone();
        interpreter.runtime.spawn(async move {
            in_background.zygote().await;
        });
        interpreter
    }

    async fn zygote(&self) -> Option<&Arc<Zygote>> {
        let started = async { self.launcher.default_zygote().await.ok() };
        self.zygote.get_or_init(|| started).await.as_ref()
    }

    /// Runs a script with `argument`, in JSON, as its only argument, and with this process's environment changed by `env`.
    /// Returns its output, and its exit status; `None` if it ran for longer than `limit` and was killed. Waits until the zygote
    /// has imported torch. Must not be called on a thread of the runtime.
    ///
    /// # Errors
    /// There is no zygote, or it cannot fork. The script can then run in an interpreter of its own.
    pub fn run_script<'a>(
        &self,
        script: &str,
        argument: &Value,
        env: impl IntoIterator<Item = (&'a String, &'a String)>,
        limit: Duration,
    ) -> io::Result<(String, Option<ExitStatus>)> {
        // Variables that are not UTF-8 cannot be sent in a frame, and are left out, as for ranks.
        let text = |value: OsString| value.into_string().ok();
        let mut environment: BTreeMap<String, String> = std::env::vars_os()
            .filter_map(|(name, value)| Some((text(name)?, text(value)?)))
            .collect();
        environment.extend(
            env.into_iter()
                .map(|(name, value)| (name.clone(), value.clone())),
        );
        let script = ForkedScript {
            text: script.to_owned(),
            argument: argument.to_string(),
        };
        self.runtime.block_on(async {
            match self.zygote().await {
                Some(zygote) => Zygote::run_script(zygote, script, environment, limit).await,
                None => Err(io::Error::other("torch could not be imported")),
            }
        })
    }
}
