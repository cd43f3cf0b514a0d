//! The file name of a CSV answer, made of what was asked: `l-abc-counts-day.csv`.
//!
//! Names hold letters, digits, `_`, `-` and `.` only, whatever a key is; others become `_`.

use axum::http::{HeaderValue, Uri};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::format::Format;

/// Characters of a name, at most, without what ends it.
const NAME_CHARS_MAX: usize = 100;
const UNIT_DEFAULT: &str = "day";

/// The `Content-Disposition` of the answer to this request, where it is CSV.
///
/// As RFC 6266 has it: in ASCII for all, and unchanged for clients that read UTF-8.
pub(crate) fn disposition(format: Format, uri: &Uri) -> Option<HeaderValue> {
    (format == Format::Csv).then(|| attachment(&name(uri)))
}

fn attachment(name: &str) -> HeaderValue {
    let ascii: String = name
        .chars()
        .map(|letter| if letter.is_ascii() { letter } else { '_' })
        .collect();
    let mut value = format!("attachment; filename=\"{ascii}.csv\"");
    if ascii != name {
        let encoded = utf8_percent_encode(name, NON_ALPHANUMERIC);
        value.push_str(&format!("; filename*=UTF-8''{encoded}.csv"));
    }
    value
        .parse()
        .expect("BUG: the name has letters, digits, `_`, `-` and `.` only")
}

/// The path behind the version, and the unit.
fn name(uri: &Uri) -> String {
    let path = uri.path();
    let path = path.strip_suffix(".csv").unwrap_or(path);
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let mut parts: Vec<String> = path.split('/').skip(2).map(decoded).collect();
    let mut parameters = uri.query().unwrap_or_default().split('&');
    let unit = parameters.find_map(|parameter| parameter.strip_prefix("unit="));
    match unit {
        // Each of many queries has its own, and actions have ranges.
        None if ["/v1/query", "/v1/actions/query"].contains(&path) => {}
        None | Some("") => parts.push(UNIT_DEFAULT.to_owned()),
        Some(unit) => parts.push(decoded(unit)),
    }
    let joined = parts.join("-");
    // A file whose name begins with a point is hidden.
    let letters = joined.trim_start_matches('.').chars().take(NAME_CHARS_MAX);
    letters.map(safe).collect()
}

fn safe(letter: char) -> char {
    match letter {
        '_' | '-' | '.' => letter,
        _ if letter.is_alphanumeric() => letter,
        _ => '_',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_called_what_was_asked() {
        for (uri, expected) in [
            (
                "/v1/l/abc/counts.csv",
                "attachment; filename=\"l-abc-counts-day.csv\"",
            ),
            (
                "/v1/l/abc/counts?unit=hour",
                "attachment; filename=\"l-abc-counts-hour.csv\"",
            ),
            (
                "/v1/l/abc/by/c.csv?units=3&unit=",
                "attachment; filename=\"l-abc-by-c-day.csv\"",
            ),
            ("/v1/l/top.csv", "attachment; filename=\"l-top-day.csv\""),
            (
                "/v1/actions/query.csv",
                "attachment; filename=\"actions-query.csv\"",
            ),
            (
                "/v1/l/..%2F..%2Fetc%2Fpasswd%22%0D%0AX:%20y/counts.csv",
                "attachment; filename=\"l-.._.._etc_passwd___X__y-counts-day.csv\"",
            ),
            (
                "/v1/l/%C3%A9t%C3%A9/counts.csv?unit=%0A",
                "attachment; filename=\"l-_t_-counts-_.csv\"; filename*=UTF-8''l%2D%C3%A9t%C3%A9%2Dcounts%2D%5F.csv",
            ),
        ] {
            let uri: Uri = uri.parse().unwrap();
            assert_eq!(attachment(&name(&uri)), expected);
        }
        let long: Uri = format!("/v1/l/{}/counts.csv", "k".repeat(2_000))
            .parse()
            .unwrap();
        assert_eq!(name(&long).chars().count(), NAME_CHARS_MAX);
    }
}
