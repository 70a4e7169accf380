//! Findings on a fleet: in what its hosts differ, what each of them lacks, and which of them cannot reach each other.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Severity};
use allranks_runner::world::node::{HostSeen, Inspection, PairSeen};

/// The smallest difference of clocks that is reported, in microseconds.
const CLOCK_US: i64 = 2_000_000;
/// The free bytes of `/dev/shm` below which libraries that share memory there fail. Containers have 64 MiB by default.
const SHM: u64 = 256 << 20;
/// The free bytes of the temporary folder below which logs and file stores do not fit.
const DISK: u64 = 256 << 20;
/// The shortest time of an exchange that is called slow, in microseconds.
const SLOW_US: u64 = 200_000;
/// A slow exchange takes at least this many times as long as the longest of the fastest quarter.
const SLOWER: u64 = 10;

/// Returns the findings on a fleet, faults first.
#[must_use]
pub fn fleet_findings(seen: &Inspection) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(why) = &seen.missing {
        findings.push(Finding::new(
            Severity::Fault,
            "fleet-missing",
            why.clone(),
            "all other findings are about the hosts that came",
            "start the agent there, or look at what its engine says",
        ));
    }
    for host in &seen.hosts {
        if let Some(why) = &host.lost {
            findings.push(Finding::new(
                Severity::Fault,
                "fleet-lost",
                why.clone(),
                "its pairs were not all tried",
                "look at the agent's own output on that host",
            ));
        }
    }
    findings.extend(unreachable_hosts(seen));
    findings.extend(differences(&seen.hosts));
    for host in &seen.hosts {
        findings.extend(shortages(host));
    }
    findings.extend(slow_links(seen));
    findings.sort_by_key(|finding| finding.severity);
    findings
}

/// Reports facts that differ between hosts and should not.
fn differences(hosts: &[HostSeen]) -> Vec<Finding> {
    type Fact = fn(&HostSeen) -> String;
    let compared: [(&str, Severity, Fact, &str); 5] = [
        (
            "torch",
            Severity::Fault,
            |host| or_none(host.facts.torch.as_ref()),
            "ranks of different versions of torch do not always understand each other",
        ),
        (
            "nccl",
            Severity::Fault,
            |host| or_none(host.facts.nccl.as_ref()),
            "ranks of different versions of NCCL refuse each other, or hang",
        ),
        (
            "driver",
            Severity::Warning,
            |host| or_none(host.facts.driver.as_ref()),
            "a library may use on one host what the driver of another lacks",
        ),
        (
            "system",
            Severity::Warning,
            |host| host.facts.system.clone(),
            "numbers and builds may differ",
        ),
        (
            "cores",
            Severity::Note,
            |host| host.facts.cores.to_string(),
            "the slowest host sets the pace",
        ),
    ];
    let ids = [
        "fleet-torch-differs",
        "fleet-nccl-differs",
        "fleet-driver-differs",
        "fleet-system-differs",
        "fleet-cores-differ",
    ];
    let mut findings = Vec::new();
    for ((what, severity, fact, why), id) in compared.into_iter().zip(ids) {
        let mut values: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for host in hosts {
            values.entry(fact(host)).or_default().push(&host.name);
        }
        if values.len() < 2 {
            continue;
        }
        // The most frequent value comes first.
        let mut values: Vec<_> = values.into_iter().collect();
        values.sort_by_key(|(_, hosts)| std::cmp::Reverse(hosts.len()));
        let values: Vec<String> = values
            .into_iter()
            .map(|(value, hosts)| format!("{value} on {}", hosts.join(", ")))
            .collect();
        findings.push(Finding::new(
            severity,
            id,
            format!("hosts differ in their {what}: {}", values.join("; ")),
            why,
            format!("install the same {what} on all of them"),
        ));
    }
    findings
}

fn or_none(value: Option<&String>) -> String {
    value.map_or_else(|| "none".to_owned(), Clone::clone)
}

/// Reports what one host lacks.
fn shortages(host: &HostSeen) -> Vec<Finding> {
    let mut findings = Vec::new();
    let name = &host.name;
    if host.clock_ahead_us.abs() > CLOCK_US {
        let seconds = host.clock_ahead_us.abs() as f64 / 1e6;
        let way = match host.clock_ahead_us > 0 {
            true => "ahead of",
            false => "behind",
        };
        findings.push(Finding::new(
            Severity::Warning,
            "fleet-clock",
            format!("the clock of {name} is {seconds:.0} s {way} this machine's"),
            "logs of several hosts cannot be put in order, and certificates may not be valid yet",
            "start a time service there (chrony, systemd-timesyncd)",
        ));
    }
    let mib = |bytes: u64| bytes >> 20;
    if let Some(free) = host.facts.shm_free.filter(|free| *free < SHM) {
        findings.push(Finding::new(
            Severity::Warning,
            "fleet-shm",
            format!("/dev/shm of {name} has {} MiB free", mib(free)),
            "backends and data loaders share memory there, and end with SIGBUS when it is full",
            "remove what is left there; in a container: --shm-size, or an emptyDir of medium Memory",
        ));
    }
    if let Some(free) = host.facts.disk_free.filter(|free| *free < DISK) {
        findings.push(Finding::new(
            Severity::Fault,
            "fleet-disk",
            format!(
                "the folder for temporary files of {name} has {} MiB free",
                mib(free)
            ),
            "agents and ranks write logs there",
            "make room, or set TMPDIR to another file system",
        ));
    }
    if host.facts.name_is_loopback {
        findings.push(Finding::new(
            Severity::Warning,
            "fleet-name-loopback",
            format!("on {name} the host's own name stands for a loopback address"),
            "Gloo announces that address to other hosts unless GLOO_SOCKET_IFNAME is set; runs of allranks set it, other jobs may not",
            "give the name its network address in /etc/hosts, or set GLOO_SOCKET_IFNAME",
        ));
    }
    findings
}

/// A failed direction: the index of the connecting host, that of the other host, and the errors.
type FailedDirection<'a> = (usize, usize, &'a [String]);

/// Reports hosts that cannot reach each other: one host, if it explains all failures in which it takes part, otherwise pairs.
fn unreachable_hosts(seen: &Inspection) -> Vec<Finding> {
    let tried: Vec<&PairSeen> = seen
        .pairs
        .iter()
        .filter(|pair| pair.reached.is_some())
        .collect();
    let mut failed: Vec<FailedDirection<'_>> = Vec::new();
    for pair in &tried {
        if let Some(reach) = &pair.reached
            && reach.address.is_none()
        {
            failed.push((pair.from, pair.to, &reach.failures));
        }
    }
    let mut findings = Vec::new();
    let untried = seen.pairs.len() - tried.len();
    if untried > 0 {
        findings.push(Finding::new(
            Severity::Warning,
            "fleet-untried",
            format!(
                "{untried} of {} directions were not tried",
                seen.pairs.len()
            ),
            "the time ran out, or a host was lost",
            "allow more time with --patience",
        ));
    }
    if let Some((.., first)) = failed.first()
        && failed.len() == tried.len()
        && seen.hosts.len() > 2
    {
        findings.push(Finding::new(
            Severity::Fault,
            "fleet-unreachable",
            "no host reaches another one",
            format!("the first that was tried: {}", causes(first)),
            "a firewall on all hosts, or in the network between them, blocks all connections",
        ));
        return findings;
    }
    let mut left: Directions = failed.iter().map(|(from, to, _)| (*from, *to)).collect();
    for (host, covers) in explaining_hosts(seen.hosts.len(), &tried, &left) {
        let name = &seen.hosts[host].name;
        findings.push(unreachable_host(host, name, &covers, &failed));
        left.retain(|direction| !covers.contains(direction));
    }
    findings.extend(unreachable_pairs(seen, &failed, &left));
    findings
}

/// Returns why a direction failed, in one line.
fn causes(failures: &[String]) -> String {
    match failures.is_empty() {
        true => "it has no address".to_owned(),
        false => failures.join("; "),
    }
}

/// Returns the finding for one host that explains the failed directions `covers`.
fn unreachable_host(
    host: usize,
    name: &str,
    covers: &Directions,
    failed: &[FailedDirection<'_>],
) -> Finding {
    let is_into = covers.iter().any(|(_, to)| *to == host);
    let is_out = covers.iter().any(|(from, _)| *from == host);
    let what = match (is_into, is_out) {
        (true, true) => format!("no other host reaches {name}, and it reaches none"),
        (true, false) => format!("no other host reaches {name}"),
        (false, _) => format!("{name} reaches no other host"),
    };
    let first = failed
        .iter()
        .find(|(from, to, _)| covers.contains(&(*from, *to)));
    Finding::new(
        Severity::Fault,
        "fleet-unreachable",
        what,
        format!(
            "other pairs work; the first that was tried: {}",
            first.map_or_else(String::new, |(.., failures)| causes(failures))
        ),
        format!("look at the link and the firewall of {name}"),
    )
}

/// Returns one finding for each pair of hosts with a failed direction that is left: one for both directions, if both failed.
fn unreachable_pairs(
    seen: &Inspection,
    failed: &[FailedDirection<'_>],
    left: &Directions,
) -> Vec<Finding> {
    let name = |host: usize| seen.hosts[host].name.as_str();
    let mut findings = Vec::new();
    for (from, to, failures) in failed {
        let is_mutual = left.contains(&(*to, *from));
        if !left.contains(&(*from, *to)) || is_mutual && from > to {
            continue;
        }
        let (mut one, mut two) = (name(*from), name(*to));
        if is_mutual && one > two {
            // The order in which the hosts joined does not matter.
            (one, two) = (two, one);
        }
        let what = match is_mutual {
            true => format!("{one} and {two} do not reach each other"),
            false => format!("{one} does not reach {two}"),
        };
        findings.push(Finding::new(
            Severity::Fault,
            "fleet-unreachable",
            what,
            causes(failures),
            format!("look at routes and firewalls between {one} and {two}"),
        ));
    }
    findings
}

/// Directions: from one host to another.
type Directions = BTreeSet<(usize, usize)>;

/// Returns the hosts that explain several failures, each with those failures: all tried directions to the host fail, or all from
/// it, or both. If two hosts explain the same failure, the one that explains more is returned; neither, if they explain equally
/// many.
fn explaining_hosts(
    hosts: usize,
    tried: &[&PairSeen],
    failed: &Directions,
) -> Vec<(usize, Directions)> {
    // With two hosts, both explain every failure.
    if hosts < 3 {
        return Vec::new();
    }
    let all_of = |is_one: &dyn Fn(&PairSeen) -> bool| -> Directions {
        let of_host = tried.iter().filter(|pair| is_one(pair));
        let directions: Directions = of_host.map(|pair| (pair.from, pair.to)).collect();
        match directions.len() > 1 && directions.is_subset(failed) {
            true => directions,
            false => Directions::new(),
        }
    };
    let candidates: Vec<(usize, Directions)> = (0..hosts)
        .map(|host| {
            let mut covers = all_of(&|pair| pair.to == host);
            covers.extend(all_of(&|pair| pair.from == host));
            (host, covers)
        })
        .filter(|(_, covers)| !covers.is_empty())
        .collect();
    let is_best = |(host, covers): &&(usize, Directions)| {
        candidates.iter().all(|(other, others)| {
            other == host || others.is_disjoint(covers) || others.len() < covers.len()
        })
    };
    candidates.iter().filter(is_best).cloned().collect()
}

/// Reports pairs that are much slower than the others.
fn slow_links(seen: &Inspection) -> Vec<Finding> {
    let took = |pair: &PairSeen| {
        let reach = pair.reached.as_ref()?;
        reach.address.is_some().then_some(reach.took_us)
    };
    let mut all: Vec<u64> = seen.pairs.iter().filter_map(took).collect();
    all.sort_unstable();
    let Some(quarter) = all.get(all.len() / 4).copied() else {
        return Vec::new();
    };
    // With two hosts there is nothing to compare with, so only the absolute limit counts.
    let usual: u64 = if seen.hosts.len() > 2 { quarter } else { 0 };
    let is_slow = |took: u64| took > SLOW_US && took > usual.saturating_mul(SLOWER);
    let name = |host: usize| &seen.hosts[host].name;
    seen.pairs
        .iter()
        .filter_map(|pair| Some((pair, took(pair).filter(|took| is_slow(*took))?)))
        .map(|(pair, took)| {
            Finding::new(
                Severity::Note,
                "slow-link",
                format!(
                    "from {} to {}, 16 KiB took {} ms",
                    name(pair.from),
                    name(pair.to),
                    took / 1000
                ),
                "collectives between both hosts are limited by this link; otherwise it works",
                "look at the link's speed if it should be faster",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use allranks_protocol::NodeFacts;
    use allranks_runner::world::node::Reach;

    use super::*;

    fn hosts(count: usize) -> Inspection {
        let hosts = (0..count).map(|host| HostSeen {
            name: format!("h{host}"),
            facts: NodeFacts {
                torch: Some("2.11.0".to_owned()),
                shm_free: Some(8 << 30),
                disk_free: Some(8 << 30),
                ..NodeFacts::default()
            },
            ..HostSeen::default()
        });
        let pairs = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
        let pairs = pairs
            .filter(|(from, to)| from != to)
            .map(|(from, to)| PairSeen {
                from,
                to,
                reached: Some(Reach {
                    address: Some("10.0.0.1".to_owned()),
                    failures: Vec::new(),
                    took_us: 900,
                }),
            });
        Inspection {
            missing: None,
            hosts: hosts.collect(),
            pairs: pairs.collect(),
        }
    }

    /// What is said of a fleet in which these directions fail.
    fn said(count: usize, fails: impl Fn(usize, usize) -> bool) -> Vec<String> {
        let mut seen = hosts(count);
        for pair in &mut seen.pairs {
            if fails(pair.from, pair.to) {
                let reach = pair.reached.as_mut().unwrap();
                reach.address = None;
                reach.failures = vec!["10.0.0.1: no answer for 5 s".to_owned()];
            }
        }
        let findings = fleet_findings(&seen);
        findings.into_iter().map(|one| one.what).collect()
    }

    #[test]
    fn a_failing_set_is_narrowed_to_one_host_or_one_pair() {
        assert_eq!(said(4, |_, _| false), [""; 0]);
        assert_eq!(
            said(4, |from, to| from == 2 || to == 2),
            ["no other host reaches h2, and it reaches none"]
        );
        assert_eq!(said(4, |_, to| to == 2), ["no other host reaches h2"]);
        assert_eq!(said(4, |from, _| from == 2), ["h2 reaches no other host"]);
        assert_eq!(
            said(4, |from, to| from + to == 3 && from.abs_diff(to) == 1),
            ["h1 and h2 do not reach each other"]
        );
        assert_eq!(
            said(4, |from, to| (from, to) == (1, 2)),
            ["h1 does not reach h2"]
        );
        // One host as a whole, and one pair that it does not explain.
        assert_eq!(
            said(5, |from, to| to == 2 || (from, to) == (0, 1)),
            ["no other host reaches h2", "h0 does not reach h1"]
        );
    }

    #[test]
    fn no_host_is_blamed_for_what_all_have_or_two_share() {
        assert_eq!(said(4, |_, _| true), ["no host reaches another one"]);
        assert_eq!(said(2, |_, _| true), ["h0 and h1 do not reach each other"]);
        assert_eq!(said(2, |from, _| from == 0), ["h0 does not reach h1"]);
        // h1 may be filtered on its way out, or h0 and h2 on their way in.
        assert_eq!(
            said(3, |from, to| from == 1 || (from, to) == (0, 2)),
            [
                "h0 does not reach h2",
                "h1 does not reach h0",
                "h1 does not reach h2"
            ]
        );
        let mut seen = hosts(3);
        seen.pairs[0].reached = None;
        let found = fleet_findings(&seen);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].id, found[0].severity),
            ("fleet-untried", Severity::Warning)
        );
    }

    #[test]
    fn hosts_that_differ_or_lack_something_are_named() {
        let mut seen = hosts(3);
        seen.hosts[1].facts.torch = Some("2.9.0".to_owned());
        seen.hosts[2].clock_ahead_us = -7_000_000;
        seen.hosts[0].facts.shm_free = Some(64 << 20);
        seen.hosts[1].facts.disk_free = Some(0);
        seen.hosts[2].facts.name_is_loopback = true;
        let found = fleet_findings(&seen);
        let has = |id: &str, text: &str| {
            let one = found.iter().find(|one| one.id == id);
            let one = one.unwrap_or_else(|| panic!("no {id} in {found:?}"));
            assert!(one.what.contains(text), "{one:?}");
        };
        has("fleet-torch-differs", "2.11.0 on h0, h2; 2.9.0 on h1");
        has("fleet-clock", "the clock of h2 is 7 s behind");
        has("fleet-shm", "/dev/shm of h0 has 64 MiB");
        has("fleet-disk", "of h1 has 0 MiB");
        has("fleet-name-loopback", "on h2");
        assert_eq!(found.len(), 5);
        assert!(found.is_sorted_by_key(|one| one.severity));
    }

    #[test]
    fn a_slow_link_is_remarked_and_nothing_is_accused() {
        let mut seen = hosts(3);
        seen.pairs[0].reached.as_mut().unwrap().took_us = 2_000_000;
        let found = fleet_findings(&seen);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].id, found[0].severity),
            ("slow-link", Severity::Note)
        );
        assert!(found[0].what.contains("from h0 to h1"), "{found:?}");
        // All are slow: that is how it is there.
        let mut seen = hosts(3);
        for pair in &mut seen.pairs {
            pair.reached.as_mut().unwrap().took_us = 2_000_000;
        }
        assert!(fleet_findings(&seen).is_empty());
    }
}
