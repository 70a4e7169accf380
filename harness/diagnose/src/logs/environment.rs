//! Reads what a rank prints of its environment: `MASTER_ADDR=node0 MASTER_PORT=29500`, `'WORLD_SIZE': '4'`,
//! `world_size=8`; and of the URL of its rendezvous: `dist_url='tcp://10.0.3.4:9129'`.

use std::net::IpAddr;
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
    /// The host and the port of the URL that it gives to `init_process_group`, if it has printed that before the variables: the first
    /// that it prints is that of the world.
    pub(super) url: Option<(String, u16)>,
}

/// The URL of a rendezvous, beside the option or the call that takes it: detectron2's `dist_url`, fairseq's `distributed init (rank 0)`.
static URL: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r#"(?i)(?:^|[^\w])(?:dist[_-]?url|init[_-]?method|init_process_group|(?:distributed |dist )?init(?:iali[sz](?:ing|ed|e))?|rendezvous)\b[^/\n]{0,40}?\btcp://(?P<host>\[[\da-f:]+\]|[\w.-]+):(?P<port>\d{1,5})\b"#,
    )
    .ok()
});

static VARIABLE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r#"\b(?P<name>MASTER_ADDR|MASTER_PORT|WORLD_SIZE|RANK|world_size|world size)\b['"]?\s*(?:=>|[=:]|\bis\b)?\s*['"]?(?P<value>[\w.:-]+)"#,
    )
    .ok()
});

static PROCESSES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"^Num processes: (\d+)|registered\. Starting with (\d+) processes|multiple processes\b.*\btotal (\d+),",
    )
    .ok()
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
        // A later URL is that of another world beside the first, as are those of engines.
        if text.contains("tcp://")
            && self.place().is_none()
            && let Some(found) = URL.as_ref().and_then(|url| url.captures(text))
            && let Ok(port) = found["port"].parse()
        {
            self.url = Some((found["host"].to_owned(), port));
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
        let (host, port) = match &self.url {
            Some((host, port)) => (host.as_str(), *port),
            None => (self.host.as_deref()?, self.port?),
        };
        let host = match host {
            "localhost" | "::1" | "[::1]" => "127.0.0.1",
            host => host,
        };
        Some(format!("{host}:{port}"))
    }

    /// Returns the port of the endpoint; `None` if it was not printed.
    pub(super) fn own_port(&self) -> Option<u16> {
        self.url.as_ref().map(|(_, port)| *port).or(self.port)
    }
}

/// Returns true if two endpoints, `host:port`, may be the same: the names of a host with its domain and without, or a name and an address.
pub(super) fn may_be_same(one: &str, other: &str) -> bool {
    let (Some((host, port)), Some((its, its_port))) =
        (one.rsplit_once(':'), other.rsplit_once(':'))
    else {
        return one == other;
    };
    let is_address = |host: &str| host.starts_with('[') || host.parse::<IpAddr>().is_ok();
    let is_loopback = |host: &str| host.starts_with("127.");
    let label = |host: &str| host.split('.').next().unwrap_or_default().to_lowercase();
    port == its_port
        && match (is_address(host), is_address(its)) {
            (true, true) => host == its,
            (false, false) => label(host) == label(its),
            _ => !is_loopback(host) && !is_loopback(its),
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
    fn the_url_of_the_rendezvous_is_the_endpoint() {
        for (text, place) in [
            (
                "parsed args: Namespace(dist_url='tcp://10.0.3.4:9129', rank=0, world_size=4)",
                Some("10.0.3.4:9129"),
            ),
            (
                "=> init_process_group tcp://localhost:9129 rank 1/4",
                Some("127.0.0.1:9129"),
            ),
            (
                "| distributed init (rank 2): tcp://node-1:29491, gpu 2",
                Some("node-1:29491"),
            ),
            ("world_size=4 init tcp://cn12:29500", Some("cn12:29500")),
            ("init_method: tcp://[fe80::1]:7777", Some("[fe80::1]:7777")),
            ("rank=0 distributed_init_method=tcp://127.0.0.1:42051", None),
            ("dask scheduler at tcp://10.0.3.4:8786", None),
            ("init_method=f\"tcp://{addr}:{port}\"", None),
            ("init finished, dashboard https://a/tcp://b:12", None),
        ] {
            let mut environment = Environment::default();
            environment.read(text);
            assert_eq!(environment.place().as_deref(), place, "{text}");
        }
        let mut environment = Environment::default();
        environment.read("MASTER_ADDR=node0 MASTER_PORT=29500");
        environment.read("init_method=tcp://node1:29501");
        assert_eq!(environment.place().as_deref(), Some("node0:29500"));
    }

    #[test]
    fn one_endpoint_has_several_names() {
        for (one, other, is_same) in [
            ("n1:29500", "n1.cluster.local:29500", true),
            ("n1:29500", "10.0.0.1:29500", true),
            ("n1:29500", "10.0.0.1:29501", false),
            ("n1:29500", "n2:29500", false),
            ("n1:29500", "127.0.0.1:29500", false),
            ("10.0.0.2:29500", "10.0.0.1:29500", false),
        ] {
            assert_eq!(may_be_same(one, other), is_same, "{one} {other}");
        }
    }

    #[test]
    fn what_is_not_set_is_not_told() {
        let mut environment = Environment::default();
        environment.read("MASTER_ADDR=None MASTER_PORT=None LOCAL_RANK=3");
        assert_eq!(environment, Environment::default());
    }
}
