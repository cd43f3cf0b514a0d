//! A label and a value in one line, for a README.

use super::canvas::Document;
use super::picture::Theme;
use super::text;
use super::theme::Role;

const HEIGHT: u32 = 20;

/// Room on both sides of a text, pixels.
const PADDING: f64 = 6.0;

/// A text is cut at this width, pixels.
const TEXT_WIDTH_MAX: f64 = 300.0;

/// Text is measured for a wide font and set to the length that is expected of a common one.
const TIGHTENED: f64 = 0.92;

/// A badge of 20 pixels' height: `label` on grey, `value` on blue. A count reads best as
/// [`human`](super::human) gives it. Both are cut with an ellipsis at 300 pixels. The title also says the `range`.
pub fn badge(label: &str, value: &str, range: &str, theme: Theme) -> String {
    let [label, value, range] = [label, value, range].map(text::clean);
    let title = format!("{label}: {value}, {range}");
    let size = Role::BadgeText.text_px();
    let label = text::ellipsised(&label, size, TEXT_WIDTH_MAX);
    let value = text::ellipsised(&value, size, TEXT_WIDTH_MAX);
    let label_length = text::width(&label, size) * TIGHTENED;
    let value_length = text::width(&value, size) * TIGHTENED;
    let label_width = (label_length + 2.0 * PADDING).ceil();
    let value_width = (value_length + 2.0 * PADDING).ceil();
    let width = label_width + value_width;

    let roles = [Role::BadgeLabel, Role::BadgeValue, Role::BadgeText];
    let mut document = Document::begin(
        (width as u32, HEIGHT),
        false,
        (&title, &format!("A badge that says: {title}")),
        (theme, &roles),
    );
    let height = f64::from(HEIGHT);
    document.rect((0.0, 0.0), (width, height), 4.0, Role::BadgeLabel);
    document.rect(
        (label_width, 0.0),
        (value_width, height),
        4.0,
        Role::BadgeValue,
    );
    // The value is round on its right only.
    document.rect((label_width, 0.0), (4.0, height), 0.0, Role::BadgeValue);
    for (text, middle, length) in [
        (&label, label_width / 2.0, label_length),
        (&value, label_width + value_width / 2.0, value_length),
    ] {
        if !text.is_empty() {
            document.text_of_length(text, (middle, 14.0), length, Role::BadgeText);
        }
    }
    document.end()
}
