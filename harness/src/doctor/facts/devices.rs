//! Devices as their vendor's tool lists them, and the processes that use them. Only NVIDIA's tool is supported. torch is not
//! asked, because it would create a context on each device and so change the facts.

use std::process::Command;
use std::time::Duration;

use serde::Serialize;

use super::{FactsQuery, describe_process};
use allranks_host as host;

/// The time limit of the tool, which is slow if it has to load the driver first.
const PATIENCE: Duration = Duration::from_secs(10);
const TOOL: &str = "nvidia-smi";

/// One device of this machine, as its vendor's tool lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Device {
    /// Its index on this machine, from 0, before any mask such as `CUDA_VISIBLE_DEVICES`.
    pub index: u32,
    /// Its unique id, as the vendor's tool prints it.
    pub uuid: String,
    /// The model name of the device.
    pub name: String,
    /// The version of its driver.
    pub driver: String,
    /// The size of its memory, in MiB.
    pub total_mib: u64,
    /// The part of its memory that no process uses, in MiB.
    pub free_mib: u64,
    /// The processes that use it.
    pub users: Vec<DeviceUser>,
    /// The connection to each device, in their order, as the tool calls it: `X` to itself, `NV18` for 18 NVLinks, `PIX` to `SYS`
    /// for increasingly long paths over PCIe. Empty if the tool does not tell.
    pub links: Vec<String>,
}

/// A process that uses a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeviceUser {
    /// The process as reports show it: `python train.py (pid 4711)`. In JSON the field is `who`.
    #[serde(rename = "who")]
    pub process: String,
    /// Memory that it uses on the device, in MiB; `None` if the tool does not say.
    pub used_mib: Option<u64>,
}

/// Lists the devices with the vendor's tool. The second value is the tool's error; `None` if it works or is not installed.
pub(super) fn collect(query: &FactsQuery) -> (Vec<Device>, Option<String>) {
    let Some(tool) = query.program(TOOL) else {
        return (Vec::new(), None);
    };
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&tool);
        command.args(arguments);
        match host::run_with_timeout(command, PATIENCE) {
            Err(error) => Err(error.to_string()),
            Ok((_, None)) => Err(format!("it did not answer within {} s", PATIENCE.as_secs())),
            Ok((text, Some(status))) if status.success() => Ok(text),
            Ok((text, Some(_))) => Err(text.split_whitespace().collect::<Vec<_>>().join(" ")),
        }
    };
    let ask = |query: &str| run(&[query, "--format=csv,noheader,nounits"]);
    let devices = ask("--query-gpu=index,uuid,name,driver_version,memory.total,memory.free");
    match devices {
        Err(error) => (Vec::new(), Some(format!("{TOOL}: {error}"))),
        Ok(devices) => {
            let users = ask("--query-compute-apps=gpu_uuid,pid,used_gpu_memory");
            let mut devices = read(&devices, &users.unwrap_or_default(), describe_process);
            let links = links(&run(&["topo", "-m"]).unwrap_or_default(), devices.len());
            for (device, links) in devices.iter_mut().zip(links) {
                device.links = links;
            }
            (devices, None)
        }
    }
}

/// Parses the tool's tables of devices and of processes.
fn read(devices: &str, users: &str, describe_process: impl Fn(u32) -> String) -> Vec<Device> {
    let rows = |text: &str| -> Vec<Vec<String>> {
        let cells = |line: &str| line.split(',').map(|cell| cell.trim().to_owned()).collect();
        text.lines().map(cells).collect()
    };
    let users = rows(users);
    rows(devices)
        .iter()
        .filter_map(|row| {
            let [index, uuid, name, driver, total, free] = row.as_slice() else {
                return None;
            };
            let users = users.iter().filter_map(|row| match row.as_slice() {
                [device, pid, used] if device == uuid => Some(DeviceUser {
                    process: pid
                        .parse()
                        .map_or_else(|_| format!("pid {pid}"), &describe_process),
                    used_mib: used.parse().ok(),
                }),
                _ => None,
            });
            Some(Device {
                index: index.parse().ok()?,
                uuid: uuid.clone(),
                name: name.clone(),
                driver: driver.clone(),
                total_mib: total.parse().ok()?,
                free_mib: free.parse().ok()?,
                users: users.collect(),
                links: Vec::new(),
            })
        })
        .collect()
}

/// Parses the tool's matrix of connections between `count` devices: a row for each device.
fn links(matrix: &str, count: usize) -> Vec<Vec<String>> {
    let row = |index: usize| {
        let name = format!("GPU{index}");
        let mut rows = matrix.lines().map(|line| line.split('\t').map(str::trim));
        // The first line has the column names, after an empty cell.
        let mut cells = rows.find_map(|mut cells| (cells.next()? == name).then_some(cells))?;
        let ways: Vec<String> = cells.by_ref().take(count).map(str::to_owned).collect();
        (ways.len() == count).then_some(ways)
    };
    (0..count).map_while(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tools_tables_are_joined() {
        let devices = "0, GPU-a, NVIDIA H200, 580.95.05, 143771, 143163\n1, GPU-b, NVIDIA H200, 580.95.05, 143771, 1000\n\
                       warning, this is no device\n";
        let users = "GPU-b, 77, 142000\nGPU-b, 78, [N/A]\n";
        let found = read(devices, users, |pid| format!("x (pid {pid})"));
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].total_mib, found[0].free_mib, found[0].users.len()),
            (143_771, 143_163, 0)
        );
        let user = |process: &str, used_mib| DeviceUser {
            process: process.to_owned(),
            used_mib,
        };
        assert_eq!(
            found[1].users,
            [user("x (pid 77)", Some(142_000)), user("x (pid 78)", None)]
        );
    }

    #[test]
    fn the_matrix_of_connections_is_read() {
        let matrix = "\t\u{1b}[4mGPU0\tGPU1\tNIC0\tCPU Affinity\u{1b}[0m\n\
                      GPU0\t X \tNV18\tPIX\t0-47\nGPU1\tNV18\t X \tSYS\t48-95\n\nLegend:\n\n  X    = Self\n";
        assert_eq!(links(matrix, 2), [["X", "NV18"], ["NV18", "X"]]);
        assert!(links("topology is not supported\n", 2).is_empty());
    }
}
