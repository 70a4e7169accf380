//! Makes the command that repeats one check. In: the arguments of a run, and the id of a check. Out: a line for a shell.

use allranks_model::names::CheckId;
use allranks_model::record::RunRecord;

use crate::command_line::command_line;

/// The options that a repetition replaces: those that select checks, and the output folder.
const REPLACED: &[&str] = &[
    "--filter", "--out", "--shard", "--times", "--repeat", "--seed",
];

/// Returns the command that repeats one check of a run: the run's own arguments, its seed, and a filter.
///
/// If the run was not made by `allranks run` (but by `cargo test`), the command has default arguments.
#[must_use]
pub fn repeat_command(run: &RunRecord, check: &CheckId) -> String {
    let mut words = vec!["allranks", "run"];
    let mut arguments = run.arguments.iter();
    if arguments.next().is_some_and(|verb| verb == "run") {
        while let Some(argument) = arguments.next() {
            let (name, value) = argument.split_once('=').unzip();
            if REPLACED.contains(&name.unwrap_or(argument)) {
                if value.is_none() {
                    arguments.next();
                }
                continue;
            }
            words.push(argument);
        }
    }
    let seed = run.seed.to_string();
    words.extend(["--seed", &seed, "--filter", check.as_str()]);
    command_line(&words)
}

/// Returns the command that writes the reproducer of a check; for `#init` and `#end`, that of the scenario. Cases, platforms,
/// expectations and waivers are those of the run, if `allranks run` made it.
#[must_use]
pub fn repro_command(run: &RunRecord, check: &CheckId) -> String {
    /// Options that `repro` takes over from a run.
    const KEPT: &[&str] = &["--platforms", "--expectations", "--waivers"];
    let id = check.as_str();
    let id = ["#init", "#end"]
        .iter()
        .find_map(|whole| id.strip_suffix(whole))
        .unwrap_or(id);
    let mut words = vec!["allranks", "repro", id];
    let mut arguments = run.arguments.iter();
    if arguments.next().is_some_and(|verb| verb == "run") {
        while let Some(argument) = arguments.next() {
            let (name, value) = argument.split_once('=').unzip();
            let name = name.unwrap_or(argument);
            if !name.starts_with("--") {
                words.extend(["--cases", argument]);
                continue;
            }
            // Each option of `run` takes a value.
            let value = value.or_else(|| arguments.next().map(String::as_str));
            if let Some(value) = value.filter(|_| KEPT.contains(&name)) {
                words.extend([name, value]);
            }
        }
    }
    let seed = run.seed.to_string();
    if run.seed != 1 {
        words.extend(["--seed", &seed]);
    }
    command_line(&words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_run::sample_run;

    fn run(arguments: &[&str]) -> RunRecord {
        RunRecord {
            arguments: arguments.iter().map(|text| (*text).to_owned()).collect(),
            ..sample_run()
        }
    }

    #[test]
    fn keeps_the_runs_arguments_but_not_its_selection() {
        let run = run(&[
            "run",
            "my cases",
            "--backend",
            "gloo",
            "--filter=old",
            "--out",
            "x",
            "--shard",
            "1/2",
        ]);
        assert_eq!(
            repeat_command(&run, &"a@cpu.gloo.ws2#0.all_reduce.sum".into()),
            "allranks run 'my cases' --backend gloo --seed 7 --filter 'a@cpu.gloo.ws2#0.all_reduce.sum'"
        );
    }

    #[test]
    fn a_file_of_the_check_is_made_from_the_same_suite() {
        let of_suite = run(&[
            "run",
            "--profile",
            "core",
            "--platforms=my.yaml",
            "--world-size",
            "2",
        ]);
        assert_eq!(
            repro_command(&of_suite, &"a@cpu.gloo.ws2#0.all_reduce.sum".into()),
            "allranks repro 'a@cpu.gloo.ws2#0.all_reduce.sum' --platforms my.yaml --seed 7"
        );
        let of_cases = run(&["run", "my cases", "--out", "x"]);
        assert_eq!(
            repro_command(&of_cases, &"a@cpu.gloo.ws2#init".into()),
            "allranks repro a@cpu.gloo.ws2 --cases 'my cases' --seed 7"
        );
    }

    #[test]
    fn a_quote_in_an_id_cannot_leave_the_quotes() {
        let command = repeat_command(&run(&["--nocapture"]), &"a'; rm -rf $HOME #".into());
        assert_eq!(
            command,
            r#"allranks run --seed 7 --filter "a'; rm -rf "'$HOME #'"#
        );
    }
}
