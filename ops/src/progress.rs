//! Progress of work that is measured in bytes; shown on terminals only.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar with rate and time left of `what` is done to `total` bytes; 0 where that is not known yet.
pub fn bytes_bar(what: &str, total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(&format!(
        "{what} {{wide_bar}} {{bytes}}/{{total_bytes}} {{bytes_per_sec}} {{eta}} left"
    ));
    ProgressBar::new(total).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
