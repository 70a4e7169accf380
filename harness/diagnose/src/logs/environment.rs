//! Reads what a rank prints of its environment: `MASTER_ADDR=node0 MASTER_PORT=29500`, `'WORLD_SIZE': '4'`,
//! `world_size=8`.

use std::sync::LazyLock;

use regex::Regex;

use super::line::RANKS;

/// The variables that a rank has printed; the last value of each counts, and `None` was never printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Environment {
    pub(super) host: Option<String>,
    pub(super) port: Option<u16>,
    pub(super) world_size: Option<u32>,
    pub(super) rank: Option<u32>,
}

static VARIABLE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r#"\b(?P<name>MASTER_ADDR|MASTER_PORT|WORLD_SIZE|RANK|world_size|world size)\b['"]?\s*(?:=>|[=:]|\bis\b)?\s*['"]?(?P<value>[\w.:-]+)"#,
    )
    .ok()
});

static PROCESSES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^Num processes: (\d+)|registered\. Starting with (\d+) processes").ok()
});
static WORLD: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\bworld=(\d+)\b").ok());
static TENSOR: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\btp_size=(\d+)").ok());
static PIPELINE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\bpp_size=(\d+)").ok());

/// Returns the number of ranks as accelerate, Lightning and SGLang write it.
fn processes(text: &str) -> Option<u32> {
    let number = |pattern: &LazyLock<Option<Regex>>| -> Option<u32> {
        let found = pattern.as_ref()?.captures(text)?;
        let mut groups = found.iter().skip(1).flatten();
        groups.next()?.as_str().parse().ok()
    };
    let size = if text.contains("rocesses") {
        number(&PROCESSES)?
    } else if text.contains("world=") {
        number(&WORLD)?
    } else if text.contains("server_args=") {
        number(&TENSOR)?.checked_mul(number(&PIPELINE).unwrap_or(1))?
    } else {
        return None;
    };
    (1..=RANKS).contains(&size).then_some(size)
}

impl Environment {
    /// Takes over the values that a line names.
    pub(super) fn read(&mut self, text: &str) {
        if let Some(size) = processes(text) {
            self.world_size = Some(size);
        }
        // Most lines name none of them, and a look is cheaper than a pattern.
        if !["MASTER_", "RANK", "WORLD_SIZE", "world"]
            .iter()
            .any(|name| text.contains(name))
        {
            return;
        }
        let Some(pattern) = VARIABLE.as_ref() else {
            return;
        };
        for found in pattern.captures_iter(text) {
            let value = &found["value"];
            match &found["name"] {
                "MASTER_ADDR" if value != "None" => self.host = Some(value.to_owned()),
                "MASTER_PORT" => self.port = value.parse().ok().or(self.port),
                "WORLD_SIZE" | "world_size" | "world size" => {
                    let size = value.parse().ok().filter(|size| (1..=RANKS).contains(size));
                    self.world_size = size.or(self.world_size);
                }
                "RANK" => self.rank = value.parse().ok().or(self.rank),
                _ => {}
            }
        }
    }

    /// Returns the endpoint as `host:port`; `None` if either was not printed. All names of the own host become
    /// `127.0.0.1`.
    pub(super) fn place(&self) -> Option<String> {
        let host = match self.host.as_deref()? {
            "localhost" | "::1" => "127.0.0.1",
            host => host,
        };
        Some(format!("{host}:{}", self.port?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dumps_are_read_in_several_forms() {
        for text in [
            "MASTER_ADDR=node0 MASTER_PORT=29500 WORLD_SIZE=4 RANK=1 LOCAL_RANK=0",
            "{'MASTER_ADDR': 'node0', 'MASTER_PORT': '29500', 'WORLD_SIZE': '4', 'RANK': '1'}",
            "MASTER_ADDR: node0, MASTER_PORT: 29500, world_size: 4, RANK: 1",
        ] {
            let mut environment = Environment::default();
            environment.read(text);
            assert_eq!(
                environment.place().as_deref(),
                Some("node0:29500"),
                "{text}"
            );
            assert_eq!(
                (environment.world_size, environment.rank),
                (Some(4), Some(1))
            );
        }
    }

    #[test]
    fn libraries_say_how_many_ranks_there_are() {
        for (text, size) in [
            ("Num processes: 4", Some(4)),
            (
                "All distributed processes registered. Starting with 2 processes",
                Some(2),
            ),
            (
                "server_args=ServerArgs(tp_size=8, pp_size=2, nnodes=2)",
                Some(16),
            ),
            ("global_rank=0 local_rank=0 world=8", Some(8)),
            ("world_size=4000000000", None),
        ] {
            let mut environment = Environment::default();
            environment.read(text);
            assert_eq!(environment.world_size, size, "{text}");
        }
    }

    #[test]
    fn what_is_not_set_is_not_told() {
        let mut environment = Environment::default();
        environment.read("MASTER_ADDR=None MASTER_PORT=None LOCAL_RANK=3");
        assert_eq!(environment, Environment::default());
    }
}
