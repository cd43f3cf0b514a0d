//! In which form an answer goes out: by suffix, else by `Accept`.

use axum::http::{HeaderMap, header};
use serde::Serialize;
use tallyring_records::FieldError;

use crate::chart::{Picture, Theme, WIDTH, WIDTH_MAX, WIDTH_MIN};
use crate::problem::Problem;
use crate::query_string::QueryString;

/// Forms of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The contract's own.
    Json,
    /// For spreadsheets.
    Csv,
    /// A picture, drawn like this.
    Svg(Picture),
}

impl Format {
    /// A picture as it is drawn unless asked otherwise.
    pub const SVG: Self = Self::Svg(Picture {
        width: WIDTH,
        theme: Theme::Auto,
    });

    /// Takes `.csv` or `.svg` off the last path segment; without one the `Accept` header decides.
    pub fn of<'p>(segment: &'p str, headers: &HeaderMap) -> (&'p str, Self) {
        if let Some(name) = segment.strip_suffix(".csv") {
            return (name, Self::Csv);
        }
        if let Some(name) = segment.strip_suffix(".svg") {
            return (name, Self::SVG);
        }
        (segment, Self::accepted(headers))
    }

    /// The form of ours that `Accept` likes best; of equals the first named. JSON when none is named,
    /// and for pages: a browser that would take a picture of anything asks for HTML first.
    fn accepted(headers: &HeaderMap) -> Self {
        let lines = headers.get_all(header::ACCEPT).into_iter();
        let accepted = lines
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(','));
        let (mut best, mut liked) = (Self::Json, 0.0);
        let mut anything: f32 = 0.0;
        for part in accepted {
            let (kind, quality) = preference(part);
            let form = match kind.as_str() {
                "text/html" if quality > 0.0 => return Self::Json,
                "text/csv" => Self::Csv,
                "image/svg+xml" => Self::SVG,
                "application/json" => Self::Json,
                "*/*" | "application/*" => {
                    anything = anything.max(quality);
                    continue;
                }
                _ => continue,
            };
            if quality > liked {
                (best, liked) = (form, quality);
            }
        }
        if anything > liked { Self::Json } else { best }
    }

    /// Takes what a picture may be asked to be like, `width` and `theme`, out of `query`.
    ///
    /// # Errors
    /// 400 and 422 for what cannot be drawn.
    pub fn drawn(self, query: &mut QueryString) -> Result<Self, Problem> {
        let Self::Svg(usual) = self else {
            return Ok(self);
        };
        let width = query.take_as("width", "a whole number of pixels")?;
        let width = width.unwrap_or(usual.width);
        if !(WIDTH_MIN..=WIDTH_MAX).contains(&width) {
            let detail = format!("must be {WIDTH_MIN} to {WIDTH_MAX} pixels");
            return Err(FieldError::refused("width", &width.to_string(), detail).into());
        }
        let theme = match query.take("theme")?.filter(|theme| !theme.is_empty()) {
            Some(theme) => theme
                .parse()
                .map_err(|()| Problem::malformed("theme", &theme, "must be auto, light or dark"))?,
            None => usual.theme,
        };
        Ok(Self::Svg(Picture { width, theme }))
    }

    /// What of it is part of an answer's validator.
    pub fn identity(self) -> impl Serialize {
        let drawn = match self {
            Self::Svg(picture) => Some((picture.width, picture.theme as u8)),
            Self::Json | Self::Csv => None,
        };
        (self.media_type(), drawn)
    }

    /// Its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Csv => "text/csv; charset=utf-8; header=present",
            Self::Svg(_) => "image/svg+xml",
        }
    }
}

/// A media type in lower case, and how much it is wanted, 0 to 1 (RFC 9110 §12.4.2).
fn preference(part: &str) -> (String, f32) {
    let mut parameters = part.split(';');
    let kind = parameters
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    let quality =
        parameters.find_map(|parameter| parameter.trim().strip_prefix("q=")?.parse().ok());
    (kind, quality.unwrap_or(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suffix_wins_over_accept() {
        let mut headers = HeaderMap::new();
        assert_eq!(Format::of("counts", &headers), ("counts", Format::Json));
        headers.insert(header::ACCEPT, "text/csv;q=0.9".parse().unwrap());
        assert_eq!(Format::of("counts", &headers), ("counts", Format::Csv));
        assert_eq!(Format::of("counts.svg", &headers), ("counts", Format::SVG));
        headers.append(header::ACCEPT, "image/svg+xml".parse().unwrap());
        assert_eq!(Format::of("counts", &headers), ("counts", Format::SVG));
        headers.insert(header::ACCEPT, "*/*".parse().unwrap());
        assert_eq!(Format::of("c", &headers), ("c", Format::Json));
    }

    #[test]
    fn the_form_that_is_wanted_most_is_chosen() {
        for (accept, format) in [
            (
                "text/html,application/xml;q=0.9,image/png,image/svg+xml,*/*;q=0.8",
                Format::Json,
            ),
            ("image/avif,image/webp,image/svg+xml,*/*;q=0.8", Format::SVG),
            ("text/csv;q=0.1, application/json;q=0.2", Format::Json),
            ("text/csv;q=0", Format::Json),
            ("text/csv;q=0, */*", Format::Json),
            ("application/json;q=0.9,text/csv", Format::Csv),
            ("TEXT/CSV", Format::Csv),
            ("text/csv, */*", Format::Csv),
            ("nonsense", Format::Json),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            assert_eq!(Format::of("counts", &headers).1, format, "{accept}");
        }
    }
}
