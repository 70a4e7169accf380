//! An interpreter that has imported torch already: the zygote from which ranks will be forked. What is asked of torch before
//! they start is asked there, so that torch is imported once.

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

/// Asks scripts in processes that are forked from a launcher's zygote.
#[derive(Clone, Debug)]
pub struct Imported {
    launcher: Arc<LocalLauncher>,
    runtime: Handle,
    /// The zygote; none if it could not be started, which is not tried again for a question.
    zygote: Arc<OnceCell<Option<Arc<Zygote>>>>,
}

impl Imported {
    /// Makes one on a launcher, and has its zygote started in the background.
    #[must_use]
    pub fn new(launcher: Arc<LocalLauncher>, runtime: Handle) -> Self {
        let imported = Self {
            launcher,
            runtime,
            zygote: Arc::default(),
        };
        let warmed = imported.clone();
        imported.runtime.spawn(async move {
            warmed.zygote().await;
        });
        imported
    }

    async fn zygote(&self) -> Option<&Arc<Zygote>> {
        let started = async { self.launcher.warm().await.ok() };
        self.zygote.get_or_init(|| started).await.as_ref()
    }

    /// Runs a script with `question` as its one argument, in JSON, and with this process's environment changed by `env`; returns
    /// what it wrote, and how it ended: none if that took longer than `limit`. Waits until torch is imported. Must not
    /// be called on a thread of the runtime.
    ///
    /// # Errors
    /// There is no zygote, or it cannot fork: an interpreter must be started for the question.
    pub fn ask<'a>(
        &self,
        script: &str,
        question: &Value,
        env: impl IntoIterator<Item = (&'a String, &'a String)>,
        limit: Duration,
    ) -> io::Result<(String, Option<ExitStatus>)> {
        // What is no text cannot be sent; the same holds for ranks.
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
            argument: question.to_string(),
        };
        self.runtime.block_on(async {
            match self.zygote().await {
                Some(zygote) => Zygote::ask(zygote, script, environment, limit).await,
                None => Err(io::Error::other("torch could not be imported")),
            }
        })
    }
}
