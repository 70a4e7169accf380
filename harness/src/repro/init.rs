//! Writes `init_process_group` and the creation of the groups.

use super::calls::new_group;
use super::literal::{list, text};
use super::{Subject, index_of_device, put};
use allranks_model::group::Group;
use allranks_model::names::Rank;
use allranks_model::recipe::{DeviceId, SetDevice};
use allranks_model::store::StoreMethod;
use allranks_suite::plan::Scenario;

/// Writes `init_process_group` and the groups that the check needs. Without a check: all groups of the scenario, and the
/// comparison of each rank's group rank and group size.
pub(super) fn init(out: &mut String, subject: &Subject<'_>) {
    let scenario = subject.scenario;
    out.push('\n');
    set_device(out, scenario, SetDevice::Before);
    let is_script = subject.check.is_some_and(|check| check.script().is_some());
    init_process_group(out, scenario, is_script);
    set_device(out, scenario, SetDevice::After);
    let groups: Vec<&Group> = scenario.groups.iter().skip(1).map(AsRef::as_ref).collect();
    if is_script && !groups.is_empty() {
        out.push_str("groups = {}\n");
    }
    match subject.check {
        Some(_) if is_script => {
            for group in groups.into_iter().filter(|group| group.size() > 0) {
                create(
                    out,
                    scenario,
                    &format!("groups[{}]", text(&group.name)),
                    group,
                );
            }
        }
        Some(check) if check.group.name != "world" => create(out, scenario, "group", &check.group),
        Some(_) => {}
        None => all_groups(out, scenario, &groups),
    }
}

/// Writes the call that sets the rank's device, if the init recipe has it at this time.
fn set_device(out: &mut String, scenario: &Scenario, at: SetDevice) {
    if let Some(function) = &scenario.platform.set_device
        && scenario.init.set_device == at
    {
        let index = index_of_device(&scenario.platform);
        put(out, format_args!("{function}({index})\n"));
    }
}

/// Writes `init_process_group`, and before it the store or the address that it is given.
fn init_process_group(out: &mut String, scenario: &Scenario, is_script: bool) {
    let mut arguments = vec![text(&scenario.init_backend())];
    let index = index_of_device(&scenario.platform);
    match scenario.init.device_id {
        DeviceId::Absent => {}
        DeviceId::Index => arguments.push(format!("device_id={index}")),
        DeviceId::Device => {
            let kind = text(&scenario.platform.device_type);
            arguments.push(format!("device_id=torch.device({kind}, {index})"));
        }
    }
    let explicit = "rank=rank, world_size=int(os.environ[\"WORLD_SIZE\"])";
    let port = "int(os.environ['MASTER_PORT'])";
    // A script has its own store at the next port.
    let next = if is_script { 2 } else { 1 };
    let how = match scenario.init.method {
        StoreMethod::Env => None,
        StoreMethod::Tcp => {
            put(
                out,
                format_args!(
                    "address = f\"tcp://{{os.environ['MASTER_ADDR']}}:{{{port} + {next}}}\"  # torchrun holds the port itself\n"
                ),
            );
            Some("init_method=address")
        }
        StoreMethod::File => {
            out.push_str("meeting = f\"/tmp/meeting-{os.getppid()}\"\n");
            Some("init_method=f\"file://{meeting}\"")
        }
        StoreMethod::Store => {
            put(
                out,
                format_args!(
                    "store = dist.TCPStore(os.environ[\"MASTER_ADDR\"], {port} + {next}, int(os.environ[\"WORLD_SIZE\"]), rank == 0)\n"
                ),
            );
            Some("store=store")
        }
    };
    if let Some(how) = how {
        arguments.extend([how.to_owned(), explicit.to_owned()]);
    }
    let timeout = scenario.case.world.timeout_s;
    arguments.push(format!("timeout=timedelta(seconds={timeout})"));
    put(
        out,
        format_args!("dist.init_process_group({})\n", arguments.join(", ")),
    );
}

/// Writes the creation of a group, which is kept under this name.
fn create(out: &mut String, scenario: &Scenario, name: &str, group: &Group) {
    let how = &group.how;
    let timeout = how.timeout_s.unwrap_or(scenario.case.world.timeout_s);
    let ranks = match how.given.is_empty() {
        true => list(&group.ranks),
        false => list(&how.given),
    };
    let made = match how.split {
        true => format!(
            "dist.split_group(split_ranks=[{ranks}], timeout=timedelta(seconds={timeout})) or dist.GroupMember.NON_GROUP_MEMBER"
        ),
        false => new_group(&ranks, timeout, group.backend.as_deref(), how.local_sync),
    };
    let line = format!("{name} = {made}\n");
    if scenario.refuses(group) {
        // It must raise on members, so later lines do not use it.
        put(
            out,
            format_args!(
                "try:\n    {line}except Exception as error:\n    print(f\"rank {{rank}}: {{error}}\")\n"
            ),
        );
        return;
    }
    out.push_str(&line);
}

/// Writes the creation of all groups, and the comparison of each rank's group rank and group size.
fn all_groups(out: &mut String, scenario: &Scenario, groups: &[&Group]) {
    let with_members = || {
        groups
            .iter()
            .enumerate()
            .filter(|(_, group)| group.size() > 0)
    };
    for (number, group) in with_members() {
        create(out, scenario, &format!("group{number}"), group);
    }
    put(
        out,
        format_args!("expect(\"get_rank()\", dist.get_rank(), rank)\n"),
    );
    put(
        out,
        format_args!(
            "expect(\"get_world_size()\", dist.get_world_size(), {})\n",
            scenario.world_size
        ),
    );
    for (number, group) in with_members().filter(|(_, group)| !scenario.refuses(group)) {
        let members: Vec<_> = (0..)
            .zip(&group.ranks)
            .map(|(position, rank): (u32, &Rank)| format!("{rank}: {position}"))
            .collect();
        put(
            out,
            format_args!(
                "expect({}, dist.get_rank(group{number}), {{{}}}.get(rank, -1))\n",
                text(&format!("rank in group {}", group.name)),
                members.join(", ")
            ),
        );
    }
}
