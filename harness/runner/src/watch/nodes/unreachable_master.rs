//! Finds a rank 0 that waits at an endpoint which another host of the job cannot reach.

use std::collections::BTreeSet;

use super::member::Member;
use super::node_evidence::NodeEvidence;
use super::world_report::WorldReport;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// Returns the verdict on a world whose rank 0 waits at an endpoint that is not reached from another host; none if the evidence
/// says more, or each host reaches it. `still` is for how many seconds nothing has moved in it.
pub fn unreachable_master<'a>(
    report: &WorldReport,
    nodes: &[NodeEvidence],
    mut watches: impl Iterator<Item = &'a Member>,
    still: f64,
) -> Option<Diagnosis> {
    let is_open = |one: &Diagnosis| matches!(one.kind, HangKind::Slow | HangKind::Unknown);
    if !report.verdict.as_ref().is_none_or(is_open) {
        return None;
    }
    let here: Vec<&NodeEvidence> = (nodes.iter())
        .filter(|node| node.world() == report.world)
        .collect();
    let first = here.iter().find(|node| node.waits_as_first())?;
    let port = report.world.split(' ').next()?.rsplit_once(':')?.1;
    let (member, (place, why)) = watches.find_map(|member| {
        let is_it = |(place, _): &&(String, String)| {
            place.rsplit_once(':').is_some_and(|(_, own)| own == port)
        };
        Some((member, member.unreached.iter().find(is_it)?))
    })?;
    let cut = here.iter().find(|node| node.writer() == member.name())?;
    if cut.writer() == first.writer() {
        return None;
    }
    let victims: BTreeSet<Rank> = here.iter().flat_map(|node| node.ranks()).collect();
    Some(Diagnosis {
        kind: HangKind::MasterUnreachable,
        after_s: still,
        confidence: Confidence::Likely,
        culprits: Vec::new(),
        victims: victims.into_iter().collect(),
        summary: format!(
            "{} on host {} cannot reach {place}, where rank 0 waits on host {}: {why}",
            named(&cut.ranks()),
            cut.host(),
            first.host()
        ),
        evidence: vec![format!(
            "a connection from host {} to {place} was tried: {why}",
            cut.host()
        )],
        refuted_by: "a connection from that host to that port is accepted".to_owned(),
        advice: vec![
            format!(
                "look for a firewall between the two hosts that does not let port {port} through: nc -vz on host {}",
                cut.host()
            ),
            "use an address of the interface that the other hosts reach".to_owned(),
        ],
        places: Vec::new(),
    })
}
