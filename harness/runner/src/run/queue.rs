//! Decides the order in which scenarios start.

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::load::{Load, estimate};
use allranks_suite::plan::{Plan, Scenario};

/// Returns the scenarios in the order in which they start: one queue for each device type and two for the host, so that
/// no scenario waits for what it does not need. Those for devices are ordered to leave few devices idle. On the host, scenarios
/// that compute keep the plan's order; of those that wait, the longest start first, so that none is left to run alone at the
/// end.
pub fn queues(plan: &Plan) -> Vec<Vec<Arc<Scenario>>> {
    let scenarios = plan.scenarios.iter().map(|scenario| {
        let kind = scenario.platform.device_type.as_str();
        let devices = scenario.devices.map(|present| (kind, present));
        (devices, Arc::new(scenario.clone()))
    });
    let size = |scenario: &Arc<Scenario>| scenario.platform.devices_for(scenario.world_size);
    by_type(scenarios)
        .into_iter()
        .flat_map(|(present, queue)| match present {
            Some(present) => vec![filling(queue, present, size)],
            None => on_host(queue).to_vec(),
        })
        .collect()
}

/// Returns scenarios in the order in which they should be asked for where each is asked for by itself, as tests do: those
/// that wait, the longest first, between those that compute.
#[must_use]
pub fn in_starting_order(scenarios: Vec<Scenario>) -> Vec<Scenario> {
    let [waiting, computing] = on_host(scenarios);
    let (mut waiting, mut computing) = (waiting.into_iter(), computing.into_iter());
    let mut mixed = Vec::new();
    loop {
        let pair = [waiting.next(), computing.next()];
        if pair.iter().all(Option::is_none) {
            return mixed;
        }
        mixed.extend(pair.into_iter().flatten());
    }
}

/// Parts the scenarios that wait, the longest first, from those that compute.
fn on_host<T: Borrow<Scenario>>(scenarios: Vec<T>) -> [Vec<T>; 2] {
    let waits = |one: &T| Load::of(one.borrow()).waiting_charge().is_some();
    let (mut waiting, computing): (Vec<_>, Vec<_>) = scenarios.into_iter().partition(waits);
    waiting.sort_by_key(|one| Reverse(estimate(one.borrow())));
    [waiting, computing]
}

/// Groups worlds by device type, each group with the number of devices: the largest that any platform of this type
/// sees. `worlds` come with their device type and number; none means that the world runs on the host.
fn by_type<'a, T>(
    worlds: impl IntoIterator<Item = (Option<(&'a str, u32)>, T)>,
) -> Vec<(Option<u32>, Vec<T>)> {
    let mut queues: BTreeMap<Option<&str>, (Option<u32>, Vec<T>)> = BTreeMap::new();
    for (devices, world) in worlds {
        let kind = devices.map(|(kind, _)| kind);
        let (present, queue) = queues.entry(kind).or_insert((None, Vec::new()));
        *present = (*present).max(devices.map(|(_, present)| present));
        queue.push(world);
    }
    queues.into_values().collect()
}

/// Orders worlds so that few of `devices` are idle, if each world starts as soon as the devices it needs (`size`) are
/// free, and none overtakes another: repeatedly the smallest that is left, and beside it the largest ones that fit.
/// Small worlds come early, because what fails in them fails in larger ones too.
fn filling<T>(worlds: Vec<T>, devices: u32, size: impl Fn(&T) -> u32) -> Vec<T> {
    let mut left: BTreeMap<u32, VecDeque<T>> = BTreeMap::new();
    for world in worlds {
        left.entry(size(&world)).or_default().push_back(world);
    }
    let mut filled = Vec::new();
    let mut free = devices;
    while let Some(smallest) = left.keys().next().copied() {
        let largest = left.range(..=free).next_back().map(|(size, _)| *size);
        let size = match largest {
            Some(largest) if free < devices => largest,
            _ => {
                free = devices;
                smallest
            }
        };
        if let Entry::Occupied(mut same) = left.entry(size) {
            filled.extend(same.get_mut().pop_front());
            if same.get().is_empty() {
                same.remove();
            }
        }
        free = free.saturating_sub(size);
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(sizes: &[u32], devices: u32) -> Vec<u32> {
        filling(sizes.to_vec(), devices, |size| *size)
    }

    #[test]
    fn platforms_of_one_type_wait_in_one_queue() {
        let (two, four) = (Some(("acme", 2)), Some(("acme", 4)));
        let worlds = [
            (two, 'a'),
            (None, 'b'),
            (four, 'c'),
            (two, 'd'),
            (Some(("other", 1)), 'e'),
        ];
        let queues = [
            (None, vec!['b']),
            (Some(4), vec!['a', 'c', 'd']),
            (Some(1), vec!['e']),
        ];
        assert_eq!(by_type(worlds), queues);
    }

    #[test]
    fn small_worlds_are_beside_large_ones() {
        assert_eq!(
            order(&[1, 1, 2, 2, 2, 3, 3, 3, 4], 4),
            [1, 3, 1, 3, 2, 2, 2, 3, 4]
        );
        assert_eq!(order(&[1, 1, 1, 2, 4], 4), [1, 2, 1, 1, 4]);
        assert_eq!(order(&[2, 1, 2, 1], 2), [1, 1, 2, 2]);
        assert!(order(&[], 4).is_empty());
    }

    #[test]
    fn worlds_of_one_size_keep_their_order() {
        let worlds = vec![(1, 'a'), (3, 'b'), (1, 'c'), (3, 'd')];
        let filled = filling(worlds, 4, |world| world.0);
        let names: Vec<char> = filled.iter().map(|world| world.1).collect();
        assert_eq!(names, ['a', 'b', 'c', 'd']);
    }

    #[test]
    fn a_world_larger_than_the_machine_keeps_no_other_waiting() {
        assert_eq!(order(&[8, 1], 4), [1, 8]);
    }
}
