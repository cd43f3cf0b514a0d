//! The dashboard: pages from the binary that read the API as any client does.
//!
//! Pages hold no data and no inline script or style; everything comes from this server, and nothing else
//! is allowed ([`crate::page`]). So they are open, and what they read needs a key where the API does: signing
//! in puts it into a cookie that no script reads ([`crate::access`]). Every state of a page has an
//! address of its own. Charts are the API's own pictures, inline, under [`page_style_sheet`].

mod missing;
mod sign_in;

pub(crate) use missing::{missing, unrouted};

use std::sync::LazyLock;

use axum::Router;
use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::{get, post};

use crate::chart::page_style_sheet;
use crate::page::{CSS, HTML, JAVASCRIPT, cached};
use crate::segments::Segments;
use crate::state::ApiState;

/// The one page; its script looks at the address.
const PAGE: &str = include_str!("page/index.html");

/// A script of the page.
macro_rules! script {
    ($name:literal) => {
        ($name, JAVASCRIPT, include_str!(concat!("page/", $name)))
    };
}

/// Files of the page: name, media type, text as it was written.
const FILES: [(&str, &str, &str); 20] = [
    ("style.css", CSS, include_str!("page/style.css")),
    ("icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
    script!("app.js"),
    script!("api.js"),
    script!("chart.js"),
    script!("day.js"),
    script!("days.js"),
    script!("find.js"),
    script!("format.js"),
    script!("key.js"),
    script!("live.js"),
    script!("namespaces.js"),
    script!("nodes.js"),
    script!("overview.js"),
    script!("people.js"),
    script!("range.js"),
    script!("reach.js"),
    script!("rules.js"),
    script!("search.js"),
    script!("server.js"),
];

/// The files as browsers get them.
static SERVED: LazyLock<Vec<(&str, &str, Bytes)>> = LazyLock::new(|| {
    let files = FILES.iter();
    files
        .map(|(name, kind, text)| (*name, *kind, bare(text).into()))
        .collect()
});

/// Style sheet of the charts.
const CHARTS: &str = "charts.css";

/// The pages, their files, and signing in and out.
pub(crate) fn routes() -> Router<ApiState> {
    Router::new()
        .route("/", get(page))
        .route("/search", get(page))
        .route("/namespaces", get(page))
        .route("/keys/{namespace}/{key}", get(page))
        .route("/reach/{namespace}/{key}", get(page))
        .route("/people", get(page))
        .route("/days", get(page))
        .route("/days/{day}", get(page))
        .route("/dashboard/{file}", get(file))
        .route("/login", get(sign_in::form).post(sign_in::sign_in))
        .route("/logout", post(sign_in::sign_out))
}

async fn page(headers: HeaderMap) -> Response {
    cached(&headers, HTML, PAGE)
}

async fn file(Segments(name): Segments<String>, headers: HeaderMap) -> Response {
    if name == CHARTS {
        return cached(&headers, CSS, page_style_sheet());
    }
    match SERVED.iter().find(|(known, ..)| *known == name) {
        Some((_, kind, text)) => cached(&headers, kind, text.clone()),
        None => missing(&headers, &format!("/dashboard/{name}")),
    }
}

/// A text without its comment lines and indentation, which a browser has no use for. No string of it may go on over the
/// end of a line.
fn bare(text: &str) -> String {
    let is_comment =
        |line: &str| line.starts_with("//") || line.starts_with("/*") && line.ends_with("*/");
    let lines = text.lines().map(str::trim_start);
    lines
        .filter(|line| !line.is_empty() && !is_comment(line))
        .flat_map(|line| [line, "\n"])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_served_without_comments_and_indentation() {
        let text = "// Why.\nconst a = {\n  // Not \"b\".\n  c: `//d`, // e\n\n};\n";
        assert_eq!(bare(text), "const a = {\nc: `//d`, // e\n};\n");
        assert_eq!(
            bare("/* Why. */\na {\n  b: c; /* d */\n}\n"),
            "a {\nb: c; /* d */\n}\n"
        );
    }

    #[test]
    fn no_string_of_a_file_goes_on_over_the_end_of_a_line() {
        for (name, _, text) in FILES {
            for line in text
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"))
            {
                assert_eq!(line.matches('`').count() % 2, 0, "{name}: {line}");
                assert!(!line.ends_with('\\'), "{name}: {line}");
            }
        }
    }
}
