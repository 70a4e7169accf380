//! The processes that a program leaves behind.

use std::time::Duration;

use tokio::time::Instant;

use crate::world::Commands;
use allranks_host::{TaggedProcess, describe};
use allranks_model::names::Rank;

/// How long processes that ranks started may outlive the ranks before they count as left behind.
const GRACE: Duration = Duration::from_secs(2);
/// Interval between two looks at processes that are still there.
const RETRY_PERIOD: Duration = Duration::from_millis(20);

/// Returns the processes that still run when [`GRACE`] is over: the rank that each belongs to, if known, and its
/// command.
pub async fn orphans(commands: &Commands) -> Vec<(Option<Rank>, String)> {
    let limit = Instant::now() + GRACE;
    loop {
        let living = tokio::task::block_in_place(|| commands.living());
        if living.is_empty() || Instant::now() >= limit {
            return living.iter().map(remaining).collect();
        }
        tokio::time::sleep(RETRY_PERIOD).await;
    }
}

fn remaining(member: &TaggedProcess) -> (Option<Rank>, String) {
    let rank = member.environment.get("RANK");
    let rank = rank.and_then(|rank| rank.parse().ok()).map(Rank);
    (rank, describe(member.pid))
}
