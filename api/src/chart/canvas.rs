//! An SVG document, and the plotters backend that writes into it.
//!
//! Layout: `<svg role="img"> <title> <desc> <style> shapes… </svg>`. Backend coordinates are tenths of a
//! pixel, because plotters counts in whole numbers and bars of equal counts must be equally wide.

use std::cell::RefCell;
use std::convert::Infallible;
use std::fmt::Write as _;

use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind,
};

use super::picture::Theme;
use super::text;
use super::theme::{Look, Role, style_sheet};

/// Backend units in a pixel.
const UNITS: i32 = 10;

/// How far the baseline of a text is below its top, its middle and its bottom, in ems of a digit.
const BASELINE_EM: (f64, f64, f64) = (0.74, 0.36, 0.0);

/// A document that is being written.
pub struct Document {
    width: u32,
    height: u32,
    // Shapes come through plotters, which owns the backend, and tooltips from around them.
    out: RefCell<String>,
}

/// Pixels in backend units.
pub fn units(pixels: f64) -> i32 {
    (pixels * f64::from(UNITS)).round() as i32
}

/// Backend units in pixels.
pub fn pixels(units: i32) -> f64 {
    f64::from(units) / f64::from(UNITS)
}

impl Document {
    /// Begins a document with its alternative text. One that is `fluid` takes the width of its place.
    pub fn begin(
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
            out: RefCell::new(out),
        }
    }

    /// Width and height, pixels.
    pub fn size(&self) -> (f64, f64) {
        (f64::from(self.width), f64::from(self.height))
    }

    /// A plotters area over the whole document, in tenths of a pixel.
    pub fn area(&self) -> DrawingArea<Pen<'_>, Shift> {
        Pen(self).into_drawing_area()
    }

    /// Draws what `draw` draws with `tooltip` over it.
    pub fn with_tooltip(&self, tooltip: &str, draw: impl FnOnce()) {
        self.push("<g><title>");
        text::push_escaped(&mut self.out.borrow_mut(), tooltip);
        self.push("</title>\n");
        draw();
        self.push("</g>\n");
    }

    /// A rectangle, in pixels.
    pub fn rect(&self, (x, y): (f64, f64), (width, height): (f64, f64), rx: f64, role: Role) {
        let class = role.look().class;
        self.line(format_args!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"{rx}\"/>"
        ));
    }

    /// Text around its middle, set to `length` pixels whatever the font.
    pub fn text_of_length(&self, text: &str, (x, y): (f64, f64), length: f64, role: Role) {
        let class = role.look().class;
        let mut out = self.out.borrow_mut();
        let _ = write!(
            out,
            "<text class=\"{class}\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{y}\" \
             textLength=\"{length:.1}\" lengthAdjust=\"spacingAndGlyphs\">"
        );
        text::push_escaped(&mut out, text);
        out.push_str("</text>\n");
    }

    /// The whole text.
    pub fn end(self) -> String {
        let mut out = self.out.into_inner();
        out.push_str("</svg>\n");
        out
    }

    fn push(&self, markup: &str) {
        self.out.borrow_mut().push_str(markup);
    }

    fn line(&self, markup: std::fmt::Arguments<'_>) {
        let mut out = self.out.borrow_mut();
        let _ = out.write_fmt(markup);
        out.push('\n');
    }

    fn shape(&self, element: &str, look: &Look, points: impl Iterator<Item = BackendCoord>) {
        let mut out = self.out.borrow_mut();
        let _ = write!(out, "<{element} class=\"{}\" points=\"", look.class);
        for (index, (x, y)) in points.enumerate() {
            let separator = if index == 0 { "" } else { " " };
            let _ = write!(out, "{separator}{},{}", pixels(x), pixels(y));
        }
        out.push_str("\"/>\n");
    }
}

/// Draws into a [`Document`]. A colour names a [`Role`].
pub struct Pen<'a>(&'a Document);

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

/// The look of a style, unless it is transparent.
fn visible(color: BackendColor) -> Option<&'static Look> {
    (color.alpha > 0.0).then(|| Role::named_by(color.rgb))
}

impl DrawingBackend for Pen<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        let scale = UNITS.unsigned_abs();
        (self.0.width * scale, self.0.height * scale)
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, point: BackendCoord, color: BackendColor) -> Drawn {
        self.draw_rect(point, (point.0 + 1, point.1 + 1), &color, true)
    }

    fn draw_line<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
    ) -> Drawn {
        self.draw_path([from, to], style)
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        (x0, y0): BackendCoord,
        (x1, y1): BackendCoord,
        style: &S,
        _fill: bool,
    ) -> Drawn {
        if let Some(Look { class, .. }) = visible(style.color()) {
            self.0.line(format_args!(
                "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"1.5\"/>",
                pixels(x0.min(x1)),
                pixels(y0.min(y1)),
                pixels((x1 - x0).abs()),
                pixels((y1 - y0).abs())
            ));
        }
        Ok(())
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Drawn {
        if let Some(look) = visible(style.color()) {
            self.0.shape("polyline", look, path.into_iter());
        }
        Ok(())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        corners: I,
        style: &S,
    ) -> Drawn {
        if let Some(look) = visible(style.color()) {
            self.0.shape("polygon", look, corners.into_iter());
        }
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(
        &mut self,
        text: &str,
        style: &S,
        (x, y): BackendCoord,
    ) -> Drawn {
        let Some(look) = visible(style.color()) else {
            return Ok(());
        };
        let anchor = match style.anchor().h_pos {
            HPos::Left => "",
            HPos::Center => " text-anchor=\"middle\"",
            HPos::Right => " text-anchor=\"end\"",
        };
        let ems = match style.anchor().v_pos {
            VPos::Top => BASELINE_EM.0,
            VPos::Center => BASELINE_EM.1,
            VPos::Bottom => BASELINE_EM.2,
        };
        let baseline = y + units(f64::from(look.text_px) * ems);
        let mut out = self.0.out.borrow_mut();
        let _ = write!(
            out,
            "<text class=\"{}\"{anchor} x=\"{}\" y=\"{}\">",
            look.class,
            pixels(x),
            pixels(baseline)
        );
        text::push_escaped(&mut out, text);
        out.push_str("</text>\n");
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        style: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Infallible>> {
        let size = f64::from(Role::named_by(style.color().rgb).text_px);
        let width = units(text::width(text, size)).unsigned_abs();
        Ok((width, units(size).unsigned_abs()))
    }
}
