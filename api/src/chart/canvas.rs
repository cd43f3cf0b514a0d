//! An SVG document that is being written.
//!
//! Layout: `<svg role="img"> <title> <desc> <style> shapes… </svg>`. Places of shapes are whole tenths of a pixel, so
//! that bars of equal counts are equally wide and the same chart gives the same bytes.

use std::fmt::Write as _;

use super::picture::Theme;
use super::text;
use super::theme::{Role, style_sheet};

/// Units in a pixel.
const UNITS: i32 = 10;

/// How far the baseline of a text is below its top and below its middle, in ems of a digit.
const BELOW_TOP_EM: f64 = 0.74;
const BELOW_MIDDLE_EM: f64 = 0.36;

/// A place, in tenths of a pixel from the left and the upper edge.
pub(super) type Point = (i32, i32);

/// Which part of a text is at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A document that is being written.
pub(super) struct Document {
    width: u32,
    height: u32,
    out: String,
    theme: Theme,
}

/// The id of the hatching of a theme: equal ids stand for equal patterns, so a page may have several.
fn hatch_id(theme: Theme) -> &'static str {
    match theme {
        Theme::Auto => "tallyring-hatch-auto",
        Theme::Light => "tallyring-hatch-light",
        Theme::Dark => "tallyring-hatch-dark",
    }
}

/// Pixels in units.
pub(super) fn units(pixels: f64) -> i32 {
    (pixels * f64::from(UNITS)).round() as i32
}

/// Units in pixels.
pub(super) fn pixels(units: i32) -> f64 {
    f64::from(units) / f64::from(UNITS)
}

impl Document {
    /// Begins a document with its alternative text. One that is `fluid` takes the width of its place.
    pub(super) fn begin(
        (width, height): (u32, u32),
        fluid: bool,
        (title, desc): (&str, &str),
        (theme, roles): (Theme, &[Role]),
    ) -> Self {
        let mut out = String::with_capacity(8 << 10);
        let size = if fluid {
            "width=\"100%\"".to_owned()
        } else {
            format!("width=\"{width}\" height=\"{height}\"")
        };
        // Writing to a string cannot fail, here and below.
        let _ = write!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" {size} viewBox=\"0 0 {width} {height}\" \
             class=\"tallyring\" role=\"img\" aria-label=\""
        );
        text::push_escaped(&mut out, title);
        out.push_str("\">\n<title>");
        text::push_escaped(&mut out, title);
        out.push_str("</title>\n<desc>");
        text::push_escaped(&mut out, desc);
        let _ = writeln!(out, "</desc>\n<style>{}</style>", style_sheet(theme, roles));
        Self {
            width,
            height,
            out,
            theme,
        }
    }

    /// Defines the hatching, once, before the first shape that has it.
    pub(super) fn define_hatch(&mut self) {
        let (id, class) = (hatch_id(self.theme), Role::Hatch.class());
        let _ = writeln!(
            self.out,
            "<defs><pattern id=\"{id}\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" \
             patternTransform=\"rotate(45)\"><path class=\"{class}\" d=\"M2.5 0V5\"/></pattern></defs>"
        );
    }

    /// Width and height, pixels.
    pub(super) fn size(&self) -> (f64, f64) {
        (f64::from(self.width), f64::from(self.height))
    }

    /// Draws what `draw` draws with `tooltip` over it.
    pub(super) fn with_tooltip(&mut self, tooltip: &str, draw: impl FnOnce(&mut Self)) {
        self.out.push_str("<g><title>");
        text::push_escaped(&mut self.out, tooltip);
        self.out.push_str("</title>\n");
        draw(self);
        self.out.push_str("</g>\n");
    }

    /// How a shape of the role is painted: as its class says, or hatched.
    fn paint(&self, role: Role) -> String {
        match role {
            Role::Hatch => format!("fill=\"url(#{})\"", hatch_id(self.theme)),
            role => format!("class=\"{}\"", role.class()),
        }
    }

    /// A rectangle, in pixels.
    pub(super) fn rect(
        &mut self,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        rx: f64,
        role: Role,
    ) {
        let paint = self.paint(role);
        let _ = writeln!(
            self.out,
            "<rect {paint} x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"{rx}\"/>"
        );
    }

    /// A bar with these corners; one of [`Role::Hatch`] hatches the bar below it.
    pub(super) fn bar(&mut self, [(x0, y0), (x1, y1)]: [Point; 2], role: Role) {
        let corner = (pixels(x0.min(x1)), pixels(y0.min(y1)));
        let size = (pixels((x1 - x0).abs()), pixels((y1 - y0).abs()));
        self.rect(corner, size, 1.5, role);
    }

    /// A line through these points.
    pub(super) fn line(&mut self, points: impl IntoIterator<Item = Point>, role: Role) {
        self.shape("polyline", points, role);
    }

    /// The area between these corners; one of [`Role::Hatch`] hatches the area below it.
    pub(super) fn area(&mut self, corners: impl IntoIterator<Item = Point>, role: Role) {
        self.shape("polygon", corners, role);
    }

    fn shape(&mut self, element: &str, points: impl IntoIterator<Item = Point>, role: Role) {
        let paint = self.paint(role);
        let _ = write!(self.out, "<{element} {paint} points=\"");
        for (index, (x, y)) in points.into_iter().enumerate() {
            let separator = if index == 0 { "" } else { " " };
            let _ = write!(self.out, "{separator}{},{}", pixels(x), pixels(y));
        }
        self.out.push_str("\"/>\n");
    }

    /// One line of text around the height `y`, cut to `room` pixels. Returns its width in pixels.
    pub(super) fn write(
        &mut self,
        role: Role,
        anchor: Anchor,
        (x, y): (f64, f64),
        room: f64,
        line: &str,
    ) -> f64 {
        let short = text::ellipsised(line, role.text_px(), room);
        self.text(role, anchor, (units(x), units(y)), BELOW_MIDDLE_EM, &short);
        text::width(&short, role.text_px())
    }

    /// A label around the height of its place, or below it.
    pub(super) fn label(
        &mut self,
        role: Role,
        anchor: Anchor,
        at: Point,
        is_below: bool,
        label: &str,
    ) {
        let ems = if is_below {
            BELOW_TOP_EM
        } else {
            BELOW_MIDDLE_EM
        };
        self.text(role, anchor, at, ems, label);
    }

    fn text(&mut self, role: Role, anchor: Anchor, (x, y): Point, ems: f64, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let baseline = y + units(role.text_px() * ems);
        let _ = write!(
            self.out,
            "<text class=\"{}\"{anchor} x=\"{}\" y=\"{}\">",
            role.class(),
            pixels(x),
            pixels(baseline)
        );
        text::push_escaped(&mut self.out, text);
        self.out.push_str("</text>\n");
    }

    /// Text around its middle, set to `length` pixels whatever the font.
    pub(super) fn text_of_length(
        &mut self,
        text: &str,
        (x, y): (f64, f64),
        length: f64,
        role: Role,
    ) {
        let class = role.class();
        let _ = write!(
            self.out,
            "<text class=\"{class}\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{y}\" \
             textLength=\"{length:.1}\" lengthAdjust=\"spacingAndGlyphs\">"
        );
        text::push_escaped(&mut self.out, text);
        self.out.push_str("</text>\n");
    }

    /// The whole text.
    pub(super) fn end(mut self) -> String {
        self.out.push_str("</svg>\n");
        self.out
    }
}
