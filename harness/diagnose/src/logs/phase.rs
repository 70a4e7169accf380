//! Recognises phases: lines that say that something begins or is over, and how that concerns other ranks.

use std::sync::LazyLock;

use regex::{Regex, RegexSet};

use super::pattern::pattern;
use super::rank_list::ranks_of_list;

/// The most bytes of a line about a phase; longer lines are prose.
const SHORT: usize = 240;
/// The most words of a phase in a line such as `X done`; a longer one could be any sentence.
const WORDS: usize = 8;

/// What one line says of a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Whether the phase begins or ends.
    pub(super) edge: Edge,
    /// The name of the phase, without what differs from rank to rank.
    pub(super) name: String,
    /// How it concerns other ranks.
    pub(super) nature: Nature,
}

/// One of the two ends of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    /// The phase begins.
    Begin,
    /// The phase is over.
    End,
}

/// How a phase concerns other ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Nature {
    /// The ranks form the world, in `init_process_group`.
    Init,
    /// A group is made, with these members; empty if they are not written.
    NewGroup(Vec<u32>),
    /// A collective of this call, such as `all_reduce`.
    Collective(&'static str),
    /// A message to or from a rank.
    Message { sends: bool, peer: u32 },
    /// A group is torn down.
    Destroy,
    /// Anything else: by its name it needs no other rank.
    Own,
}

impl Nature {
    /// Returns one side of a message with a rank, and its name: `recv from rank 3`.
    pub(super) fn message(sends: bool, peer: u32) -> (String, Self) {
        let verb = if sends { "send to" } else { "recv from" };
        (format!("{verb} rank {peer}"), Self::Message { sends, peer })
    }
}

/// What every line about a phase has.
static SIGN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?i)before|start|begin|enter|call|creat|about|wait|after|finish|end |ends|end\.|leav|left|exit|complet|pass|done|ok|destroyed|returned|reduce|barrier|gather|broadcast|scatter|success|succeed|initiali|init_process|new_group|still |stuck |>>|<<|\.\.\.|…",
    )
});
static BEGIN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?i)^\W*(?:before|starting|begin(?:ning)?|entering|enter|calling|creating|about to(?: call)?|waiting (?:for|at|in|on)|(?:still|stuck|hang(?:s|ing)) (?:waiting (?:for|at|in|on)|in(?:side)?|at)|\d+(?:\.\d+)? ?(?:s|sec|seconds|min|minutes|h) (?:in(?:side)?|waiting (?:at|in)))\b[:\s]+(.+)$",
    )
});
static END: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?i)^\W*(?:after|finished|finishing|end of|leaving|left|exiting|exited|completed|passed|done with|done|(?:successfully )?(?:created|initiali[sz]ed))\b[:\s]+(.+)$",
    )
});
static OVER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?i)^\W*(.+?)[\s.…:-]+(?:is |are |was |were |has been |have been )?(?:successfully )?(?:(?:done|finished|completed?|ok|created|initiali[sz]ed|destroyed|returned|succeeded|passed)(?: successfully)?[.!]*|returned, (?:rank|after|in|took|total|status|code)\b.{0,60})$",
    )
});
/// A collective that a line ends with, behind what led to it: `forward done, grad all-reduce`, `waiting for metadata (barrier)`.
static LAST: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?i)(?:,|->|=>|\() ?((?:(?:in|enter(?:ing)?|wait(?:ing)? (?:for|in|at)(?: (?:first|next|last)(?: batch| step)?)?|now|then|grad(?:ient)?s?|[tdpces]p|world) )*(?:all[-_ ]?reduce|all[-_ ]?gather|reduce[-_ ]?scatter|all[-_ ]?to[-_ ]?all|broadcast|barrier)(?: (?:of|on|for|over|from) [\w -]{1,40})?)\)?[ .…]*$",
    )
});
/// A collective that a line begins with, and what it is of: `all_reduce eval metrics`.
static FIRST: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"^((?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|barrier)(?: (?:of|on|for|over|before|after))? [a-z_]+(?: [a-z_]+){0,2})(?: \w+=\S+)*$",
    )
});
/// Words that make such a line a report of what is over.
const REPORTS: &[&str] = &[
    " took",
    " time",
    " done",
    " ok",
    " bandwidth",
    " latency",
    " fail",
    " finish",
    " complete",
    " error",
    " enabled",
    " disabled",
    " is ",
    " was ",
    " has ",
    " will ",
    " skipped",
];
/// A call that forms the world, by its name alone or with its arguments.
static INIT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"^(?:pid[ =:]*\d+ |[->=]+ |[\w.]+: )?((?:torch\.)?(?:dist(?:ributed)?\.)?init_process_group)(?:(?: (?:nccl|gloo|mpi|hccl|xccl|(?:env|tcp|file)://\S*|\w+=\S+))+|\(.*\)|:? (?:backend|init_method|method|url|rank|world|master|timeout)\w*=\S.*|:? ?)$",
    )
});
/// What says how many of all ranks have come.
static COUNTED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?i)\bwaiting for (?:all |other |the )*(?:workers|clients|ranks|peers|nodes)\b.*?\d+ ?(?:/|of) ?\d+",
    )
});
/// The begin or the end of a collective, by arrows: `step 18 >> all_reduce group=tp`.
static ARROW: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?i)(?:^|\s)(>>+|<<+) ?((?:all[-_ ]?reduce|all[-_ ]?gather|reduce[-_ ]?scatter|all[-_ ]?to[-_ ]?all|broadcast|barrier)\b.*)$",
    )
});
/// A call that makes a group, with its members.
static CALL: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"^\W*((?:torch\.)?(?:dist(?:ributed)?\.)?new_group\b.*\[[\d, ]+\])"));
/// `Load weight begin.`, `Load weight end. type=...`, as SGLang writes.
static HALF: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"^(\w[\w ]*?) (begin|end)s?\.(?: .*)?$"));

/// A place at the end of a line, after at least two blanks.
static LOCATION: LazyLock<Option<Regex>> = LazyLock::new(|| pattern(r"\s{2,}[\w./-]+\.py:\d+$"));
/// The call that tears down all groups, by its name alone.
static DESTROY: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"^(?i:rank \d+[:,]? )?(?:[\w ]+: |(?:[\w ]+, )?(?i:calling|entering|before) )?(?:(?:torch\.)?dist(?:ributed)?\.)?destroy_process_group\(\)(?: (?:enter(?:ed|ing)?|begins?|called|start(?:s|ed)?))?\W*$",
    )
});
/// What says that all groups are torn down.
static DESTROYED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?i)^(?:rank \d+[:,]? )?(?:(?:the |all )?process[ _]groups? (?:is |are |was |has been )?destroyed|destroyed (?:the |all )?process[ _]groups?)\b[.! ]*$|^(?:[\w ]+: )?destroy_process_group(?:\(\))? (?:left|done|over|ended|exited|finished|returned)\b.*$",
    )
});

/// The writer that a message names before it says anything: `[node-a] rank 0: `, and a logger's name, `train.setup rank=0 `.
static WRITER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(r"^(?:\[[\w.-]{1,40}\] (?i:rank)[ _=]?\d+: |[a-z_]\w*(?:\.\w+)+ rank[ =]\d+:? )")
});

/// `Initializing X` without dots, if ranks wait for each other in X.
static INITIALIZING: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"(?i)^\W*(initiali[sz]ing [^,;:=]+)$"));
static UNDERWAY: LazyLock<Option<Regex>> = LazyLock::new(|| pattern(r"^\W*(.+?)\s*(?:\.\.\.|…)$"));

/// Matches words that name one rank, host or device, and are no part of a phase's name.
static OWN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?:\b(?:on|by|at|for|from)\s+)?\b(?:local[ _])?(?:rank|cuda|gpu|device|pid|process|host|node)\b[ :=#]*\d+",
    )
});
static REST: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(r"(?:\s+\w+=|\s*(?:[,;(\[{=|]|: | - |\bwith\b|\btook\b|\bin \d|\bafter \d)).*$")
});

/// Patterns of names, and how such phases concern other ranks; the first that matches counts.
static NATURES: LazyLock<Option<(RegexSet, Vec<Nature>)>> = LazyLock::new(|| {
    let all = [
        (
            r"init_process_group|init(?:ialis|ializ)?(?:e|ing|ation)?(?:[ _]of)?[ _](?:the[ _])?(?:torch[._ ])?(?:dist|process[ _]group)|init torch distributed|torchbackend|rendezvous|^(?:dist(?:ributed)?|process[ _]group)[ _]init",
            Nature::Init,
        ),
        (
            r"(?:destroy(?:ing)?|shut(?:ting)?[ _]down)[ _](?:the[ _])?process[ _]group",
            Nature::Destroy,
        ),
        (
            r"new_group|new_subgroups|creat\w*[ _](?:the[ _])?(?:process[ _])?groups?\b|_pg\b|\bgroups?$|model[ _]parallel|device[ _]mesh",
            Nature::NewGroup(Vec::new()),
        ),
        (r"barrier|wait_for_everyone", Nature::Collective("barrier")),
        (r"^quorum$", Nature::Collective("quorum")),
        (r"all[-_ ]?to[-_ ]?all", Nature::Collective("all_to_all")),
        (r"reduce[-_ ]?scatter", Nature::Collective("reduce_scatter")),
        (r"all[-_ ]?gather", Nature::Collective("all_gather")),
        (r"all[-_ ]?reduce", Nature::Collective("all_reduce")),
        (r"broadcast", Nature::Collective("broadcast")),
        (r"\bgather\b", Nature::Collective("gather")),
        (r"\bscatter\b", Nature::Collective("scatter")),
        (r"\breduce\b", Nature::Collective("reduce")),
    ];
    let (texts, natures): (Vec<&str>, Vec<Nature>) = all.into_iter().unzip();
    Some((RegexSet::new(texts).ok()?, natures))
});
static MESSAGE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"\bi?(?P<verb>send|recv|receive)(?:ing)?\b(?:.*?\b(?:to|from|dst|src)\b)?[ =:]*(?:rank[ =:]*)?(?P<peer>\d+)",
    )
});
static MEMBERS: LazyLock<Option<Regex>> = LazyLock::new(|| pattern(r"\[([\d, ]+)\]"));

/// Returns what a line says of a phase; `None` if it is not about one.
pub(super) fn mark(text: &str) -> Option<Mark> {
    let text = without_writer(without_location(text.trim()));
    // The second line of an error of Gloo's: `Timed out waiting 600000ms for send operation to complete`.
    if text.is_empty() || text.len() > SHORT || text.contains("imed out waiting ") {
        return None;
    }
    if let Some(mark) = teardown(text) {
        return Some(mark);
    }
    if !SIGN.as_ref().is_some_and(|sign| sign.is_match(text)) {
        return None;
    }
    // It is in what it waits for since before.
    if text.contains("aiting for ") && COUNTED.as_ref()?.is_match(text) {
        return None;
    }
    let what = |pattern: &LazyLock<Option<Regex>>| {
        let found = pattern.as_ref()?.captures(text)?;
        found.get(1).map(|what| what.as_str())
    };
    let brief = |what: &&str| what.split_whitespace().count() <= WORDS;
    let half = HALF.as_ref().and_then(|half| half.captures(text));
    let half = half.and_then(|half| Some((half.get(1)?.as_str(), &half[2] == "begin")));
    let arrow = ARROW.as_ref().filter(|_| text.contains(['>', '<']));
    let arrow = arrow.and_then(|arrow| arrow.captures(text));
    let half = half.or_else(|| {
        let arrow = arrow.as_ref()?;
        Some((arrow.get(2)?.as_str(), arrow[1].starts_with('>')))
    });
    let (edge, phase) = if let Some((phase, begins)) = half {
        (if begins { Edge::Begin } else { Edge::End }, phase)
    } else if let Some(phase) = what(&BEGIN) {
        // `Starting X ... done`, in one line.
        match over(phase) {
            Some(inner) => (Edge::End, inner),
            None => (Edge::Begin, phase),
        }
    } else if let Some(phase) = what(&END) {
        (Edge::End, phase)
    } else if let Some(phase) = over(text).filter(brief) {
        (Edge::End, phase)
    } else if let Some(phase) =
        what(&FIRST).filter(|_| !REPORTS.iter().any(|word| text.contains(word)))
    {
        (Edge::Begin, phase)
    } else if let Some(phase) = what(&LAST).filter(|_| !text.starts_with("File ")) {
        (Edge::Begin, phase)
    } else if let Some(phase) = what(&UNDERWAY).filter(brief) {
        (Edge::Begin, phase)
    } else if let Some(phase) = what(&CALL).or_else(|| what(&INIT)) {
        (Edge::Begin, phase)
    } else if let Some(phase) = what(&INITIALIZING).filter(brief) {
        let (_, nature) = named(phase)?;
        if !nature.waits() {
            return None;
        }
        (Edge::Begin, phase)
    } else {
        return None;
    };
    let (name, nature) = named(phase)?;
    // `Created 3 files`: no phase that another rank is in.
    let has_made = text.starts_with("Created ") || text.starts_with("created ");
    if edge == Edge::End && nature == Nature::Own && has_made {
        return None;
    }
    Some(Mark { edge, name, nature })
}

/// Returns a line without the place in the program that `rich` writes at its end.
fn without_location(text: &str) -> &str {
    let location = || {
        let found = LOCATION.as_ref()?.find(text)?;
        Some(&text[..found.start()])
    };
    let has_one = text.contains(".py:") && text.ends_with(|last: char| last.is_ascii_digit());
    has_one.then(location).flatten().unwrap_or(text)
}

/// Returns a message without the writer that it names first.
fn without_writer(text: &str) -> &str {
    let writer = || WRITER.as_ref()?.find(text);
    let may_be_one = text.starts_with('[') || text.contains(" rank");
    let found = may_be_one.then(writer).flatten();
    found.map_or(text, |found| &text[found.end()..])
}

/// Returns what a line says of the call that tears down all groups, if it names only that.
fn teardown(text: &str) -> Option<Mark> {
    if !text.contains("rocess") || !text.contains("estroy") {
        return None;
    }
    let is = |pattern: &LazyLock<Option<Regex>>| {
        pattern
            .as_ref()
            .is_some_and(|pattern| pattern.is_match(text))
    };
    let edge = if is(&DESTROYED) {
        Edge::End
    } else if is(&DESTROY) {
        Edge::Begin
    } else {
        return None;
    };
    let (name, nature) = ("destroy_process_group".to_owned(), Nature::Destroy);
    Some(Mark { edge, name, nature })
}

fn over(text: &str) -> Option<&str> {
    let found = OVER.as_ref()?.captures(text)?;
    found.get(1).map(|what| what.as_str())
}

/// Returns the name of a phase, and how it concerns other ranks; `None` if there is no name in the text.
fn named(phase: &str) -> Option<(String, Nature)> {
    let lower = phase.to_lowercase();
    let message = MESSAGE.as_ref().and_then(|message| {
        let found = message.captures(&lower)?;
        Some(Nature::Message {
            sends: &found["verb"] == "send",
            peer: found["peer"].parse().ok()?,
        })
    });
    let verbs = [
        "enter ",
        "entering ",
        "in ",
        "now ",
        "waiting for ",
        "waiting in ",
    ];
    let verb = verbs.iter().find_map(|verb| lower.strip_prefix(verb));
    let mut name = verb.unwrap_or(&lower).to_owned();
    if message.is_none() {
        for cut in [&OWN, &REST] {
            if let Some(cut) = cut.as_ref() {
                name = cut.replace(&name, "").into_owned();
            }
        }
    }
    let name = name
        .trim_matches(|c: char| !c.is_alphanumeric())
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    // `starting up` names no phase.
    if !name.chars().any(char::is_alphabetic) || name == "up" {
        return None;
    }
    let known = || {
        let (texts, natures) = NATURES.as_ref()?;
        let first = texts.matches(&name).iter().next()?;
        Some(match natures.get(first)? {
            Nature::NewGroup(_) => Nature::NewGroup(members(&lower)),
            other => other.clone(),
        })
    };
    // A long sentence may name a call without being about it.
    let is_brief = name.split_whitespace().count() <= WORDS;
    let nature = known().filter(|_| is_brief).or(message);
    Some((name, nature.unwrap_or(Nature::Own)))
}

fn members(text: &str) -> Vec<u32> {
    let found = MEMBERS.as_ref().and_then(|members| members.captures(text));
    let Some(found) = found else {
        return Vec::new();
    };
    ranks_of_list(&found[1]).collect()
}

impl Mark {
    /// Returns true if this one has the name of the phase that was begun.
    pub(super) fn names(&self, begun: &str) -> bool {
        self.name.starts_with(begun) || begun.starts_with(&self.name)
    }

    /// Returns true if this one is of the kind of the phase that was begun.
    pub(super) fn is_like(&self, nature: &Nature) -> bool {
        self.nature == *nature && self.nature != Nature::Own
    }
}

impl Nature {
    /// Returns true if a rank that is in such a phase waits for other ranks.
    pub(super) fn waits(&self) -> bool {
        match self {
            Self::Init | Self::NewGroup(_) | Self::Collective(_) | Self::Message { .. } => true,
            Self::Destroy | Self::Own => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_by_its_name_begins_and_counts_of_ranks_say_nothing_new() {
        let edge = |text: &str| mark(text).map(|mark| (mark.edge, mark.nature));
        for text in [
            "init_process_group('gloo')",
            "boot: init_process_group(nccl, tcp://a:1, timeout=9s)",
            "pid 31 init_process_group world_size=8",
            "[n1] rank 2: init_process_group backend=gloo",
            "still in init_process_group",
            "3 min in init_process_group",
        ] {
            assert_eq!(edge(text), Some((Edge::Begin, Nature::Init)), "{text}");
        }
        let reduces = Nature::Collective("all_reduce");
        for (text, expected) in [
            ("it 18 >> all_reduce group=tp", Edge::Begin),
            ("<< all_reduce #41 ok", Edge::End),
        ] {
            assert_eq!(edge(text), Some((expected, reduces.clone())), "{text}");
        }
        for text in [
            "init_process_group took 3 s",
            "60s waiting for workers: 7/8",
            "waiting for all ranks, store has 3 of 4",
        ] {
            assert_eq!(edge(text), None, "{text}");
        }
    }

    #[test]
    fn every_pattern_is_a_pattern() {
        let alone = [
            &SIGN,
            &BEGIN,
            &END,
            &OVER,
            &LAST,
            &CALL,
            &INIT,
            &COUNTED,
            &ARROW,
            &LOCATION,
            &DESTROY,
            &DESTROYED,
            &HALF,
            &INITIALIZING,
            &UNDERWAY,
            &WRITER,
            &OWN,
            &REST,
            &MESSAGE,
            &MEMBERS,
        ];
        assert!(alone.iter().all(|pattern| pattern.is_some()));
        assert!(NATURES.is_some());
    }

    #[test]
    fn lines_about_phases_are_understood() {
        use Edge::{Begin, End};
        for (text, edge, name, nature) in [
            (
                "Before all_reduce",
                Begin,
                "all_reduce",
                Nature::Collective("all_reduce"),
            ),
            (
                "MPI_Finalize returned, rank 0 total wall 53.3 s",
                End,
                "mpi_finalize",
                Nature::Own,
            ),
            (
                "After AllReduce took 3.2 s",
                End,
                "allreduce",
                Nature::Collective("all_reduce"),
            ),
            (
                "entering barrier on rank 3",
                Begin,
                "barrier",
                Nature::Collective("barrier"),
            ),
            (
                "Before init_process_group (env)",
                Begin,
                "init_process_group",
                Nature::Init,
            ),
            (
                "Initializing distributed ... done",
                End,
                "initializing distributed",
                Nature::Init,
            ),
            (
                "init_process_group completed successfully",
                End,
                "init_process_group",
                Nature::Init,
            ),
            (
                "Init torch distributed begin.",
                Begin,
                "init torch distributed",
                Nature::Init,
            ),
            (
                "Load weight end. type=LlamaForCausalLM, avail mem=120.1 GB",
                End,
                "load weight",
                Nature::Own,
            ),
            (
                "Creating CFG group",
                Begin,
                "cfg group",
                Nature::NewGroup(vec![]),
            ),
            (
                "CFG group created",
                End,
                "cfg group",
                Nature::NewGroup(vec![]),
            ),
            (
                "Before set_seq_parallel_pg",
                Begin,
                "set_seq_parallel_pg",
                Nature::NewGroup(vec![]),
            ),
            (
                "Initializing model parallel",
                Begin,
                "initializing model parallel",
                Nature::NewGroup(vec![]),
            ),
            ("Starting epoch 3", Begin, "epoch 3", Nature::Own),
            ("Finished epoch 3, loss=0.1", End, "epoch 3", Nature::Own),
            ("loading data...", Begin, "loading data", Nature::Own),
            (
                "Before new_group([0, 1])",
                Begin,
                "new_group",
                Nature::NewGroup(vec![0, 1]),
            ),
            (
                "new_group edp0 [0, 2]",
                Begin,
                "new_group edp0",
                Nature::NewGroup(vec![0, 2]),
            ),
            (
                "Before send to rank 1",
                Begin,
                "send to rank 1",
                Nature::Message {
                    sends: true,
                    peer: 1,
                },
            ),
            (
                "before destroy_process_group",
                Begin,
                "destroy_process_group",
                Nature::Destroy,
            ),
        ] {
            let expected = Mark {
                edge,
                name: name.into(),
                nature,
            };
            assert_eq!(mark(text), Some(expected), "{text}");
        }
        for text in [
            "loss 0.1",
            "the checkpoint of yesterday was not found and so the training has to be done",
            "Rank 3 failed to pass monitoredBarrier in 10000 ms",
            "before",
            "Created 3 files",
            "Initializing the tokenizer",
        ] {
            assert_eq!(mark(text), None, "{text}");
        }
    }

    #[test]
    fn the_call_that_tears_down_is_known_by_its_name() {
        let edge = |text: &str| mark(text).map(|mark| (mark.edge, mark.nature));
        let begin = Some((Edge::Begin, Nature::Destroy));
        let end = Some((Edge::End, Nature::Destroy));
        assert_eq!(
            edge("rank 2 destroy_process_group()      trainer.py:140"),
            begin
        );
        assert_eq!(
            edge("rank 2 process group destroyed      trainer.py:140"),
            end
        );
        assert_eq!(edge("Destroyed process group."), end);
        assert_eq!(
            edge("WARNING: destroy_process_group() was not called before program exit"),
            None
        );
    }

    #[test]
    fn the_second_line_of_an_error_is_no_phase() {
        let text = "[../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:133] Timed out waiting 600000ms for send operation to complete";
        assert_eq!(mark(text), None);
    }
}
