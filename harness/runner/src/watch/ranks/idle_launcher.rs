//! Finds a launcher that waits for other nodes: torchrun starts no rank before as many nodes have come as it was told. Nothing hangs as
//! long as they may still come, and without ranks there is no verdict.

use std::time::Duration;

/// Returns a line that says so, once the command has run for this long without a rank; `None` if none of its processes is torchrun that
/// was told of several nodes.
pub fn idle_launcher(commands: &[(u32, Vec<String>)], waited: Duration) -> Option<String> {
    let (pid, nodes, place) = commands.iter().find_map(|(pid, words)| {
        let is_launcher = words.iter().any(|word| {
            let name = word.rsplit('/').next().unwrap_or_default();
            matches!(
                name,
                "torchrun" | "torch.distributed.run" | "torch.distributed.launch"
            )
        });
        let nodes = option(words, "nnodes").filter(|_| is_launcher)?;
        // `MIN:MAX` for a job whose number of nodes may change.
        let least: u32 = nodes.split(':').next()?.parse().ok()?;
        let place = option(words, "rdzv-endpoint")
            .map(str::to_owned)
            .or_else(|| {
                let port = option(words, "master-port").unwrap_or("29500");
                Some(format!("{}:{port}", option(words, "master-addr")?))
            });
        (least > 1).then_some((*pid, least, place))
    })?;
    let place = place.map_or_else(String::new, |place| format!(" at {place}"));
    Some(format!(
        "no rank has been started for {:.0} s: torchrun (pid {pid}) waits{place} until {nodes} nodes have come; start the command on each of them, with the same endpoint and --rdzv-id, and check that all reach that address",
        waited.as_secs_f64()
    ))
}

/// Returns the value of an option, `--NAME VALUE` or `--NAME=VALUE`, whose name may be written with `_` for `-`.
fn option<'a>(words: &'a [String], name: &str) -> Option<&'a str> {
    let is_name = |word: &str| {
        word.strip_prefix("--")
            .is_some_and(|word| word.replace('_', "-") == name)
    };
    words.iter().enumerate().find_map(|(position, word)| {
        if let Some((option, value)) = word.split_once('=')
            && is_name(option)
        {
            return Some(value);
        }
        is_name(word).then(|| words.get(position + 1).map(String::as_str))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(line: &str) -> Option<String> {
        let words = line.split(' ').map(str::to_owned).collect();
        idle_launcher(&[(7, words)], Duration::from_secs(8))
    }

    #[test]
    fn torchrun_that_waits_for_a_second_node_is_told_of() {
        let text =
            notice("python /bin/torchrun --nnodes 2 --rdzv-endpoint=head:29400 train.py").unwrap();
        assert!(
            text.contains("(pid 7) waits at head:29400 until 2 nodes"),
            "{text}"
        );
        let text =
            notice("python -m torch.distributed.run --nnodes=2:4 --master_addr head train.py");
        assert!(text.unwrap().contains("at head:29500 until 2 nodes"));
        // One node, no number of nodes, or another program.
        assert_eq!(notice("python /bin/torchrun --nnodes 1 train.py"), None);
        assert_eq!(
            notice("python /bin/torchrun --nproc-per-node 2 train.py"),
            None
        );
        assert_eq!(notice("python train.py --nnodes 2"), None);
    }
}
