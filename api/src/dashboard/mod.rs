//! The dashboard: pages from the binary that read the API as any client does.
//!
//! Pages hold no data and no inline script or style; everything comes from this server, and nothing else
//! is allowed ([`crate::page`]). So they are open, and what they read needs a key where the API does: signing
//! in puts it into a cookie that no script reads ([`crate::access`]). Every state of a page has an
//! address of its own. Charts are the API's own pictures, inline, under [`page_style_sheet`].

mod missing;
mod shared;
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
const FILES: [(&str, &str, &str); 25] = [
    ("style.css", CSS, include_str!("page/style.css")),
    ("icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
    script!("app.js"),
    script!("api.js"),
    script!("breakdown.js"),
    script!("chart.js"),
    script!("compare.js"),
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
    script!("state.js"),
    script!("touch.js"),
    script!("values.js"),
];

/// The files as browsers get them.
static SERVED: LazyLock<Vec<(&str, &str, Bytes)>> = LazyLock::new(|| {
    let files = FILES.iter();
    files
        .map(|(name, kind, text)| (*name, *kind, bare(kind, text).into()))
        .collect()
});

/// Style sheet of the charts.
const CHARTS: &str = "charts.css";

/// Style sheet of the page of a share, which stands alone.
const SHARED: &str = "shared.css";

/// The pages, their files, and signing in and out.
pub(crate) fn routes() -> Router<ApiState> {
    Router::new()
        .route("/", get(page))
        .route("/search", get(page))
        .route("/namespaces", get(page))
        .route("/compare", get(page))
        .route("/state", get(page))
        .route("/keys/{namespace}/{key}", get(page))
        .route("/keys/{namespace}/{key}/by/{subtotal}", get(page))
        .route("/reach/{namespace}/{key}", get(page))
        .route("/people", get(page))
        .route("/days", get(page))
        .route("/days/{day}", get(page))
        .route("/dashboard/{file}", get(file))
        .route("/shared", get(shared::page))
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
    if name == SHARED {
        return cached(&headers, CSS, include_str!("page/shared.css"));
    }
    match SERVED.iter().find(|(known, ..)| *known == name) {
        Some((_, kind, text)) => cached(&headers, kind, text.clone()),
        None => missing(&headers, &format!("/dashboard/{name}")),
    }
}

/// A text without what a browser has no use for: comment lines, indentation, and spaces beside signs. No string of it
/// may go on over the end of a line.
fn bare(kind: &str, text: &str) -> String {
    let is_comment =
        |line: &str| line.starts_with("//") || line.starts_with("/*") && line.ends_with("*/");
    // Spaces before and behind these have no meaning, nor have ends of lines behind the last ones. A plus and a minus
    // may be signs of what is behind them, and in a style sheet a colon begins a part of a selector, and a bracket one
    // of a sum.
    let (before, behind, open) = match kind {
        JAVASCRIPT => (",;:{}()[]=<>?!&|", ",;:{}()[]=<>?!&|", ",;{(["),
        CSS => (",;{}>", ",;:{}>", ",;{}"),
        _ => ("", "", ""),
    };
    let lines = text.lines().map(str::trim_start);
    let mut bare = String::with_capacity(text.len());
    for line in lines.filter(|line| !line.is_empty() && !is_comment(line)) {
        // Behind these a quotation mark may stand within something else.
        let plain = line.find(['`', '\'', '/', '\\']).unwrap_or(line.len());
        let (plain, rest) = line.split_at(plain);
        for (number, part) in plain.split('"').enumerate() {
            if number > 0 {
                bare.push('"');
            }
            match number % 2 {
                0 => push_close(&mut bare, part, (before, behind)),
                _ => bare.push_str(part),
            }
        }
        bare.push_str(rest);
        // A comment may end this line.
        if !line.ends_with(|last| open.contains(last)) || line.contains("//") {
            bare.push('\n');
        }
    }
    bare
}

/// Adds a part of a line to `text` without the spaces before and behind these signs.
fn push_close(text: &mut String, part: &str, (before, behind): (&str, &str)) {
    let mut letters = part.chars().peekable();
    let mut last = None;
    while let Some(letter) = letters.next() {
        let is_between = letters.peek().is_some_and(|&next| before.contains(next))
            || last.is_some_and(|last| behind.contains(last));
        if letter != ' ' || !is_between {
            text.push(letter);
            last = Some(letter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_served_without_comments_indentation_and_spaces_beside_signs() {
        let text = "// Why.\nconst a = { b: \"c, d\", e: 1 - -2 };\n  // Not \"b\".\n  f(a, `g, h`, 1);\n\nreturn !a;\nconst i = 1; // j;\nk()\n";
        assert_eq!(
            bare(JAVASCRIPT, text),
            "const a={b:\"c, d\",e:1 - -2};f(a,`g, h`, 1);return!a;const i=1;// j;\nk()\n"
        );
        let text = "/* Why. */\n.a > b, c :is(d, e) { f: calc((g - 1px) / 2); h: \"i; j\"; }\n";
        assert_eq!(
            bare(CSS, text),
            ".a>b,c :is(d,e){f:calc((g - 1px) / 2); h: \"i; j\"; }"
        );
        assert_eq!(bare("image/svg+xml", "<a b=\"c\" />\n"), "<a b=\"c\" />\n");
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
