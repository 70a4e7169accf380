//! `allranks doctor --fleet`: compares the hosts of a fleet, and lets every two of them exchange bytes.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;

use super::args::DoctorArguments;
use super::fleet::FleetRequest;
use super::signals::listen_for_signals;
use super::{Exit, Failure};
use crate::doctor::{Finding, Severity, fleet_findings, text};
use allranks_runner::run::{Interrupt, runtime};
use allranks_runner::world::Driver;
use allranks_runner::world::node::{Inspection, Nodes};

/// Version of the JSON.
const FORMAT: u32 = 1;
/// The import patience of the agents, which import nothing.
const IMPORTS: Duration = Duration::from_secs(1);

/// Waits for the nodes, inspects them, and prints the findings. The exit code is that of `doctor`, or 4 if not all hosts came.
pub fn doctor_fleet(
    arguments: &DoctorArguments,
    out: &mut impl Write,
    err: &mut (impl Write + Send),
) -> Result<Exit, Failure> {
    let request = FleetRequest::of_hosts(&arguments.agents);
    let folder = tempfile::Builder::new()
        .prefix("allranks-doctor-")
        .tempdir()?;
    let settings = request.settings(&arguments.listening, folder.path())?;
    let runtime = runtime()?;
    let interrupt = Interrupt::default();
    runtime.spawn(listen_for_signals(interrupt.clone()));
    let (sender, mut notices) = mpsc::unbounded_channel::<String>();
    // No rank is ever started, so there is no driver.
    let driver = Driver::Command(vec!["none".to_owned()]);
    let limit = Duration::from_secs(arguments.patience);
    let seen = runtime.block_on(async {
        let nodes = Nodes::listen(settings, &driver, IMPORTS, Some(sender))?;
        let mut shown = BTreeSet::new();
        let inspecting = async {
            let seen = nodes.inspect(limit).await;
            nodes.finish().await;
            seen
        };
        tokio::pin!(inspecting);
        let seen = loop {
            tokio::select! {
                biased;
                Some(notice) = notices.recv() => {
                    if shown.insert(notice.clone()) {
                        // The stream may be closed; the inspection continues.
                        let _ = writeln!(err, "{notice}");
                    }
                }
                seen = &mut inspecting => break Some(seen),
                () = interrupt.wait() => break None,
            }
        };
        Ok::<_, std::io::Error>(seen)
    })?;
    let seen = seen.ok_or_else(|| Failure::Harness("interrupted".to_owned()))?;
    let findings = fleet_findings(&seen);
    match arguments.json {
        true => write_json(&seen, &findings, out)?,
        false => write_text(&seen, &findings, out)?,
    }
    let is_faulty = findings.iter().any(|one| one.severity == Severity::Fault);
    Ok(match (&seen.missing, is_faulty) {
        (Some(_), _) => Exit::Incomplete,
        (None, true) => Exit::Unexpected,
        (None, false) => Exit::AsExpected,
    })
}

fn write_json(
    seen: &Inspection,
    findings: &[Finding],
    out: &mut impl Write,
) -> Result<(), Failure> {
    let hosts: Vec<_> = seen
        .hosts
        .iter()
        .map(|host| json!({"name": host.name, "facts": host.facts, "clock_ahead_us": host.clock_ahead_us}))
        .collect();
    let name = |host: usize| &seen.hosts[host].name;
    let pairs: Vec<_> = seen
        .pairs
        .iter()
        .map(|pair| {
            let reach = pair.reached.as_ref();
            json!({
                "from": name(pair.from),
                "to": name(pair.to),
                "address": reach.and_then(|reach| reach.address.clone()),
                "took_us": reach.map(|reach| reach.took_us),
                "failures": reach.map(|reach| reach.failures.clone()),
            })
        })
        .collect();
    let whole = json!({
        "format": FORMAT,
        "allranks": env!("CARGO_PKG_VERSION"),
        "findings": findings,
        "hosts": hosts,
        "pairs": pairs,
    });
    serde_json::to_writer_pretty(&mut *out, &whole).map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

fn write_text(
    seen: &Inspection,
    findings: &[Finding],
    out: &mut impl Write,
) -> Result<(), Failure> {
    let none = "none".to_owned();
    for host in &seen.hosts {
        let facts = &host.facts;
        writeln!(
            out,
            "{}  {}, {} cores, torch {}, NCCL {}, driver {}, at {}",
            host.name,
            facts.system,
            facts.cores,
            facts.torch.as_ref().unwrap_or(&none),
            facts.nccl.as_ref().unwrap_or(&none),
            facts.driver.as_ref().unwrap_or(&none),
            facts.address,
        )?;
    }
    let reached = seen.pairs.iter().filter(|pair| {
        let reach = pair.reached.as_ref();
        reach.is_some_and(|reach| reach.address.is_some())
    });
    writeln!(
        out,
        "{} of {} directions work",
        reached.count(),
        seen.pairs.len()
    )?;
    let gap = (!findings.is_empty()).then(String::new);
    for line in gap.into_iter().chain(text::findings(findings)) {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "\n{}", text::summary(findings))?;
    Ok(())
}
