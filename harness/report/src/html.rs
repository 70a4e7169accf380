//! Renders `report.html`: the matrix, as one file that needs no network and no server.
//!
//! Rows are requirements, grouped by area, with the cases under each; columns are platform × backend × world size; a
//! cell is the worst status with its count. A click shows every unexpected check in full, draws the timeline of each
//! rank, and counts the other checks.
//!
//! Every string of a run is untrusted. It is cleaned, embedded as JSON without any `<`, and inserted into the page as text,
//! never as markup. Links are made only for web addresses and for files of the run. The page's content security policy
//! forbids loading and sending anything.
//!
//! To keep the page small, passing checks are counted and their parameters listed, instead of storing each check.

mod data;
mod timeline;
mod trend;

use super::check_set::CheckSet;
use super::results::Results;
use super::status_counts::Headline;
use super::text::one_line;
use super::trend::Trend;

const PAGE: &str = include_str!("assets/report.html");
const STYLE: &str = include_str!("assets/report.css");
const SCRIPT: &str = include_str!("assets/report.js");

/// Renders the HTML report of a run.
#[must_use]
pub fn render<C: CheckSet>(results: &Results<C>) -> String {
    render_with(results, None)
}

/// Renders the HTML report of a run with the trend over earlier runs.
#[must_use]
pub fn render_with<C: CheckSet>(results: &Results<C>, trend: Option<&Trend>) -> String {
    let data = serde_json::to_string(&data::Data::of(results, trend))
        .expect("strings, numbers and lists of them are JSON")
        .replace('<', "\\u003c");
    let headline = Headline::of(results).sentence;
    let name = one_line(&results.run.name);
    let mut page = String::with_capacity(data.len() + SCRIPT.len() + STYLE.len() + PAGE.len());
    // One pass over the template, so that inserted text is never replaced again.
    for (index, part) in PAGE.split("%%").enumerate() {
        match (index % 2, part) {
            (0, text) => page.push_str(text),
            (_, "style") => page.push_str(STYLE),
            (_, "script") => page.push_str(SCRIPT),
            (_, "data") => page.push_str(&data),
            (_, "name") => page.push_str(&escaped(&name)),
            (_, "headline") => page.push_str(&escaped(&headline)),
            (_, other) => unreachable!("the template asks for {other}"),
        }
    }
    page
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
