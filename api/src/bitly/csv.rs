//! Version 4's lists of values as `text/csv`.

use axum::http::HeaderMap;
use tallyring_records::COUNT_MAX;

use crate::read::format::Format;
use crate::table::Table;

/// True when `Accept` likes CSV best.
pub(super) fn wants_csv(headers: &HeaderMap) -> bool {
    Format::accepted(headers) == Format::Csv
}

/// Rows with a space behind the comma, as bitly writes them; with a column of ours where clicks reached 2^53−1, up to
/// which is counted.
pub(super) fn csv(columns: &str, values: Vec<(String, u64)>) -> String {
    let columns: Vec<&str> = columns.split(',').collect();
    let overflows = values.iter().any(|&(_, clicks)| clicks == COUNT_MAX);
    let mut table = Table::of_counts(&columns, overflows);
    for (value, clicks) in values {
        table.counted(&[&value, &format!(" {clicks}")], clicks);
    }
    table.end()
}

#[cfg(test)]
mod tests {
    use axum::http::header;

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
        assert!(wants("Text/CSV"));
        assert!(wants("application/json;q=0.5, text/csv"));
        assert!(!wants("application/json, text/csv"));
        assert!(!wants("text/csv;q=0.5, application/json"));
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
