//! The renderers of results, over invented results: see [`sample`].

mod console;
mod html;
mod jsonl;
mod junit;
mod markdown;
mod merge;
mod packed;
mod sample;
mod sides;
mod trend;
