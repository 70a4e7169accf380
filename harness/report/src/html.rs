//! `report.html`: the matrix, as one file that opens from disk, without a network and without a server.
//!
//! Rows are requirements, grouped by area, with the cases under each; columns are platform × backend × world size; a
//! cell is the worst status with its count. A click tells every unexpected check in full, draws what each rank did,
//! and counts the rest.
//!
//! Every string of a run is untrusted. It is cleaned, embedded as JSON in which no `<` is left, and put on the page as
//! text, never as markup; links are made only for web addresses and for files of the run. The page's policy forbids it
//! to load or send anything.
//!
//! The page stays small because passing checks are counted and their parameters listed, not stored one by one.

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

/// Renders the page with what the runs before say.
#[must_use]
pub fn render_with<C: CheckSet>(results: &Results<C>, trend: Option<&Trend>) -> String {
    let data = serde_json::to_string(&data::Data::of(results, trend))
        .expect("strings, numbers and lists of them are JSON")
        .replace('<', "\\u003c");
    let headline = Headline::of(results).sentence;
    let name = one_line(&results.run.name);
    let mut page = String::with_capacity(data.len() + SCRIPT.len() + STYLE.len() + PAGE.len());
    // One pass over the template alone: what is filled in is never looked at again.
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
