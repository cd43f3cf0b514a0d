//! The page of a share: its charts, without any way to elsewhere, for whoever has the link and for pages that embed it.
//!
//! Other sites may frame this page alone. It reads no cookie and has no script, and it names the share to nobody: no
//! request of it tells where it came from, and its charts are on this server.

use axum::extract::State;
use axum::http::{HeaderName, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tallyring_records::dimensions;

use crate::access::{PARAMETER, SharedLink, presented_shares};
use crate::chart::{clean, push_escaped};
use crate::page::HTML;
use crate::state::ApiState;

/// Pages of any site may frame it.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'none'; base-uri 'none'; \
     frame-ancestors *";

const PAGE: &str = include_str!("page/shared.html");

/// Parameters that the page hands on to its charts.
const HANDED_ON: [&str; 6] = ["unit", "units", "from", "to", "timezone", "theme"];
/// Days that the charts show, unless the address says otherwise.
const UNITS_DEFAULT: &str = "units=30";
/// Parameters that say another range than that.
const RANGE: [&str; 3] = ["unit", "units", "from"];

/// A chart: its heading, and the path and parameters of its picture.
struct Chart {
    heading: String,
    path: String,
}

/// The page of the share in the address; 403 where it opens nothing.
pub(crate) async fn page(State(state): State<ApiState>, uri: Uri) -> Response {
    let mut shares = presented_shares(&uri);
    let share = shares.next().filter(|_| shares.next().is_none());
    let link = share.and_then(|share| Some((share, state.access.shared(share)?)));
    let (status, text) = match link {
        Some((share, link)) => (StatusCode::OK, drawn(&state, &uri, share, &link)),
        None => {
            let missing = "<p>This link shows nothing: it has expired, was revoked, or was never one of this server. Ask \
                           whoever gave it to you for another one.</p>";
            (StatusCode::FORBIDDEN, filled("Not shared", missing))
        }
    };
    let headers = [
        (header::CONTENT_TYPE, HTML),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("x-robots-tag"), "noindex"),
    ];
    (status, headers, text).into_response()
}

/// The page of a share that opens something.
fn drawn(state: &ApiState, uri: &Uri, share: &str, link: &SharedLink) -> String {
    let mut query: Vec<&str> = uri.query().unwrap_or_default().split('&').collect();
    query.retain(|part| HANDED_ON.contains(&part.split('=').next().unwrap_or_default()));
    let is_range = |part: &&str| RANGE.contains(&part.split('=').next().unwrap_or_default());
    if !query.iter().any(is_range) {
        query.push(UNITS_DEFAULT);
    }
    let query = query.join("&");
    let mut body = String::new();
    for Chart { heading, path } in charts(state, link) {
        body.push_str("<figure><figcaption>");
        push_escaped(&mut body, &heading);
        body.push_str("</figcaption><img src=\"");
        let joined = if path.contains('?') { '&' } else { '?' };
        push_escaped(
            &mut body,
            &format!("{path}{joined}{query}&{PARAMETER}={share}"),
        );
        body.push_str("\" alt=\"");
        push_escaped(&mut body, &heading);
        body.push_str("\"></figure>\n");
    }
    filled(&title(state, link), &body)
}

fn title(state: &ApiState, link: &SharedLink) -> String {
    let schema = state.store().schema();
    let namespace = schema.namespace(&link.namespace);
    let namespace = namespace.map_or(&*link.namespace, |namespace| namespace.title_or_name());
    match &link.key {
        Some(key) => format!("{namespace} {}", clean(key)),
        None => namespace.to_owned(),
    }
}

fn charts(state: &ApiState, link: &SharedLink) -> Vec<Chart> {
    let schema = state.store().schema();
    let segment = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let of = format!("/v1/namespaces/{}", segment(&link.namespace));
    let chart = |heading: &str, path: String| Chart {
        heading: heading.to_owned(),
        path,
    };
    let subtotals = schema.namespace(&link.namespace);
    let subtotals = subtotals.map_or(&[][..], |namespace| namespace.subtotals.as_slice());
    let plain = subtotals
        .iter()
        .filter(|name| dimensions(name).count() == 1);
    let by = |name: &String| format!("By {}", schema.title_of(name));
    match &link.key {
        Some(key) => {
            let of = format!("{of}/{}", segment(key));
            let counts = chart("Counts", format!("{of}/counts.svg"));
            let parts =
                plain.map(|name| chart(&by(name), format!("{of}/by/{}.svg", segment(name))));
            [counts].into_iter().chain(parts).collect()
        }
        None => {
            let counts = chart("Counts", format!("{of}/counts.svg"));
            let top = chart("Heaviest keys", format!("{of}/top.svg"));
            let parts = plain
                .map(|name| chart(&by(name), format!("{of}/by.svg?subtotal={}", segment(name))));
            [counts, top].into_iter().chain(parts).collect()
        }
    }
}

/// The page with this title, which is text, and this body, which is markup.
fn filled(title: &str, body: &str) -> String {
    let mut escaped = String::new();
    push_escaped(&mut escaped, title);
    // A title may read as the place of the body does.
    let (head, end) = PAGE.split_once("{{body}}").expect("BUG: the page has it");
    format!("{}{body}{end}", head.replace("{{title}}", &escaped))
}
