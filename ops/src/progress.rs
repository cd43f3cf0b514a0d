//! Progress bars of long work, shown on terminals only.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar in bytes with rate and time left; `what` says what is done. The caller sets its length once it is known.
pub(crate) fn bytes_bar(what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta} left",
    );
    ProgressBar::no_length()
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        .with_message(what)
}

/// A bar in `things` with time left; `what` says what is done.
pub(crate) fn count_bar(what: &'static str, things: &'static str, count: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{msg} {wide_bar} {human_pos}/{human_len} {prefix}, {eta} left",
    );
    ProgressBar::new(count)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        .with_message(what)
        .with_prefix(things)
}

/// Shows on `bar` how much is done, of how much.
pub(crate) fn on(bar: &ProgressBar) -> impl Fn(u64, u64) + Sync {
    |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    }
}

/// Starts the bar again for the next work.
pub(crate) fn next(bar: &ProgressBar, what: &'static str) {
    bar.set_message(what);
    bar.unset_length();
    bar.reset();
}
