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

    /// What `Accept` names first of ours; JSON when it names none.
    fn accepted(headers: &HeaderMap) -> Self {
        let accept = headers
            .get(header::ACCEPT)
            .and_then(|accept| accept.to_str().ok())
            .unwrap_or_default();
        for part in accept.split(',') {
            match part.split(';').next().unwrap_or_default().trim() {
                "text/csv" => return Self::Csv,
                "image/svg+xml" => return Self::Svg,
                "application/json" | "*/*" | "application/*" => return Self::Json,
                _ => {}
            }
        }
        Self::Json
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suffix_wins_over_accept() {
        let mut headers = HeaderMap::new();
        assert_eq!(Format::of("counts", &headers), ("counts", Format::Json));
        headers.insert(header::ACCEPT, "text/html, text/csv;q=0.9".parse().unwrap());
        assert_eq!(Format::of("counts", &headers), ("counts", Format::Csv));
        assert_eq!(Format::of("counts.svg", &headers), ("counts", Format::Svg));
        headers.insert(header::ACCEPT, "*/*".parse().unwrap());
        assert_eq!(Format::of("c", &headers), ("c", Format::Json));
    }
}
