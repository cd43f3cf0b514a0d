//! `GET /v1/events/{id}`: what became of an event or increment, by its id.

mod verdict;
pub(crate) mod void;

use std::borrow::Cow;
use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use percent_encoding::percent_decode_str;
use tallyring_realtime::{ID_COUNTS_MAX, IdHistory, Logged, Store};
use tallyring_records::{Offset, Record, Text, check_identity};

use crate::access::{Caller, Length};
use crate::calendar::rfc3339_utc;
use crate::problem::{Problem, Result};
use crate::query_string::QueryString;
use crate::segments::Segments;
use crate::state::ApiState;
use crate::work::reading;
use crate::write::cloud_event;

use verdict::{Asked, IdVerdict};

/// The fate of an id
///
/// As long as the log is kept, its journal included: counted (in which buckets and which generation), corrected
/// (counted late, after its time was settled), filtered (by which rule) or refused (for which field); and when it came
/// again first. An id counts again once it is no longer remembered (25 hours after it came, by default): the verdict is
/// that on its newest count, and `earlier` has those before, oldest first. Every count that arrived since `log_from` is
/// told, but not every older one. Where a whole batch is refused, only the wrong item has a verdict; the others were
/// not seen. `voided` says who voided a count and why; it leaves with the next reconcile of its day. A CloudEvent has
/// its id within its `source`. A key is told of ids of its own identity, and of those from before there were keys; a
/// key with the scope admin of all. A key that is limited to namespaces is told of what names no others.
#[utoipa::path(get, path = "/v1/events/{id}", tag = "read",
    params(
        ("id" = String, Path, description = "An event's or increment's id, percent-encoded", example = "e1"),
        ("source" = Option<String>, Query, description = "The source of a CloudEvent", example = "/shop"),
        ("identity" = Option<String>, Query, description = "The identity that sent it; another than that of the key needs the scope admin", example = "2bq4xyz7"),
    ),
    responses((status = 200, description = "The verdict", body = IdVerdict, example = json!({
        "id": "e1", "verdict": "counted", "counted": {
            "position": "1:17", "arrived": "2012-03-16T18:40:48Z", "at": "2012-03-16T18:40:47Z", "n": 1,
            "type": "click", "late": false,
            "buckets": [{
                "namespace": "ad_click", "key": "42", "start": "2012-03-16T18:00:00Z", "minute": "2012-03-16T18:40:00Z",
            }],
            "generation": null,
        },
        "duplicate": { "position": "1:18", "arrived": "2012-03-16T18:40:49Z", "of": "1:17" },
        "log_from": "2012-03-09T18:40:49Z",
    }))),
)]
pub(crate) async fn verdict(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(id): Segments<String>,
    RawQuery(query): RawQuery,
) -> Result<impl IntoResponse> {
    let (sought, identity) = Sought::new(id, query.as_deref())?;
    let whose = Whose::asked(&state, &caller, identity)?;
    let stores = Arc::clone(state.stores());
    let verdict = reading(&state, Length::Long, move |view| {
        let store = &stores.all()[stores.strand_of(&sought.known_as())];
        let check = || view.check();
        let histories = whose.histories(store, &sought.known_as(), &check)?;
        let missing = Missing::of(&histories);
        let asked = Asked::new(store, &sought.id, sought.source.as_deref());
        let verdicts = histories
            .into_iter()
            .filter_map(|(identity, history)| asked.verdict(identity, visible(&caller, history)));
        let mut verdicts = verdicts.collect::<Vec<_>>().into_iter();
        let unseen = || unseen(store, &sought.id, &caller, (&whose, missing));
        let mut first = verdicts.next().ok_or_else(unseen)?;
        first.others = verdicts.collect();
        Ok(Json(first))
    });
    // It may come again, or be exported, at any time.
    Ok(([(header::CACHE_CONTROL, "no-cache")], verdict.await?))
}

/// The text by which the log knows the id of a request to `/v1/events/{id}`; none where that cannot be read.
pub(crate) fn known_as(id: &str, query: Option<&str>) -> Option<String> {
    let id = percent_decode_str(id).decode_utf8().ok()?;
    let (sought, _) = Sought::new(id.into_owned(), query).ok()?;
    Some(sought.known_as().into_owned())
}

/// The id that is asked for.
struct Sought {
    id: String,
    /// The source of a CloudEvent.
    source: Option<String>,
}

impl Sought {
    /// Reads the parameters. Returns the identity that is named, too.
    fn new(id: String, query: Option<&str>) -> Result<(Self, Option<String>)> {
        let mut query = QueryString::parse(query)?;
        let named =
            |text: Option<Cow<'_, str>>| text.filter(|text| !text.is_empty()).map(Cow::into_owned);
        let source = named(query.take("source")?);
        let identity = named(query.take("identity")?);
        query.finish("source, identity and after")?;
        Ok((Self { id, source }, identity))
    }

    /// The id by which the log knows it.
    fn known_as(&self) -> Cow<'_, str> {
        match &self.source {
            Some(source) => cloud_event::identity(source, &self.id).into(),
            None => Cow::Borrowed(&self.id),
        }
    }
}

/// Counts of an id that no record tells of.
#[derive(Clone, Copy)]
struct Missing {
    /// Arrival of the newest one whose record has left the log, Unix milliseconds.
    left_ms: Option<i64>,
    /// True where a damaged file may have some.
    is_partial: bool,
}

impl Missing {
    fn of(histories: &[(Option<Text>, IdHistory)]) -> Self {
        let histories = histories.iter().map(|(_, history)| history);
        Self {
            left_ms: histories.clone().filter_map(|of| of.left_ms).max(),
            is_partial: histories.clone().any(|of| of.is_partial),
        }
    }
}

/// 404 for an id that the log does not have.
fn unseen(
    store: &Store,
    id: &str,
    caller: &Caller,
    (whose, missing): (&Whose, Missing),
) -> Problem {
    let at = |ms: i64| rfc3339_utc(ms.div_euclid(1_000));
    let intake = store.intake();
    let of_whom = match whose {
        Whose::One(identity) => format!("; ids of the identity {identity} were asked for"),
        Whose::All(_) => String::new(),
    };
    // A key that is limited is told of no record whose namespaces are not known.
    if let Some(left_ms) = missing.left_ms.filter(|_| !caller.is_limited()) {
        let detail = format!(
            "was counted or filtered when it came on {}, and its record has left the log, which begins on {}; a longer \
             `oplog.keep_days` or `journal.keep_days` keeps records{of_whom}",
            at(left_ms),
            at(intake.log_begun_ms())
        );
        return Problem::unknown("id", id, detail);
    }
    let partial = match missing.is_partial {
        true => "; a file of older ids is damaged, so it may have been seen",
        false => "",
    };
    let limited = match caller.is_limited() {
        true => "; this key sees only ids that name no namespaces but its own",
        false => "",
    };
    let detail = format!(
        "was not seen since {}, and older ids are not known; a batch that was refused as a whole is there with its wrong \
         item only, and a CloudEvent with its id within its `source`{partial}{limited}{of_whom}",
        at(intake.ids_known_from_ms())
    );
    Problem::unknown("id", id, detail)
}

/// The identities whose ids are asked for.
enum Whose {
    One(Text),
    /// All that may have sent something.
    All(Vec<Text>),
}

impl Whose {
    /// The identity that is named, else that of the key; all for a key with the scope admin, and without keys.
    fn asked(state: &ApiState, caller: &Caller, named: Option<String>) -> Result<Self> {
        if let Some(name) = &named {
            check_identity(name)?;
        }
        let sees_all = caller.sees_all_identities();
        match (named, caller.identity()) {
            (None, Some(own)) if !sees_all => Ok(Self::One(own.clone())),
            (None, _) => Ok(Self::All(state.access.writing_identities())),
            (Some(name), own) if sees_all || own.is_some_and(|own| *own == *name) => {
                Ok(Self::One(name.into()))
            }
            (Some(name), _) => {
                let detail = format!(
                    "The identity `{name}` is not that of this key: leave `identity` out, or use a key with the scope `admin`."
                );
                let problem = Problem::new(StatusCode::FORBIDDEN, "Forbidden", detail);
                Err(problem.about("identity", Some(name)))
            }
        }
    }

    /// The histories of an id by identity, the earliest first. Records from before there were keys belong to every
    /// identity. All together list [`ID_COUNTS_MAX`] counts, and one of each identity at least. `check` is called
    /// between counts.
    fn histories(
        &self,
        store: &Store,
        id: &str,
        check: &dyn Fn() -> tallyring_realtime::Result<()>,
    ) -> tallyring_realtime::Result<Vec<(Option<Text>, IdHistory)>> {
        let history = |identity| store.intake().id_history_while(identity, id, check);
        let unowned = history(None)?;
        let identities = match self {
            Self::One(identity) => {
                let known = history(Some(identity))?.and(unowned);
                return Ok(vec![(Some(identity.clone()), known)]);
            }
            Self::All(identities) => identities,
        };
        let (mut histories, mut left) = (Vec::new(), ID_COUNTS_MAX);
        for identity in identities {
            let own = history(Some(identity))?;
            if !own.is_empty() {
                let place = place(&own).or_else(|| place(&unowned));
                let mut known = own.and(unowned.clone());
                known.keep_newest(left.max(1));
                left = left.saturating_sub(known.counts.len());
                histories.push((place, Some(identity.clone()), known));
            }
        }
        // A duplicate of what came before there were keys tells of that, too.
        if histories
            .iter()
            .all(|(_, _, history)| history.counts.last() != unowned.counts.last())
        {
            histories.push((place(&unowned), None, unowned));
        }
        histories.sort_by_key(|(place, ..)| *place);
        let histories = histories.into_iter();
        Ok(histories
            .map(|(_, identity, history)| (identity, history))
            .collect())
    }
}

/// Offset of the first count of an id, else of its refusal.
fn place(history: &IdHistory) -> Option<Offset> {
    let first = history.counts.first().map(|count| &count.logged);
    first
        .or(history.refused.as_ref())
        .map(|logged| logged.offset)
}

/// The part of a history that the key may see: a record that names a namespace of others, or none that is known, counts
/// as not seen.
fn visible(caller: &Caller, mut history: IdHistory) -> IdHistory {
    if !caller.is_limited() {
        return history;
    }
    let is_own = |namespace: &str| caller.check_namespace(namespace).is_ok();
    let is_visible = |logged: &Logged| match &logged.record {
        Record::Increment(increment)
        | Record::Late(increment)
        | Record::Filtered { increment, .. } => increment.keys.iter().all(|(name, _)| is_own(name)),
        Record::Refused { namespaces, .. } => {
            !namespaces.is_empty() && namespaces.iter().all(|name| is_own(name))
        }
        _ => false,
    };
    history.counts.retain(|count| is_visible(&count.logged));
    history.refused = history.refused.filter(is_visible);
    history
}
