//! In which form an answer goes out: by suffix, else by `Accept`.

use axum::http::{HeaderMap, header};

/// Forms of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The contract's own.
    Json,
    /// For spreadsheets.
    Csv,
    /// A picture.
    Svg,
}

impl Format {
    /// Takes `.csv` or `.svg` off the last path segment; without one the `Accept` header decides.
    pub fn of<'p>(segment: &'p str, headers: &HeaderMap) -> (&'p str, Self) {
        if let Some(name) = segment.strip_suffix(".csv") {
            return (name, Self::Csv);
        }
        if let Some(name) = segment.strip_suffix(".svg") {
            return (name, Self::Svg);
        }
        (segment, Self::accepted(headers))
    }

    /// The form of ours that `Accept` likes best; of equals the first named. JSON when none is named,
    /// and for pages: a browser that would take a picture of anything asks for HTML first.
    fn accepted(headers: &HeaderMap) -> Self {
        let accept = headers
            .get(header::ACCEPT)
            .and_then(|accept| accept.to_str().ok())
            .unwrap_or_default();
        let (mut best, mut liked) = (Self::Json, 0.0);
        let mut anything: f32 = 0.0;
        for part in accept.split(',') {
            let (kind, quality) = preference(part);
            let form = match kind.as_str() {
                "text/html" if quality > 0.0 => return Self::Json,
                "text/csv" => Self::Csv,
                "image/svg+xml" => Self::Svg,
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

    /// Its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Csv => "text/csv; charset=utf-8; header=present",
            Self::Svg => "image/svg+xml",
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
        assert_eq!(Format::of("counts.svg", &headers), ("counts", Format::Svg));
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
            ("image/avif,image/webp,image/svg+xml,*/*;q=0.8", Format::Svg),
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
