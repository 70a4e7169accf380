//! The arguments that select what is run, on which platforms, and by which driver.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::fleet_arguments::FleetArguments;
use super::suite_arguments::FilesArguments;
use crate::suite::Request;
use allranks_model::names::WorldSize;
use allranks_runner::probe;
use allranks_suite::plan::{Filter, Shard};

/// What to run.
#[derive(Debug, Args)]
pub struct SelectArguments {
    /// Case files or folders, or ids of the suite's cases; default: the suite's own, narrowed by --profile.
    #[arg(value_name = "CASE_OR_DIR")]
    pub cases: Vec<PathBuf>,
    /// Only these platforms, by their files' names. Simulated ones run only if they are named.
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    pub platform: Vec<String>,
    /// Only this backend; may be given more than once.
    #[arg(long, value_name = "NAME")]
    pub backend: Vec<String>,
    /// Only worlds of these sizes.
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=i64::from(WorldSize::MAX)))]
    pub world_size: Vec<u32>,
    /// A named part of the suite: smoke, core, full, stack, simulated, libraries, xla or fleet. Default: core, unless cases are
    /// named.
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Only checks that match, such as 'all_gather dtype=int8,uint8 !async'. If given more than once, checks must match all.
    #[arg(long, value_name = "EXPR")]
    pub filter: Vec<Filter>,
    /// Only part I of N of the scenarios; the parts are the same on every machine.
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Shard>,
    /// Balance the shards by the run times recorded in RUN. Give every shard the same RUN. Scenarios that are not in RUN are
    /// divided as without this option.
    #[arg(long, value_name = "RUN", requires = "shard")]
    pub times: Option<PathBuf>,
    /// Files besides the cases.
    #[command(flatten)]
    pub files: FilesArguments,
    /// The Python that has torch. Default: $ALLRANKS_PYTHON, the active virtual environment, .venv, python3.
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// The driver: `python`; `libtorch`; `command:PROGRAM ARGUMENT...`, any program that speaks the rank protocol; or `program`,
    /// which runs only the cases that are programs of their own. Default: `python`, and such cases too. `command:` runs only on
    /// host platforms, whose files have no `count`: only `python` and `libtorch` can count devices.
    #[arg(long, value_name = "DRIVER")]
    pub driver: Option<DriverChoice>,
    /// What starts the ranks, and on how many nodes.
    #[command(flatten)]
    pub fleet: FleetArguments,
    /// Seconds that importing torch and a platform's other modules may take, both when platforms are looked for and in a rank.
    #[arg(long, value_name = "SECONDS", default_value_t = probe::IMPORT_PATIENCE.as_secs(), value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub import_patience: u64,
    /// Seed of all inputs.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// End with exit code 4 unless this platform, or platform/backend, was found and ran. With `nodes=N`: unless worlds ran on N
    /// nodes. May be given more than once.
    #[arg(long, value_name = "CAPABILITY")]
    pub require: Vec<String>,
}

impl SelectArguments {
    /// Returns how long importing torch, and what a platform imports besides, may take.
    #[must_use]
    pub const fn import_patience(&self) -> Duration {
        Duration::from_secs(self.import_patience)
    }

    /// Returns whether these arguments and a profile select every check of the suite on the platforms at hand, so that an
    /// expectation that matches no check is out of date.
    #[must_use]
    pub fn has_every_check(&self, profile: Option<&str>) -> bool {
        self.cases.is_empty()
            && self.filter.is_empty()
            && self.shard.is_none()
            && self.world_size.is_empty()
            && profile == Some("full")
    }

    /// Returns what to load.
    #[must_use]
    pub fn request(&self) -> Request {
        self.files.request(&self.cases)
    }
}

/// The driver, as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverChoice {
    /// The Python driver that the binary carries.
    Python,
    /// The libtorch driver, which `ci/libtorch` builds.
    Libtorch,
    /// A program and its arguments.
    Command(Vec<String>),
    /// No driver: only cases that run a program.
    Program,
}

impl std::str::FromStr for DriverChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "python" {
            return Ok(Self::Python);
        }
        if text == "libtorch" {
            return Ok(Self::Libtorch);
        }
        if text == "program" {
            return Ok(Self::Program);
        }
        let argv: Vec<String> = text
            .strip_prefix("command:")
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        if argv.is_empty() {
            return Err(
                "there are `python`, `libtorch`, `program`, and `command:PROGRAM ARGUMENT...`"
                    .to_owned(),
            );
        }
        Ok(Self::Command(argv))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::SelectArguments;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        select: SelectArguments,
    }

    fn select(arguments: &[&str]) -> SelectArguments {
        let name = std::iter::once(&"run");
        Command::try_parse_from(name.chain(arguments))
            .unwrap()
            .select
    }

    #[test]
    fn a_part_of_the_suite_does_not_have_every_check() {
        assert!(select(&["--platform", "cpu"]).has_every_check(Some("full")));
        for (arguments, profile) in [
            (&[][..], "core"),
            (&["cases/numerics"], "full"),
            (&["--filter", "all_reduce"], "full"),
            (&["--shard", "1/2"], "full"),
            (&["--world-size", "2"], "full"),
        ] {
            let select = select(arguments);
            assert!(!select.has_every_check(Some(profile)), "{arguments:?}");
        }
    }
}
