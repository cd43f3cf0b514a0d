//! The look of every part of a picture, in a light and in a dark theme.

use std::fmt::Write as _;

use super::picture::Theme;

/// A part of a picture. Its class in the style sheet decides how it looks, so no colour is written where it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Role {
    Card,
    Title,
    Muted,
    Label,
    Value,
    Empty,
    Grid,
    Axis,
    Bar,
    BarProvisional,
    BarOther,
    Area,
    AreaProvisional,
    Line,
    LineProvisional,
    Before,
    BarBefore,
    Gap,
    BadgeLabel,
    BadgeValue,
    BadgeText,
    BarNotFinal,
    Hatch,
    Line1,
    Line2,
    Line3,
    Line4,
    Line5,
    Line6,
    Line7,
    Line8,
    Heat1,
    Heat2,
    Heat3,
    Heat4,
    Heat5,
}

/// How a role looks.
struct Look {
    /// Its class.
    class: &'static str,
    /// Whether the colours below fill it, or stroke it.
    paint: Paint,
    light: &'static str,
    dark: &'static str,
    /// Declarations that both themes share.
    shared: &'static str,
    /// Pixels of its text; 0 if it is none.
    text_px: u32,
}

enum Paint {
    Fill,
    Stroke,
    /// Fills with the first colour, and strokes with the second.
    Both,
}

/// In the order of [`Role`].
const LOOKS: [Look; 36] = [
    both("k", "#ffffff #e2e8f0", "#0f172a #26324a", ""),
    text("t", "#0f172a", "#f1f5f9", 16, "font-weight:600"),
    text("m", "#475569", "#a3b1c6", 12, ""),
    text("l", "#475569", "#a3b1c6", 11, ""),
    text("v", "#1e293b", "#e2e8f0", 11, ""),
    text("e", "#475569", "#a3b1c6", 14, ""),
    stroke("g", "#e8edf3", "#223049", ""),
    stroke("x", "#94a3b8", "#51617c", ""),
    fill("b", "#2563eb", "#5b9bf8"),
    both("bp", "#dbeafe #2563eb", "#1b2f52 #5b9bf8", DASHES),
    fill("bo", "#a8b3c3", "#5a6881"),
    fill("a", "#cfe0fd", "#1d3a6b"),
    fill("ap", "#edf4ff", "#16243f"),
    stroke("n", "#2563eb", "#5b9bf8", JOINED),
    stroke("np", "#2563eb", "#5b9bf8", JOINED_DASHES),
    stroke("w", "#64748b", "#94a3b8", THIN_DASHES),
    fill("bw", "#e2e8f0", "#26324a"),
    fill("ga", "#f1f5f9", "#18233d"),
    fill("bl", "#475569", "#334155"),
    fill("bv", "#2563eb", "#1d4ed8"),
    text("bt", "#ffffff", "#f8fafc", 11, ""),
    both("bn", "#dbeafe #2563eb", "#1b2f52 #5b9bf8", ""),
    stroke("h", "#2563eb", "#5b9bf8", "stroke-width:1.5"),
    stroke("c1", "#2563eb", "#5b9bf8", ROUND),
    stroke("c2", "#c2410c", "#fb923c", ROUND_LONG),
    stroke("c3", "#15803d", "#4ade80", ROUND_SHORT),
    stroke("c4", "#a21caf", "#e879f9", ROUND_MIXED),
    stroke("c5", "#0e7490", "#22d3ee", ROUND),
    stroke("c6", "#b91c1c", "#f87171", ROUND_LONG),
    stroke("c7", "#854d0e", "#facc15", ROUND_SHORT),
    stroke("c8", "#475569", "#cbd5e1", ROUND_MIXED),
    fill("h1", "#dbeafe", "#1b2f52"),
    fill("h2", "#93c5fd", "#1e4a8f"),
    fill("h3", "#60a5fa", "#2f6fd0"),
    fill("h4", "#2563eb", "#5b9bf8"),
    fill("h5", "#1e3a8a", "#bfdbfe"),
];

const ROUND: &str = "fill:none;stroke-width:2;stroke-linejoin:round";
const ROUND_LONG: &str = "fill:none;stroke-width:2;stroke-linejoin:round;stroke-dasharray:9 3";
const ROUND_SHORT: &str = "fill:none;stroke-width:2;stroke-linejoin:round;stroke-dasharray:3 2";
const ROUND_MIXED: &str = "fill:none;stroke-width:2;stroke-linejoin:round;stroke-dasharray:9 3 2 3";

const DASHES: &str = "stroke-dasharray:3 2";
const THIN_DASHES: &str = "fill:none;stroke-width:1.5;stroke-linecap:round;stroke-dasharray:1 4";
const JOINED: &str = "fill:none;stroke-width:1.75;stroke-linejoin:round";
const JOINED_DASHES: &str =
    "fill:none;stroke-width:1.75;stroke-linejoin:round;stroke-dasharray:4 3";

impl Role {
    fn look(self) -> &'static Look {
        &LOOKS[self as usize]
    }

    /// Its class in the style sheet.
    pub(super) fn class(self) -> &'static str {
        self.look().class
    }

    /// Pixels of its text.
    pub(super) fn text_px(self) -> f64 {
        f64::from(self.look().text_px)
    }
}

/// The style sheet for these roles. In the theme of the reader, dark colours stand in a media query.
pub(super) fn style_sheet(theme: Theme, roles: &[Role]) -> String {
    let looks = || roles.iter().map(|role| role.look());
    let mut sheet = String::from(FONT);
    for look in looks() {
        let colors = match theme {
            Theme::Auto | Theme::Light => look.light,
            Theme::Dark => look.dark,
        };
        look.push_rule(&mut sheet, &look.colors(colors), true);
    }
    if theme == Theme::Auto {
        sheet.push_str("@media (prefers-color-scheme:dark){");
        for look in looks() {
            look.push_rule(&mut sheet, &look.colors(look.dark), false);
        }
        sheet.push('}');
    }
    sheet
}

/// The style sheet of every role, for a page that shows pictures inline, without their own style sheets, and chooses a
/// theme by the property `color-scheme`.
pub(crate) fn page_style_sheet() -> String {
    let mut sheet = String::from(FONT);
    for look in &LOOKS {
        let pair = |light: &str, dark: &str| format!("light-dark({light},{dark})");
        let colors = match (look.light.split_once(' '), look.dark.split_once(' ')) {
            (Some(light), Some(dark)) => {
                format!("{} {}", pair(light.0, dark.0), pair(light.1, dark.1))
            }
            _ => pair(look.light, look.dark),
        };
        look.push_rule(&mut sheet, &look.colors(&colors), true);
        sheet.push('\n');
    }
    sheet
}

const FONT: &str = ".tallyring text{font-family:system-ui,-apple-system,\"Segoe UI\",Roboto,sans-serif;\
     font-variant-numeric:tabular-nums}";

impl Look {
    /// Writes its rule; `whole` with what both themes share.
    fn push_rule(&self, sheet: &mut String, colors: &str, whole: bool) {
        let Self { class, shared, .. } = self;
        // Writing to a string cannot fail.
        let _ = write!(sheet, ".tallyring .{class}{{{colors}");
        if whole && self.text_px > 0 {
            let _ = write!(sheet, ";font-size:{}px", self.text_px);
        }
        if whole && !shared.is_empty() {
            let _ = write!(sheet, ";{shared}");
        }
        sheet.push('}');
    }

    fn colors(&self, colors: &str) -> String {
        match self.paint {
            Paint::Fill => format!("fill:{colors}"),
            Paint::Stroke => format!("stroke:{colors}"),
            Paint::Both => {
                let (fill, stroke) = colors.split_once(' ').expect("BUG: both has two colours");
                format!("fill:{fill};stroke:{stroke}")
            }
        }
    }
}

/// A part of a style sheet.
type S = &'static str;

const fn fill(class: S, light: S, dark: S) -> Look {
    look(class, Paint::Fill, (light, dark), "", 0)
}

const fn stroke(class: S, light: S, dark: S, shared: S) -> Look {
    look(class, Paint::Stroke, (light, dark), shared, 0)
}

const fn both(class: S, light: S, dark: S, shared: S) -> Look {
    look(class, Paint::Both, (light, dark), shared, 0)
}

const fn text(class: S, light: S, dark: S, text_px: u32, shared: S) -> Look {
    look(class, Paint::Fill, (light, dark), shared, text_px)
}

const fn look(class: S, paint: Paint, (light, dark): (S, S), shared: S, text_px: u32) -> Look {
    Look {
        class,
        paint,
        light,
        dark,
        shared,
        text_px,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance, as WCAG 2 defines it.
    fn luminance(color: &str) -> f64 {
        let channel = |at: usize| {
            let value = u8::from_str_radix(&color[at..at + 2], 16).expect("two hex digits");
            let value = f64::from(value) / 255.0;
            if value <= 0.040_45 {
                value / 12.92
            } else {
                ((value + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let (one, other) = (luminance(one) + 0.05, luminance(other) + 0.05);
        one.max(other) / one.min(other)
    }

    #[test]
    fn text_and_shapes_stand_out_in_both_themes() {
        let card = Role::Card.look();
        let check = |look: &Look, on: &Look, least: f64| {
            for (color, ground) in [(look.light, on.light), (look.dark, on.dark)] {
                let found = contrast(&color[..7], &ground[..7]);
                assert!(
                    found >= least,
                    "{}: {color} on {ground}: {found}",
                    look.class
                );
            }
        };
        for role in [
            Role::Title,
            Role::Muted,
            Role::Label,
            Role::Value,
            Role::Empty,
        ] {
            check(role.look(), card, 4.5);
        }
        for role in [Role::BadgeLabel, Role::BadgeValue] {
            check(Role::BadgeText.look(), role.look(), 4.5);
        }
        for role in [Role::Bar, Role::Line, Role::LineProvisional, Role::Hatch] {
            check(role.look(), card, 3.0);
        }
        for look in &LOOKS[Role::Line1 as usize..=Role::Line8 as usize] {
            check(look, card, 3.0);
            check(look, Role::Gap.look(), 3.0);
        }
        check(Role::Hatch.look(), Role::BarNotFinal.look(), 3.0);
        check(Role::Hatch.look(), Role::AreaProvisional.look(), 3.0);
        check(Role::BarOther.look(), card, 2.0);
        check(Role::Before.look(), card, 4.5);
        check(Role::Value.look(), Role::BarBefore.look(), 4.5);
        check(Role::Bar.look(), Role::BarBefore.look(), 3.0);
    }
}
