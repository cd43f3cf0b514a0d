//! Progress of work that is measured in bytes; shown on terminals only.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar with rate and time left of `what` is done to some bytes, whose number is set once it is known.
pub fn bytes_bar(what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta} left",
    );
    ProgressBar::no_length()
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        .with_message(what)
}

/// Begins the bar anew for what is done next.
pub fn next(bar: &ProgressBar, what: &'static str) {
    bar.set_message(what);
    bar.unset_length();
    bar.reset();
}
