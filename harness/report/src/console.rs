//! Shows a run on the terminal: progress, failures as they occur, a summary at the end.
//!
//! [`Console`] takes records as they come; [`summarise`] takes the results of the ended run. Both write to streams of the
//! caller. Text is styled with ANSI sequences, so pass an [`anstream::AutoStream`], which removes them for `NO_COLOR` and
//! for streams that are not terminals. Text from ranks is cleaned before it is written, so it cannot control the terminal.

mod summary;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::details::{DetailLine, details, summary_line};
use super::status_counts::StatusCounts;
use super::text::{clip, counted, grouped, lasting, one_line};
use allranks_model::names::CaseId;
use allranks_model::record::{CheckRecord, Counts, Record, RunRecord};
use allranks_model::status::Status;

pub use summary::summarise;

/// The number of failures that are printed in full. Later ones get one line each; the files have all of them.
const FULL_DETAILS: u64 = 50;
/// The time between two lines of progress, if there is no bar.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// How progress is shown.
pub enum Progress<'a> {
    /// A bar that redraws itself, for a terminal.
    Bar(ProgressDrawTarget),
    /// A plain line about every ten seconds.
    Lines(Box<dyn Write + Send + 'a>),
    /// No progress is shown.
    None,
}

impl fmt::Debug for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bar(_) => "Bar",
            Self::Lines(_) => "Lines",
            Self::None => "None",
        })
    }
}

/// Prints the records of a run as they occur, and its progress.
#[derive(Debug)]
pub struct Console<'a, W: Write> {
    out: W,
    progress: Progress<'a>,
    bar: ProgressBar,
    titles: BTreeMap<CaseId, String>,
    run: Option<RunRecord>,
    done: Counts,
    counts: StatusCounts,
    stories: u64,
    began: Instant,
    last_line: Instant,
}

impl<'a, W: Write> Console<'a, W> {
    /// Creates a console that writes failures to `out`, and progress where `progress` says.
    #[must_use]
    pub fn new(out: W, mut progress: Progress<'a>) -> Self {
        let target = match &mut progress {
            Progress::Bar(target) => std::mem::replace(target, ProgressDrawTarget::hidden()),
            Progress::Lines(_) | Progress::None => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(None, target);
        let now = Instant::now();
        Self {
            out,
            progress,
            bar,
            titles: BTreeMap::new(),
            run: None,
            done: Counts::default(),
            counts: StatusCounts::default(),
            stories: 0,
            began: now,
            last_line: now,
        }
    }

    /// Sets the titles of cases, which are printed with failures.
    #[must_use]
    pub fn titles(mut self, titles: impl IntoIterator<Item = (CaseId, String)>) -> Self {
        self.titles.extend(titles);
        self
    }

    /// Prints a record.
    ///
    /// # Errors
    /// A stream could not be written to.
    pub fn record(&mut self, record: &Record) -> io::Result<()> {
        self.record_at(Instant::now(), record)
    }

    /// Updates the progress. Call it from time to time, also when no record comes.
    ///
    /// # Errors
    /// A stream could not be written to.
    pub fn tick(&mut self) -> io::Result<()> {
        self.show_progress(Instant::now())
    }

    /// Writes a note, such as what the run waits for.
    ///
    /// # Errors
    /// The stream could not be written to.
    pub fn note(&mut self, text: &str) -> io::Result<()> {
        self.write_dimmed(&one_line(text))
    }

    /// Removes the progress bar, so that the summary can be written.
    pub fn finish(&mut self) {
        self.bar.finish_and_clear();
    }

    fn record_at(&mut self, now: Instant, record: &Record) -> io::Result<()> {
        match record {
            Record::Run(run) => {
                self.begin(now, run);
                return Ok(());
            }
            Record::Scenario(scenario) => {
                self.done.scenarios += 1;
                if let Some(failure) = &scenario.failure {
                    let text = format!("world of {}: {}", scenario.id, one_line(failure));
                    self.write_dimmed(&clip(&one_line(&text), 500))?;
                }
            }
            Record::Check(check) => {
                self.done.checks += 1;
                self.counts.add(check.status());
                if check.status().is_failing() {
                    self.write_failure(check)?;
                }
            }
            Record::End(_) => return Ok(()),
        }
        self.show_progress(now)
    }

    fn begin(&mut self, now: Instant, run: &RunRecord) {
        self.bar.set_length(run.planned.checks);
        // A template is parsed at run time; a test parses this one.
        if let Ok(style) = bar_style() {
            self.bar.set_style(style);
        }
        if !self.bar.is_hidden() {
            self.bar.enable_steady_tick(Duration::from_millis(250));
        }
        self.run = Some(run.clone());
        self.began = now;
        self.last_line = now;
    }

    /// Writes a dimmed line.
    fn write_dimmed(&mut self, text: &str) -> io::Result<()> {
        let out = &mut self.out;
        self.bar.suspend(|| {
            writeln!(out, "{DIM}note{DIM:#} {text}")?;
            out.flush()
        })
    }

    /// Writes a failing check, in full or as one line.
    fn write_failure(&mut self, check: &CheckRecord) -> io::Result<()> {
        self.stories += 1;
        let title = self.titles.get(&check.case).map_or("", String::as_str);
        let lines = match &self.run {
            Some(run) if self.stories <= FULL_DETAILS => details(run, None, check),
            _ => Vec::new(),
        };
        let logs = log_folder(check);
        let out = &mut self.out;
        let last_in_full = self.stories == FULL_DETAILS;
        self.bar.suspend(|| {
            write_heading(out, check, title)?;
            write_lines(out, &lines)?;
            if !lines.is_empty() {
                write_line(out, "logs", &logs)?;
                writeln!(out)?;
            }
            if last_in_full {
                writeln!(
                    out,
                    "{DIM}note{DIM:#} {FULL_DETAILS} failures printed in full; further ones get one line each\n"
                )?;
            }
            out.flush()
        })
    }

    fn show_progress(&mut self, now: Instant) -> io::Result<()> {
        let failing = self.counts.failing();
        match &mut self.progress {
            Progress::Bar(_) => {
                self.bar.set_position(self.done.checks);
                self.bar.set_message(match failing {
                    0 => String::new(),
                    _ => format!("{} unexpected", grouped(failing)),
                });
                Ok(())
            }
            Progress::Lines(lines) => {
                if now.duration_since(self.last_line) < LINE_EVERY {
                    return Ok(());
                }
                self.last_line = now;
                let planned = self.run.as_ref().map(|run| run.planned).unwrap_or_default();
                let elapsed = now.duration_since(self.began).as_millis();
                writeln!(
                    lines,
                    "{}: {} of {}, {} of {}, {} unexpected",
                    lasting(u64::try_from(elapsed).unwrap_or(u64::MAX)),
                    grouped(self.done.scenarios),
                    counted(planned.scenarios, "scenario"),
                    grouped(self.done.checks),
                    counted(planned.checks, "check"),
                    grouped(failing)
                )?;
                lines.flush()
            }
            Progress::None => Ok(()),
        }
    }
}

fn bar_style() -> Result<ProgressStyle, indicatif::style::TemplateError> {
    let template = "{elapsed_precise} {wide_bar} {pos}/{len} {msg}";
    Ok(ProgressStyle::with_template(template)?.progress_chars("█▉▊▋▌▍▎▏ "))
}

const DIM: Style = Style::new().dimmed();

/// Returns the style of a status. The word beside it says the same, so nothing depends on colour.
fn style(status: Status) -> Style {
    let colour = match status {
        Status::Regression | Status::HarnessError => AnsiColor::Red,
        Status::UnexpectedPass => AnsiColor::Magenta,
        Status::NotRun | Status::Waived | Status::KnownFailure => AnsiColor::Yellow,
        Status::Refused => AnsiColor::Cyan,
        Status::Passed => AnsiColor::Green,
    };
    Style::new().fg_color(Some(colour.into())).bold()
}

fn write_heading(out: &mut impl Write, check: &CheckRecord, title: &str) -> io::Result<()> {
    let status = check.status();
    let style = style(status);
    let id = one_line(check.id.as_str());
    let (symbol, word) = (status.symbol(), status.word());
    writeln!(out, "{style}{symbol} {word}{style:#} {id}")?;
    // The id comes before the title of the case, because a narrow terminal may cut the line.
    writeln!(out, "    {}", summary_line(check))?;
    match title.is_empty() {
        true => Ok(()),
        false => writeln!(out, "    {DIM}{}{DIM:#}", one_line(title)),
    }
}

/// Writes the details below a heading, without the first line, which is in the heading.
fn write_lines(out: &mut impl Write, lines: &[DetailLine]) -> io::Result<()> {
    for line in lines.iter().filter(|line| line.label != "what") {
        write_line(out, &line.label, &line.text)?;
    }
    Ok(())
}

fn write_line(out: &mut impl Write, label: &str, text: &str) -> io::Result<()> {
    writeln!(out, "    {DIM}{label:>9}{DIM:#}  {text}")
}

/// Returns the folder of a check's logs, as the runner names it: the scenario's id, and the round if it is not the first.
fn log_folder(check: &CheckRecord) -> String {
    let scenario = one_line(check.scenario.as_str()).replace('/', "_");
    let round = check.params.get("round").filter(|round| *round != "1");
    let round = round.map_or_else(String::new, |round| format!(".round{}", one_line(round)));
    format!("logs/{scenario}{round}/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_run::sample_run;

    #[test]
    fn a_line_of_progress_comes_every_ten_seconds_and_the_bar_can_be_drawn() {
        let run = RunRecord {
            planned: Counts {
                scenarios: 4,
                checks: 1_200,
            },
            ..sample_run()
        };
        let mut lines = Vec::new();
        let mut console = Console::new(Vec::new(), Progress::Lines(Box::new(&mut lines)));
        let start = Instant::now();
        console.record_at(start, &Record::Run(run)).unwrap();
        for second in 1..=25 {
            console
                .show_progress(start + Duration::from_secs(second))
                .unwrap();
        }
        drop(console);
        assert_eq!(
            String::from_utf8(lines).unwrap(),
            "10.0 s: 0 of 4 scenarios, 0 of 1,200 checks, 0 unexpected\n\
             20.0 s: 0 of 4 scenarios, 0 of 1,200 checks, 0 unexpected\n"
        );
        assert!(bar_style().is_ok());
    }
}
