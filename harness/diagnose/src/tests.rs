//! Tests of the rules on small jobs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::*;

const WORLD: &str = "world";

fn world(size: u32) -> Arc<[Rank]> {
    (0..size).map(Rank).collect()
}

fn event(what: EventKind) -> TraceEvent {
    TraceEvent {
        what,
        at: String::new(),
    }
}

/// Builds a collective of the world; collectives are told apart by their names.
fn collective(name: &str, size: u32) -> TraceEvent {
    event(EventKind::Collective(Collective {
        group: WORLD.into(),
        members: world(size),
        name: name.into(),
        nature: [].into(),
        splits: None,
    }))
}

fn rank(number: u32) -> RankState {
    RankState {
        process: Process::Running,
        ..RankState::unknown(Rank(number))
    }
}

fn job(ranks: Vec<RankState>) -> HangEvidence {
    HangEvidence {
        ranks,
        is_whole: true,
        still: Duration::from_secs(1),
        ..HangEvidence::default()
    }
}

fn inside(state: RankState, event: TraceEvent) -> RankState {
    RankState {
        doing: Some((event, Duration::from_secs(1))),
        ..state
    }
}

fn rendezvous(rank: u32, size: u32, port: u16) -> TraceEvent {
    event(EventKind::Init(Rendezvous {
        method: "env".into(),
        place: format!("127.0.0.1:{port}"),
        assigned: None,
        rank,
        world_size: size,
    }))
}

fn verdict(evidence: &HangEvidence) -> (HangKind, Vec<u32>) {
    let diagnosis = diagnose(evidence);
    let culprits = diagnosis.culprits.iter().map(|rank| rank.0);
    (diagnosis.kind, culprits.collect())
}

#[test]
fn a_rank_that_skips_is_told_from_those_that_wait() {
    let mut ranks: Vec<RankState> = (0..3)
        .map(|number| inside(rank(number), collective("all_reduce", 3)))
        .collect();
    ranks.push(RankState {
        ahead: Remaining::Known(Vec::new()),
        doing: Some((
            event(EventKind::Own("sleep".into())),
            Duration::from_secs(1),
        )),
        ..rank(3)
    });
    for state in &mut ranks {
        if let Some((
            TraceEvent {
                what: EventKind::Collective(one),
                ..
            },
            _,
        )) = &mut state.doing
        {
            one.members = world(4);
        }
        state.ahead = Remaining::Known(Vec::new());
    }
    let evidence = job(ranks.clone());
    assert_eq!(verdict(&evidence), (HangKind::CollectiveSkipped, vec![3]));
    assert_eq!(diagnose(&evidence).victims, world(3).to_vec());
    // A rank that still has the call to come is late and nothing else.
    ranks[3].ahead = Remaining::Known(vec![collective("all_reduce", 4)]);
    assert_eq!(verdict(&job(ranks.clone())), (HangKind::Slow, vec![3]));
    // A rank that is gone or stopped is called so, whatever calls it had to come.
    ranks[3].process = Process::Stopped;
    assert_eq!(
        verdict(&job(ranks.clone())),
        (HangKind::PeerStopped, vec![3])
    );
    ranks[3].process = Process::Ended("signal 9 (SIGKILL)".into());
    assert_eq!(verdict(&job(ranks.clone())), (HangKind::PeerDead, vec![3]));
    // A rank of which nothing is known is not blamed.
    ranks[3] = RankState::unknown(Rank(3));
    assert_eq!(verdict(&job(ranks)), (HangKind::Unknown, vec![]));
}

#[test]
fn a_port_of_its_own_is_found_by_votes_or_by_what_the_launcher_told() {
    let mut ranks: Vec<RankState> = (0..4)
        .map(|number| inside(rank(number), rendezvous(number, 4, 29500)))
        .collect();
    assert_eq!(verdict(&job(ranks.clone())), (HangKind::Unknown, vec![]));
    ranks[0] = inside(rank(0), rendezvous(0, 4, 29501));
    assert_eq!(verdict(&job(ranks)), (HangKind::PortMismatch, vec![0]));
    let with_told = |number: u32, port: u16| {
        let mut event = rendezvous(number, 2, port);
        if let EventKind::Init(one) = &mut event.what {
            one.assigned = Some("127.0.0.1:29500".into());
        }
        inside(rank(number), event)
    };
    let two = job(vec![with_told(0, 29501), with_told(1, 29500)]);
    assert_eq!(verdict(&two), (HangKind::PortMismatch, vec![0]));
}

#[test]
fn worlds_of_the_wrong_size() {
    let alone = RankState {
        done: vec![rendezvous(0, 1, 29500)],
        ..rank(0)
    };
    let mut ranks = vec![alone];
    ranks.extend((1..4).map(|number| inside(rank(number), rendezvous(number, 4, 29500))));
    assert_eq!(verdict(&job(ranks)), (HangKind::SplitWorld, vec![0]));
    let five = |number| inside(rank(number), rendezvous(number, 5, 29500));
    let ranks = (0..4).map(five).collect();
    assert_eq!(verdict(&job(ranks)), (HangKind::MissingRank, vec![4]));
    let sizes = [4, 4, 4, 5];
    let ranks = (0..4)
        .map(|number| {
            inside(
                rank(number),
                rendezvous(number, sizes[number as usize], 29500),
            )
        })
        .collect();
    assert_eq!(
        verdict(&job(ranks)),
        (HangKind::WorldSizeDisagreement, vec![3])
    );
}

#[test]
fn a_rank_that_claims_to_be_another_is_named() {
    let claims = [0, 1, 1];
    let ranks = (0..3)
        .map(|number| inside(rank(number), rendezvous(claims[number as usize], 3, 29500)))
        .collect();
    assert_eq!(verdict(&job(ranks)), (HangKind::DuplicateRank, vec![2]));
}

#[test]
fn a_rank_that_two_processes_claim_is_named_where_no_launcher_gave_ranks() {
    let claims = [0, 1, 2, 2];
    let ranks = (0..4).map(|number| RankState {
        has_assigned_rank: false,
        ..inside(rank(number), rendezvous(claims[number as usize], 5, 29500))
    });
    let evidence = job(ranks.collect());
    assert_eq!(verdict(&evidence), (HangKind::DuplicateRank, vec![2]));
}

#[test]
fn groups_in_another_order() {
    let group = |members: &[u32]| {
        event(EventKind::NewGroup(
            members.iter().copied().map(Rank).collect(),
        ))
    };
    let (a, b) = (group(&[0, 1]), group(&[2, 3]));
    let made = |number: u32, groups: &[&TraceEvent]| RankState {
        done: groups.iter().map(|event| (*event).clone()).collect(),
        ahead: Remaining::Known(Vec::new()),
        ..rank(number)
    };
    let with = |odd: RankState| {
        let mut ranks: Vec<RankState> = (0..4).map(|number| made(number, &[&a, &b])).collect();
        ranks[2] = odd;
        contradiction(&job(ranks)).map(|one| {
            (
                one.kind,
                one.culprits.iter().map(|r| r.0).collect::<Vec<_>>(),
            )
        })
    };
    assert_eq!(with(made(2, &[&a, &b])), None);
    assert_eq!(
        with(made(2, &[&b, &a])),
        Some((HangKind::GroupOrder, vec![2]))
    );
    assert_eq!(
        with(made(2, &[&b])),
        Some((HangKind::GroupSkipped, vec![2]))
    );
    assert_eq!(
        with(made(2, &[&group(&[0, 2]), &b])),
        Some((HangKind::GroupMembersDiffer, vec![2]))
    );
}

#[test]
fn a_group_that_may_yet_be_made_is_not_skipped() {
    let group = |members: &[u32]| {
        event(EventKind::NewGroup(
            members.iter().copied().map(Rank).collect(),
        ))
    };
    let (a, b) = (group(&[0, 1]), group(&[2, 3]));
    let with = |odd: RankState| {
        let made = |number: u32| RankState {
            done: vec![a.clone(), b.clone()],
            ..rank(number)
        };
        let mut ranks: Vec<RankState> = (0..4).map(made).collect();
        ranks[2] = RankState {
            process: Process::Running,
            ..odd
        };
        contradiction(&job(ranks)).map(|one| (one.kind, one.confidence))
    };
    let in_barrier = event(EventKind::Collective(Collective {
        group: "world".into(),
        members: world(4),
        name: "barrier".into(),
        nature: BTreeMap::new(),
        splits: None,
    }));
    let after = |done: &[&TraceEvent]| RankState {
        done: done.iter().map(|event| (*event).clone()).collect(),
        ..rank(2)
    };
    let within = |done: &[&TraceEvent], event: &TraceEvent| RankState {
        doing: Some((event.clone(), Duration::from_secs(1))),
        ..after(done)
    };
    // The rank has gone on to a barrier, and waits for the others.
    assert_eq!(
        with(within(&[&b], &in_barrier)),
        Some((HangKind::GroupSkipped, Confidence::Proved))
    );
    // The rank makes the second group first, whatever it makes later.
    assert_eq!(
        with(within(&[], &b)),
        Some((HangKind::GroupOrder, Confidence::Proved))
    );
    assert_eq!(
        with(after(&[&b])),
        Some((HangKind::GroupSkipped, Confidence::Likely))
    );
}

#[test]
fn a_cycle_is_found_and_the_rank_that_made_it() {
    let on = |group: &str| {
        event(EventKind::Collective(Collective {
            group: group.into(),
            members: world(3),
            name: "all_reduce".into(),
            nature: [].into(),
            splits: None,
        }))
    };
    let first = |number: u32, one: &str, two: &str| RankState {
        ahead: Remaining::Known(vec![on(two)]),
        ..inside(rank(number), on(one))
    };
    let ranks = vec![first(0, "a", "b"), first(1, "b", "a"), first(2, "a", "b")];
    assert_eq!(verdict(&job(ranks)), (HangKind::CyclicWait, vec![1]));
}

#[test]
fn a_message_without_its_other_side() {
    let message = |sends, peer| {
        event(EventKind::Message(Message {
            group: WORLD.into(),
            sends,
            peer: Some(Rank(peer)),
            tag: 0,
        }))
    };
    let mut ranks = vec![
        RankState {
            ahead: Remaining::Known(Vec::new()),
            ..inside(rank(0), message(false, 1))
        },
        RankState {
            ahead: Remaining::Known(Vec::new()),
            ..inside(rank(1), event(EventKind::Own("sleep".into())))
        },
    ];
    assert_eq!(
        verdict(&job(ranks.clone())),
        (HangKind::MessageUnmatched, vec![1])
    );
    ranks[1].ahead = Remaining::Known(vec![message(true, 0)]);
    assert_eq!(verdict(&job(ranks.clone())), (HangKind::Slow, vec![1]));
    // A message that arrived although its sender never issued it was meant for another call.
    ranks[0].done = ranks[0]
        .doing
        .take()
        .map(|(event, _)| event)
        .into_iter()
        .collect();
    assert_eq!(verdict(&job(ranks.clone())), (HangKind::Unknown, vec![]));
    ranks[1].ahead = Remaining::Known(Vec::new());
    assert_eq!(verdict(&job(ranks)), (HangKind::MessageUnmatched, vec![1]));
}

#[test]
fn the_reason_is_what_a_rank_raised_and_not_what_the_others_did_of_it() {
    let mut ranks: Vec<RankState> = (0..3)
        .map(|number| inside(rank(number), collective("barrier", 3)))
        .collect();
    ranks[1] = RankState {
        errors: vec!["ValueError: bad batch".into()],
        ..rank(1)
    };
    assert_eq!(
        verdict(&job(ranks.clone())),
        (HangKind::PeerRaised, vec![1])
    );
    ranks[1].errors =
        vec!["ValueError: environment variable MASTER_PORT expected, but not set".into()];
    assert_eq!(
        verdict(&job(ranks)),
        (HangKind::EnvironmentMissing, vec![1])
    );
}

#[test]
fn a_rank_that_raises_inside_a_collective_is_told_from_those_still_inside() {
    let failed = |error: &str| RankState {
        done: vec![collective("barrier", 2)],
        errors: vec![error.to_owned()],
        ..rank(1)
    };
    let waits = || inside(rank(0), collective("barrier", 2));
    let cause = "DistBackendError: NCCL error in: NCCLUtils.cpp:94, invalid usage, NCCL version 2.28.9\nLast error:\nBootstrap : no socket interface found";
    let evidence = job(vec![waits(), failed(cause)]);
    assert_eq!(verdict(&evidence), (HangKind::PeerRaised, vec![1]));
    let places = diagnose(&evidence).places;
    assert!(
        places[1]
            .text
            .starts_with("after barrier on world; it raised DistBackendError")
    );
    // An error that is an effect shows that the rank waited in vain, as the other does.
    let effect = failed("RuntimeError: Connection closed by peer");
    assert_eq!(
        verdict(&job(vec![waits(), effect])),
        (HangKind::StuckInCall, vec![0])
    );
    // An error that came before does not count: the rank has finished everything.
    let through = RankState {
        ahead: Remaining::Known(Vec::new()),
        ..failed(cause)
    };
    assert_eq!(
        verdict(&job(vec![waits(), through])),
        (HangKind::StuckInCall, vec![0])
    );
}

#[test]
fn ten_thousand_ranks_are_no_matter() {
    let size = 10_000;
    let members = world(size);
    let ranks = (0..size)
        .map(|number| match number {
            4711 => RankState {
                process: Process::Stopped,
                ..rank(number)
            },
            _ => inside(
                rank(number),
                event(EventKind::Collective(Collective {
                    group: WORLD.into(),
                    members: members.clone(),
                    name: "all_reduce".into(),
                    nature: [].into(),
                    splits: None,
                })),
            ),
        })
        .collect();
    assert_eq!(verdict(&job(ranks)), (HangKind::PeerStopped, vec![4711]));
}

#[test]
fn of_an_unknown_rank_only_its_end_can_be_a_verdict() {
    let mut ranks: Vec<RankState> = (0..3).map(rank).collect();
    assert_eq!(verdict(&job(ranks.clone())), (HangKind::Unknown, vec![]));
    ranks[1].process = Process::Stopped;
    let diagnosis = diagnose(&job(ranks.clone()));
    assert_eq!(
        (diagnosis.kind, diagnosis.confidence),
        (HangKind::PeerStopped, Confidence::Likely)
    );
    // Once it is known that no rank waits for it, there is no verdict.
    for state in &mut ranks {
        state.doing = Some((
            event(EventKind::Own("sleep".into())),
            Duration::from_secs(1),
        ));
    }
    assert_eq!(verdict(&job(ranks)), (HangKind::Unknown, vec![]));
}

#[test]
fn a_plan_that_is_not_known_proves_what_was_entered_and_no_more() {
    let mut ranks: Vec<RankState> = (0..4)
        .map(|number| inside(rank(number), collective("all_reduce", 4)))
        .collect();
    ranks[3] = inside(rank(3), collective("broadcast", 4));
    let diagnosis = diagnose(&job(ranks.clone()));
    assert_eq!(diagnosis.confidence, Confidence::Proved);
    assert_eq!(
        verdict(&job(ranks.clone())),
        (HangKind::CollectiveMismatch, vec![3])
    );
    // Collectives before the first one that is known are counted.
    let mut evidence = job(ranks.clone());
    evidence.forgotten = [(WORLD.to_owned(), 41)].into();
    assert!(diagnose(&evidence).summary.contains("number 42"));
    ranks[3] = inside(rank(3), event(EventKind::Own("sleep".into())));
    assert_eq!(verdict(&job(ranks)), (HangKind::Slow, vec![3]));
}

#[test]
fn worlds_of_different_sizes_may_live_side_by_side() {
    let through = |number: u32, size: u32| RankState {
        done: vec![rendezvous(number, size, 29500)],
        ..rank(number)
    };
    let mut ranks = vec![through(0, 1), through(1, 3), through(2, 3)];
    assert_eq!(verdict(&job(ranks.clone())), (HangKind::Unknown, vec![]));
    for state in &mut ranks[1..] {
        *state = inside(state.clone(), collective("all_reduce", 3));
    }
    assert_eq!(
        verdict(&job(ranks.clone())),
        (HangKind::SplitWorld, vec![0])
    );
    // A rank that makes several worlds one after another may give each another size.
    ranks[0].done.insert(0, rendezvous(0, 3, 29500));
    assert_eq!(verdict(&job(ranks)).0, HangKind::Unknown);
}

#[test]
fn an_endpoint_without_a_listener_counts_only_once_its_host_has_come() {
    let mut ranks: Vec<RankState> = (0..3)
        .map(|number| inside(rank(number), rendezvous(number, 3, 1)))
        .collect();
    let endpoints_without_listener =
        vec![("127.0.0.1:1".to_owned(), "no process listens".to_owned())];
    let at = |ranks: &[RankState]| HangEvidence {
        endpoints_without_listener: endpoints_without_listener.clone(),
        ..job(ranks.to_vec())
    };
    assert_eq!(
        verdict(&at(&ranks)),
        (HangKind::MasterUnreachable, vec![0, 1, 2])
    );
    ranks[0] = RankState {
        ahead: Remaining::Known(Vec::new()),
        ..rank(0)
    };
    assert_eq!(verdict(&at(&ranks)), (HangKind::MissingRank, vec![0]));
}

#[test]
fn ranks_that_dial_a_machine_where_nothing_answers_are_not_to_blame() {
    let ranks: Vec<RankState> = (2..4)
        .map(|number| inside(rank(number), rendezvous(number, 4, 1)))
        .collect();
    let at = |place: &str, ranks: &[RankState]| HangEvidence {
        endpoints_without_listener: vec![(place.to_owned(), "no route to host".to_owned())],
        is_whole: false,
        ..job(ranks.to_vec())
    };
    let told = unreachable(&at("127.0.0.1:1", &ranks)).unwrap();
    assert_eq!(told.kind, HangKind::MasterUnreachable);
    assert_eq!(told.confidence, Confidence::Likely);
    assert!(told.culprits.is_empty());
    assert_eq!(told.victims, vec![Rank(2), Rank(3)]);
    assert!(unreachable(&at("127.0.0.1:2", &ranks)).is_none());
    // A rank that has not dialled yet may be the one that is waited for.
    let mut some = ranks;
    some.push(rank(1));
    assert!(unreachable(&at("127.0.0.1:1", &some)).is_none());
}

#[test]
fn a_rank_outside_the_world_is_named_also_where_every_rank_is_let_in() {
    let through = |number: u32, says: u32| RankState {
        done: vec![rendezvous(says, 2, 29500)],
        ..rank(number)
    };
    let waits = inside(through(0, 0), collective("barrier", 2));
    let ranks = vec![waits.clone(), through(1, 9)];
    assert_eq!(verdict(&job(ranks)), (HangKind::MissingRank, vec![1]));
    let ranks = vec![waits, through(1, 1)];
    assert_ne!(verdict(&job(ranks)).0, HangKind::MissingRank);
}

#[test]
fn ranks_that_wait_for_one_still_under_way_make_worlds_of_their_own() {
    let at = |number: u32, own: u32, size: u32, port: u16| {
        inside(rank(number), rendezvous(own, size, port))
    };
    let under_way = inside(rank(1), event(EventKind::Own("loads".into())));
    let two_worlds = |size| {
        job(vec![
            at(0, 0, size, 29500),
            under_way.clone(),
            at(2, 0, size, 29600),
        ])
    };
    // Rank 1 makes a world of two with either of them.
    let diagnosis = diagnose(&two_worlds(2));
    assert_eq!(diagnosis.culprits, [], "{diagnosis:?}");
    assert_ne!(diagnosis.kind, HangKind::PortMismatch);
    // A world of three lacks two at either place, and only one is under way.
    assert_eq!(verdict(&two_worlds(3)).0, HangKind::PortMismatch);
    // One that has raised in init, or is gone, does not come.
    let mut gone = two_worlds(2);
    gone.ranks[1] = RankState {
        process: Process::Ended("exit 1".into()),
        ..rank(1)
    };
    assert_ne!(diagnose(&gone).kind, HangKind::Unknown);
}

#[test]
fn of_two_places_none_is_wrong_before_a_third_rank_has_come() {
    let at = |number: u32, port: u16| inside(rank(number), rendezvous(number, 3, port));
    let found = diagnose(&job(vec![at(0, 29500), at(2, 29600)]));
    let told = (found.kind, found.confidence, found.culprits.len());
    assert_eq!(told, (HangKind::PortMismatch, Confidence::Likely, 0));
    let three = vec![at(0, 29500), at(1, 29500), at(2, 29600)];
    assert_eq!(verdict(&job(three)), (HangKind::PortMismatch, vec![2]));
}

#[test]
fn a_rank_that_waits_beside_a_world_that_has_met_waits_for_one_that_has_come_nowhere() {
    let met = |number: u32| RankState {
        done: vec![rendezvous(number, 2, 29500)],
        ..rank(number)
    };
    let waiting = inside(rank(3), rendezvous(1, 2, 29600));
    let loads = inside(rank(2), event(EventKind::Own("loads".into())));
    let found = diagnose(&job(vec![met(0), met(1), loads, waiting.clone()]));
    assert_ne!(found.kind, HangKind::PortMismatch, "{found:?}");
    assert_eq!(found.culprits, []);
    // All others have met.
    let met_too = RankState {
        done: vec![rendezvous(2, 3, 29500)],
        ..rank(2)
    };
    let ranks = vec![met(0), met(1), met_too, waiting];
    assert_ne!(diagnose(&job(ranks)).culprits, []);
}

#[test]
fn a_rank_that_has_no_place_in_the_world_is_told_from_one_that_claims_another() {
    let all_too_small: Vec<RankState> = (0..3)
        .map(|number| inside(rank(number), rendezvous(number, 2, 1)))
        .collect();
    let too_small = (HangKind::WorldSizeDisagreement, vec![0, 1, 2]);
    assert_eq!(verdict(&job(all_too_small)), too_small);
    let one_beyond: Vec<RankState> = (0..3)
        .map(|number| inside(rank(number), rendezvous([0, 1, 9][number as usize], 3, 1)))
        .collect();
    assert_eq!(verdict(&job(one_beyond)), (HangKind::MissingRank, vec![2]));
}

#[test]
fn a_rank_that_fails_in_init_by_itself_is_told_from_those_that_lose_it() {
    let failed = |number: u32, error: &str| RankState {
        done: vec![rendezvous(number, 2, 1)],
        errors: vec![error.to_owned()],
        ..rank(number)
    };
    let ranks = vec![
        failed(0, "RuntimeError: Connection closed by peer"),
        failed(1, "RuntimeError: Unable to find address for: eth9"),
    ];
    assert_eq!(verdict(&job(ranks)), (HangKind::PeerRaised, vec![1]));
}

#[test]
fn a_rank_left_alone_in_teardown_is_stuck_and_an_early_one_is_not() {
    let through = RankState {
        ahead: Remaining::Known(Vec::new()),
        done: vec![collective("barrier", 2)],
        ..rank(0)
    };
    let leaving = || {
        let state = inside(rank(1), event(EventKind::Destroy(WORLD.into())));
        RankState {
            done: vec![collective("barrier", 2)],
            ..state
        }
    };
    let evidence = job(vec![through.clone(), leaving()]);
    assert_eq!(verdict(&evidence), (HangKind::TeardownStuck, vec![1]));
    assert_eq!(diagnose(&evidence).confidence, Confidence::Likely);
    let busy = inside(through, event(EventKind::Own("sleep".into())));
    assert_eq!(verdict(&job(vec![busy, leaving()])).0, HangKind::Unknown);
}

#[test]
fn a_rank_that_waits_in_teardown_for_one_that_is_gone_is_no_culprit() {
    let leaving = |number| inside(rank(number), event(EventKind::Destroy(WORLD.into())));
    let with = |process: Process| RankState {
        process,
        done: vec![collective("all_reduce", 2)],
        ..rank(2)
    };
    let killed = || with(Process::Ended("signal 9 (SIGKILL)".into()));
    let evidence = job(vec![leaving(0), leaving(1), killed()]);
    assert_eq!(verdict(&evidence), (HangKind::PeerDead, vec![2]));
    let evidence = job(vec![leaving(0), leaving(1), with(Process::Stopped)]);
    assert_eq!(verdict(&evidence), (HangKind::PeerStopped, vec![2]));
    let mut early = killed();
    early.done.push(event(EventKind::Destroy(WORLD.into())));
    early.ahead = Remaining::Known(Vec::new());
    assert_eq!(
        verdict(&job(vec![leaving(0), leaving(1), early])).0,
        HangKind::TeardownStuck,
        "it has torn down and is through"
    );
}

#[test]
fn a_rank_in_teardown_waits_for_one_that_has_not_come_to_what_it_has_issued() {
    let with = |number, count| RankState {
        done: vec![collective("all_reduce", 3); count],
        ..rank(number)
    };
    let leaving = |number| inside(with(number, 4), event(EventKind::Destroy(WORLD.into())));
    let at_a_file = inside(with(0, 2), event(EventKind::Own("flock".into())));
    let evidence = job(vec![at_a_file, leaving(1), leaving(2)]);
    assert_eq!(verdict(&evidence), (HangKind::Slow, vec![0]));
    let as_far = inside(with(0, 4), event(EventKind::Own("flock".into())));
    let evidence = job(vec![as_far, leaving(1), leaving(2)]);
    assert_eq!(verdict(&evidence).0, HangKind::Unknown);
}

#[test]
fn what_a_rank_has_issued_behind_what_it_waits_for_is_not_left() {
    let of = |group: &str, members: [u32; 2]| {
        event(EventKind::Collective(Collective {
            group: group.into(),
            members: members.map(Rank).into(),
            name: "all_reduce".into(),
            nature: [].into(),
            splits: None,
        }))
    };
    // Rank 1 has issued its part of group b, on a stream that waits for group a.
    let ahead = |issued| {
        let state = RankState {
            done: issued,
            ..rank(1)
        };
        inside(state, event(EventKind::Await("a".into(), 0)))
    };
    let waits = inside(rank(0), of("b", [0, 1]));
    let late = inside(rank(2), event(EventKind::Own("sleep".into())));
    let issued = ahead(vec![of("a", [1, 2]), of("b", [0, 1])]);
    let evidence = job(vec![waits.clone(), issued, late.clone()]);
    assert_eq!(verdict(&evidence), (HangKind::Slow, vec![2]));
    let before = ahead(vec![of("b", [0, 1]), of("a", [1, 2])]);
    let inside_too = inside(rank(2), of("a", [1, 2]));
    let evidence = job(vec![waits, before, inside_too]);
    assert_eq!(verdict(&evidence), (HangKind::StuckInCall, vec![0]));
}

#[test]
fn a_rank_that_is_gone_does_not_carry_out_what_it_has_issued() {
    let awaiting = |number| RankState {
        done: vec![collective("all_reduce", 3), collective("all_reduce", 3)],
        ..inside(rank(number), event(EventKind::Await(WORLD.into(), 0)))
    };
    let with = |process: Process| RankState {
        process,
        done: vec![collective("all_reduce", 3), collective("all_reduce", 3)],
        ..rank(2)
    };
    let killed = with(Process::Ended("signal 9 (SIGKILL)".into()));
    // Rank 1 has met the error, and waits for what another is to tell.
    let other = inside(rank(1), event(EventKind::AwaitKeys(vec!["world/1".into()])));
    let other = RankState {
        done: awaiting(1).done,
        ..other
    };
    let evidence = job(vec![awaiting(0), other, killed.clone()]);
    assert_eq!(verdict(&evidence), (HangKind::PeerDead, vec![2]));
    let evidence = job(vec![awaiting(0), awaiting(1), with(Process::Stopped)]);
    assert_eq!(verdict(&evidence), (HangKind::PeerStopped, vec![2]));
    // One that has come to its end has done its share.
    let ended = RankState {
        ahead: Remaining::Known(Vec::new()),
        ..killed
    };
    let evidence = job(vec![awaiting(0), awaiting(1), ended]);
    assert_eq!(verdict(&evidence), (HangKind::Unknown, vec![]));
}

#[test]
fn a_rank_that_waits_for_an_earlier_collective_has_not_left_the_later_one() {
    let all = |count: usize| vec![collective("all_reduce", 2); count];
    let inside_second = |number| RankState {
        done: all(1),
        ..inside(rank(number), collective("all_reduce", 2))
    };
    // Its device is still in the first one; the second has been issued.
    let behind = RankState {
        done: all(2),
        ..inside(rank(1), event(EventKind::Await(WORLD.into(), 0)))
    };
    let evidence = job(vec![inside_second(0), behind]);
    assert_eq!(verdict(&evidence), (HangKind::Unknown, vec![]));
    let left = RankState {
        done: all(2),
        ..inside(rank(1), event(EventKind::Own("its own code".into())))
    };
    let evidence = job(vec![inside_second(0), left]);
    assert_eq!(verdict(&evidence), (HangKind::StuckInCall, vec![0]));
}

#[test]
fn a_stopped_rank_is_named_if_all_others_are_in_calls_that_are_not_known() {
    let in_call = |number| inside(rank(number), event(EventKind::Own(A_CALL.into())));
    let stopped = || RankState {
        process: Process::Stopped,
        ..inside(rank(1), event(EventKind::Own("its own code".into())))
    };
    let evidence = job(vec![in_call(0), stopped(), in_call(2)]);
    assert_eq!(verdict(&evidence), (HangKind::PeerStopped, vec![1]));
    assert_eq!(diagnose(&evidence).confidence, Confidence::Likely);
    let busy = inside(rank(2), event(EventKind::Own("its own code".into())));
    let evidence = job(vec![in_call(0), stopped(), busy]);
    assert_eq!(verdict(&evidence), (HangKind::Unknown, vec![]));
}

#[test]
fn a_rank_still_making_a_group_that_is_refused_to_its_members_is_bound_like_them() {
    let making = |number| {
        inside(
            rank(number),
            event(EventKind::NewGroup(vec![Rank(1), Rank(2), Rank(3)])),
        )
    };
    let refused = |number, error: &str| RankState {
        done: vec![event(EventKind::NewGroup(vec![Rank(1), Rank(2), Rank(3)]))],
        errors: vec![error.to_owned()],
        ..rank(number)
    };
    let evidence = job(vec![
        inside(rank(0), collective("barrier", 4)),
        refused(
            1,
            "RuntimeError: No backend type associated with device type xpu",
        ),
        making(2),
        refused(3, "RuntimeError: Connection closed by peer"),
    ]);
    assert_eq!(verdict(&evidence), (HangKind::DeviceBinding, vec![1, 2, 3]));
}

#[test]
fn all_ranks_that_exist_twice_are_named() {
    // The second node says that it is the first.
    let claims = [0, 1, 0, 1].map(|claim| rendezvous(claim, 4, 29500));
    let ranks = (0..)
        .zip(claims)
        .map(|(number, claim)| inside(rank(number), claim));
    let evidence = job(ranks.collect());
    assert_eq!(verdict(&evidence), (HangKind::DuplicateRank, vec![2, 3]));
    let summary = diagnose(&evidence).summary;
    let wanted = "processes 0, 2 all say that they are rank 0, and 1, 3 that they are rank 1";
    assert_eq!(summary, wanted);
}

#[test]
fn where_each_rank_means_to_meet_elsewhere_none_is_named() {
    let places = |ports: [u16; 3]| {
        let ranks = (0..)
            .zip(ports)
            .map(|(number, port)| inside(rank(number), rendezvous(number, 3, port)));
        verdict(&job(ranks.collect()))
    };
    assert_eq!(places([1, 2, 3]), (HangKind::PortMismatch, vec![]));
    assert_eq!(places([1, 2, 1]), (HangKind::PortMismatch, vec![1]));
}

#[test]
fn a_rank_that_has_ended_is_missed_for_a_key_only_if_no_other_can_set_it() {
    let key = |rank: u32| format!("total/{rank}");
    let with_key = |number: u32, state: RankState| RankState {
        keys_set: vec![key(number)],
        ..state
    };
    let waits = |number| {
        let wait = event(EventKind::AwaitKeys(vec![key(2)]));
        with_key(number, inside(rank(number), wait))
    };
    let gone = |number| RankState {
        process: Process::Ended("exit 0".into()),
        ..rank(number)
    };
    // Rank 2 is at work, and the key has its number.
    let works = inside(rank(2), event(EventKind::Own("its own code".into())));
    let late = job(vec![waits(0), with_key(1, gone(1)), works]);
    assert_eq!(verdict(&late), (HangKind::Slow, vec![2]));
    let dead = job(vec![waits(0), waits(1), gone(2)]);
    assert_eq!(verdict(&dead), (HangKind::PeerDead, vec![2]));
    assert_eq!(diagnose(&dead).confidence, Confidence::Likely);
}
