//! Version 4's lists of values as `text/csv`.

use axum::http::{HeaderMap, header};

use crate::csv::cell;

/// True when `Accept` names CSV, and JSON not before it.
pub fn wants_csv(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).into_iter();
    let accepted = accepted.filter_map(|value| value.to_str().ok());
    let mut kinds = accepted.flat_map(|value| value.split(','));
    let first = kinds.find_map(|kind| match kind.split(';').next()?.trim() {
        "text/csv" => Some(true),
        "application/json" => Some(false),
        _ => None,
    });
    first.unwrap_or(false)
}

/// Rows with a space behind the comma, as bitly writes them.
pub fn csv(head: &str, values: Vec<(String, u64)>) -> String {
    let mut out = format!("{head}\n");
    for (value, clicks) in values {
        cell(&mut out, &value);
        out.push_str(&format!(", {clicks}\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_is_asked_for_by_name() {
        let wants = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().expect("a header"));
            wants_csv(&headers)
        };
        assert!(wants("text/csv"));
        assert!(wants("text/html, text/csv;q=0.9"));
        assert!(!wants("application/json, text/csv"));
        assert!(!wants("*/*"));
    }

    #[test]
    fn cells_are_quoted_and_guarded() {
        let values = [("US", 5), ("a,\"b\"", 2), ("=1+1", 1), ("-", 1)];
        let values = values.map(|(value, clicks)| (value.to_owned(), clicks));
        assert_eq!(
            csv("Country, Clicks", values.to_vec()),
            "Country, Clicks\nUS, 5\n\"a,\"\"b\"\"\", 2\n'=1+1, 1\n-, 1\n"
        );
    }
}
