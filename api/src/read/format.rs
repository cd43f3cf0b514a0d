//! In which form an answer goes out: by suffix, else by `Accept`.

use std::cmp::Reverse;

use axum::http::{HeaderMap, header};
use serde::Serialize;
use tallyring_records::FieldError;

use crate::chart::{Picture, Theme, WIDTH, WIDTH_MAX, WIDTH_MIN};
use crate::problem::{Problem, Result};
use crate::query_string::QueryString;

/// Forms of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// The contract's own.
    Json,
    /// For spreadsheets.
    Csv,
    /// A picture, drawn like this.
    Svg(Picture),
}

impl Format {
    /// A picture as it is drawn unless asked otherwise.
    pub(crate) const SVG: Self = Self::Svg(Picture {
        width: WIDTH,
        theme: Theme::Auto,
        hatches: false,
    });

    /// The form that the suffix `.csv` or `.svg` of a path asks for; without a suffix the `Accept` header decides.
    pub(crate) fn of(path: &str, headers: &HeaderMap) -> Self {
        match path.rsplit_once('.') {
            Some((_, "csv")) => Self::Csv,
            Some((_, "svg")) => Self::SVG,
            _ => Self::accepted(headers),
        }
    }

    /// The last segment of a path without the suffix that asks for a form.
    pub(crate) fn without_suffix(segment: &str) -> &str {
        let suffix = [".csv", ".svg"]
            .into_iter()
            .find(|suffix| segment.ends_with(suffix));
        &segment[..segment.len() - suffix.map_or(0, str::len)]
    }

    /// The form of ours that `Accept` likes best; of equals the one that it names more closely, then the one that it
    /// names first. JSON where it names none; where a page is asked for, only a form's own name counts, and no
    /// picture's: a browser that would take a picture of anything asks for HTML first.
    pub(crate) fn accepted(headers: &HeaderMap) -> Self {
        let kinds = preferences(headers);
        let asks_page = |(kind, quality): &(String, u16)| kind == "text/html" && *quality > 0;
        let is_page = kinds.iter().any(asks_page);
        let place = |name: &str| kinds.iter().position(|(kind, _)| kind == name);
        // One name may mean several forms, all alike: the last one is taken.
        let forms = [
            (Self::SVG, ["image/svg+xml", "image/*", "*/*"]),
            (Self::Csv, ["text/csv", "text/*", "*/*"]),
            (Self::Json, ["application/json", "application/*", "*/*"]),
        ];
        let ranked = forms.into_iter().filter_map(|(form, names)| {
            let mut named = names.into_iter().map(place).enumerate();
            let (distance, place) = named.find_map(|(distance, place)| Some((distance, place?)))?;
            let quality = kinds[place].1;
            let counts = !is_page || distance == 0 && form != Self::SVG;
            let rank = (quality, Reverse(distance), Reverse(place));
            (counts && quality > 0).then_some((rank, form))
        });
        let best = ranked.max_by_key(|&(rank, _)| rank);
        best.map_or(Self::Json, |(_, form)| form)
    }

    /// Takes what a picture may be asked to be like, `width` and `theme`, out of `query`. Fails with 400 and 422 for
    /// what cannot be drawn. `hatches` says whether days become final.
    pub(crate) fn drawn(self, query: &mut QueryString, hatches: bool) -> Result<Self> {
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
        Ok(Self::Svg(Picture {
            width,
            theme,
            hatches,
        }))
    }

    /// The part of an answer's validator that the form makes.
    pub(crate) fn identity(self) -> impl Serialize {
        let drawn = match self {
            Self::Svg(picture) => Some((picture.width, picture.theme as u8, picture.hatches)),
            Self::Json | Self::Csv => None,
        };
        (self.media_type(), drawn)
    }

    /// The media type of the form.
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Csv => "text/csv; charset=utf-8; header=present",
            Self::Svg(_) => "image/svg+xml",
        }
    }
}

/// True where `Accept` names a page, and JSON not rather.
pub(crate) fn asks_page(headers: &HeaderMap) -> bool {
    let kinds = preferences(headers);
    let quality = |name: &str| {
        let named = kinds.iter().find(|(kind, _)| kind == name);
        named.map_or(0, |(_, quality)| *quality)
    };
    let json = quality("application/json").max(quality("application/problem+json"));
    quality("text/html") >= json.max(1)
}

/// The media types of `Accept`.
fn preferences(headers: &HeaderMap) -> Vec<(String, u16)> {
    let lines = headers.get_all(header::ACCEPT).into_iter();
    let parts = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','));
    parts.map(preference).collect()
}

/// A media type in lower case, and how much it is wanted, 0 to 1,000 (RFC 9110 §12.4.2).
fn preference(part: &str) -> (String, u16) {
    let mut parameters = part.split(';');
    let kind = parameters
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    let quality = parameters.find_map(|parameter| {
        let (name, value) = parameter.trim().split_once('=')?;
        let is_quality = name.eq_ignore_ascii_case("q");
        is_quality.then(|| value.parse::<f32>().ok()).flatten()
    });
    let thousandths = quality.unwrap_or(1.0).clamp(0.0, 1.0) * 1_000.0;
    (kind, thousandths.round() as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suffix_wins_over_accept() {
        let mut headers = HeaderMap::new();
        assert_eq!(Format::of("counts", &headers), Format::Json);
        headers.insert(header::ACCEPT, "text/csv;q=0.9".parse().unwrap());
        assert_eq!(Format::of("counts", &headers), Format::Csv);
        assert_eq!(Format::of("counts.svg", &headers), Format::SVG);
        assert_eq!(Format::without_suffix("counts.svg"), "counts");
        headers.append(header::ACCEPT, "image/svg+xml".parse().unwrap());
        assert_eq!(Format::of("counts", &headers), Format::SVG);
        headers.insert(header::ACCEPT, "*/*".parse().unwrap());
        assert_eq!(Format::of("c", &headers), Format::Json);
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
            ("text/*", Format::Csv),
            ("image/webp, image/*;q=0.8", Format::SVG),
            ("text/*, application/json", Format::Json),
            ("text/*, text/csv;q=0, */*;q=0.1", Format::Json),
            ("image/*, text/csv;q=0.5", Format::SVG),
            ("application/json;q=0, */*", Format::Csv),
            ("application/json;Q=0, text/csv;Q=0, */*", Format::SVG),
            ("application/json;q=0", Format::Json),
            ("text/html, text/csv;q=0.9, */*;q=0.8", Format::Csv),
            ("text/html, image/*, text/*, */*;q=0.8", Format::Json),
            ("application/json, text/plain, */*", Format::Json),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            assert_eq!(Format::of("counts", &headers), format, "{accept}");
        }
    }
}
