//! `POST /v1/users/lookup`: all that is kept of what one person did, newest first, for a request for access.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tallyring_realtime::{Charge, Did, View};
use tallyring_records::{Action, Day, FieldError, TimeCode, What, is_hash, sum_capped, tag_text};

use super::fields::Fields;
use super::read_question;
use crate::access::Length;
use crate::calendar::rfc3339_utc;
use crate::problem::{Problem, Result};
use crate::read::reply::held;
use crate::state::ApiState;
use crate::work::reading;

const BODY_BYTES_MAX: usize = 16 << 10;
const PAGE_MAX: u64 = 1_000;
/// Most days that are read at a time: a busy person's actions of so many days are held together.
const DAYS_MAX: i64 = 32;
const DAY: i64 = 86_400;
/// Memory of an action in the answer and of its text, besides what it names.
const DEED_BYTES: usize = 512;
const EXAMPLE: &str = r#"{"user":"ann"}"#;
const KNOWN: &str = "user, limit and before";

/// The actions of one person, newest first.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Deeds {
    user: String,
    /// Earlier actions may be gone; null where none is
    kept_from: Option<String>,
    actions: Vec<Deed>,
    /// Give it as `before` for the next page; missing on the last page
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// Everything before this position of the log was counted
    position: String,
}

/// One action, or several that are equal.
#[derive(Serialize, utoipa::ToSchema)]
struct Deed {
    at: String,
    #[serde(rename = "type")]
    kind: String,
    /// The view; 12 characters that stand for it where it is long and nothing was counted by it
    #[serde(skip_serializing_if = "Option::is_none")]
    view: Option<String>,
    /// The key of each entity
    entities: BTreeMap<String, String>,
    /// 48 keyed bits of the insertion: equal for equal insertions
    #[serde(skip_serializing_if = "Option::is_none")]
    insertion: Option<String>,
    /// How often, where it is not once
    #[serde(skip_serializing_if = "Option::is_none")]
    n: Option<u64>,
    /// True where it happened at any time of the hour that begins with `at`
    #[serde(skip_serializing_if = "Option::is_none")]
    by_hour: Option<bool>,
}

/// A question for one person.
struct Lookup {
    user: String,
    limit: usize,
    before: Option<Place>,
}

/// The place of an action among all of a person: by its time, and by all else where times are equal.
struct Place {
    at: i64,
    by_hour: bool,
    what: Vec<u8>,
    tag: Option<u64>,
}

/// All actions of one person
///
/// An answer to a person who asks what is known: every action that is kept, newest first, at most `limit` (1,000) a
/// page. `before` continues with the `next` of the page before. Needs the scope `admin`. Files do not hold the name of
/// a user or of an insertion; `insertion` is equal for equal insertions.
#[utoipa::path(post, path = "/v1/users/lookup", operation_id = "look_up_user", tag = "actions",
    params(("after" = Option<String>, Query, description = "The `position` of an answer: this one counts everything before it, or is 503 after 100 ms", example = "2:881")),
    request_body(content = String, content_type = "application/json", example = json!({"user": "ann", "limit": 2})),
    responses((status = 200, description = "What the person did, newest first", body = Deeds, example = json!({
        "user": "ann", "kept_from": "2012-02-01T00:00:00Z", "actions": [
            {"at": "2012-03-16T18:40:47Z", "type": "click", "view": "home", "entities": {"ad": "42", "campaign": "7"},
                "insertion": "3q2-7wAAAAA"},
            {"at": "2012-03-16T18:40:12Z", "type": "impression", "entities": {"ad": "42"}, "n": 2},
        ], "next": "c6r,67212.impression..ad=42", "position": "2:881"}))),
)]
pub(crate) async fn lookup(
    State(state): State<ApiState>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response> {
    let bytes = read_question(&state, (&uri, &headers), body, BODY_BYTES_MAX).await?;
    let lookup = Lookup::parse(&bytes)?;
    reading(&state, Length::Short, move |view| {
        let mut charge = view.reading().charge();
        let deeds = lookup.answer(view, &mut charge)?;
        let text = serde_json::to_vec(&deeds).expect("BUG: texts and numbers are JSON");
        let headers = [
            (header::CONTENT_TYPE, "application/json"),
            (header::CACHE_CONTROL, "no-store"),
        ];
        Ok((headers, held(text, charge)).into_response())
    })
    .await
}

impl Lookup {
    fn parse(bytes: &[u8]) -> Result<Self> {
        let mut fields = Fields::of_body(bytes, EXAMPLE)?;
        let user = fields.user()?;
        let limit = fields.number("limit")?.unwrap_or(PAGE_MAX);
        if !(1..=PAGE_MAX).contains(&limit) {
            let detail = format!("must be 1 to {PAGE_MAX}");
            return Err(FieldError::refused("limit", &limit.to_string(), detail).into());
        }
        let place = |text: String| {
            Place::parse(&text).ok_or_else(|| {
                let detail = "must be the `next` of an answer";
                Problem::malformed("before", &text, detail)
            })
        };
        let before = fields.text("before")?.map(place).transpose()?;
        fields.finish(KNOWN)?;
        Ok(Self {
            user,
            limit: limit as usize,
            before,
        })
    }

    /// Reads days from the newest on, ever more at a time, until the page is full.
    fn answer(self, view: &View<'_>, charge: &mut Charge) -> Result<Deeds> {
        let mut page = Page {
            view,
            limit: self.limit,
            deeds: Vec::new(),
            texts: HashMap::new(),
            last: None,
            has_more: false,
        };
        let span = view.actions_span();
        let behind = |place: &Place| Day::of(place.at).next().start();
        let mut end = self.before.as_ref().map_or(span.end, behind).min(span.end);
        let mut days = 1;
        while end > span.start && !page.has_more {
            let start = (end - days * DAY).max(span.start);
            page.take(&self.user, start..end, self.before.as_ref(), charge)?;
            (end, days) = (start, (2 * days).min(DAYS_MAX));
        }
        let last = page.last.filter(|_| page.has_more);
        Ok(Deeds {
            kept_from: view.actions_from().map(rfc3339_utc),
            next: last.as_ref().map(Place::text),
            actions: page.deeds,
            position: view.position().to_string(),
            user: self.user,
        })
    }
}

/// A page of an answer that is not full yet.
struct Page<'v> {
    view: &'v View<'v>,
    limit: usize,
    deeds: Vec<Deed>,
    /// Texts behind stored forms.
    texts: HashMap<String, String>,
    /// The place of the last action of the page.
    last: Option<Place>,
    /// True once an action did not fit.
    has_more: bool,
}

impl Page<'_> {
    /// Takes what a person did in a range, Unix seconds.
    fn take(
        &mut self,
        user: &str,
        range: Range<i64>,
        before: Option<&Place>,
        charge: &mut Charge,
    ) -> Result<()> {
        let users = [user.to_owned()];
        let found = self.view.actions(&users, &range, false)?;
        let mut found = found.expect("BUG: files answer all");
        let mut did = found.users.pop().unwrap_or_default();
        let place = |did: &Did| place_of(did, found.whats.get(did.what));
        did.sort_unstable_by(|a, b| place(b).cmp(&place(a)));
        for equal in did.chunk_by(|a, b| place(a) == place(b)) {
            let place = place(&equal[0]);
            if before.is_some_and(|before| place >= before.parts()) {
                continue;
            }
            if self.deeds.len() == self.limit {
                self.has_more = true;
                return Ok(());
            }
            let n = sum_capped(equal.iter().map(|did| did.n));
            self.push(place, n, charge)?;
            self.last = Some(Place::of(place));
        }
        Ok(())
    }

    fn push(
        &mut self,
        (at, by_hour, what, tag): Parts<'_>,
        n: u64,
        charge: &mut Charge,
    ) -> Result<()> {
        let text = std::str::from_utf8(what).unwrap_or_default();
        let Some(what) = What::parse(text) else {
            return Ok(());
        };
        let mut entities = BTreeMap::new();
        let mut view = None;
        for (entity, stored) in what.entities() {
            let namespace = format!("{entity}_{}", what.kind);
            let total = (namespace.as_str(), stored);
            let key = self.text(total, stored, at, charge)?;
            entities.insert(entity.to_owned(), key);
            // A view is a value of each of these keys, where its namespace has such a subtotal.
            if let (Some(stored), None) = (what.view, &view) {
                let text = self.text(total, stored, at, charge)?;
                view = Some(text).filter(|text| text != stored);
            }
        }
        let view = view.or(what.view.map(str::to_owned));
        // Each text is held twice: in the answer and as JSON, where its characters may be escaped.
        let named: usize = entities.values().chain(&view).map(String::len).sum();
        charge.grow(DEED_BYTES + 2 * (text.len() + named))?;
        self.deeds.push(Deed {
            at: rfc3339_utc(at),
            kind: what.kind.to_owned(),
            view,
            entities,
            insertion: tag.map(tag_text),
            n: Some(n).filter(|&n| n != 1),
            by_hour: Some(true).filter(|_| by_hour),
        });
        Ok(())
    }

    /// The text behind a stored form that was counted for this total at this instant.
    fn text(
        &mut self,
        total: (&str, &str),
        stored: &str,
        at: i64,
        charge: &mut Charge,
    ) -> Result<String> {
        if !is_hash(stored) {
            return Ok(stored.to_owned());
        }
        if let Some(known) = self.texts.get(stored) {
            return Ok(known.clone());
        }
        let text = self.view.text_at(total, stored, at)?;
        if text != stored {
            charge.grow(DEED_BYTES + text.len())?;
            self.texts.insert(stored.to_owned(), text.clone());
        }
        Ok(text)
    }
}

/// The parts of a [`Place`].
type Parts<'p> = (i64, bool, &'p [u8], Option<u64>);

fn place_of<'w>(did: &Did, what: &'w [u8]) -> Parts<'w> {
    (did.at, did.by_hour, what, did.tag)
}

impl Place {
    fn of((at, by_hour, what, tag): Parts<'_>) -> Self {
        Self {
            at,
            by_hour,
            what: what.to_owned(),
            tag,
        }
    }

    fn parts(&self) -> Parts<'_> {
        (self.at, self.by_hour, &self.what, self.tag)
    }

    /// The text that [`Place::parse`] reads: the day and the action, as a line of the archive has them.
    fn text(&self) -> String {
        let day = Day::of(self.at);
        let action = Action {
            second: (self.at - day.start()) as u32,
            by_hour: self.by_hour,
            what: &self.what,
            tag: self.tag,
        };
        let mut text = Vec::new();
        day.code().write_to(&mut text);
        text.push(b',');
        action.write_value(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    fn parse(text: &str) -> Option<Self> {
        let (code, value) = text.split_once(',')?;
        let code = TimeCode::parse(code.as_bytes()).ok()?;
        let action = Action::parse(value.as_bytes())?;
        Some(Self {
            at: Day::of(code.start()).start() + i64::from(action.second),
            by_hour: action.by_hour,
            what: action.what.to_owned(),
            tag: action.tag,
        })
    }
}
