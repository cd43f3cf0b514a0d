//! Progress of work that is measured in bytes; shown on terminals only.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar with rate and time left of `what` is done to `total` bytes; 0 where that is not known yet. What is done may
/// change on the way: it is the bar's message.
pub fn bytes_bar(what: &'static str, total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta} left",
    );
    ProgressBar::new(total)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        .with_message(what)
}
