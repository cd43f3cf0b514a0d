//! `GET /v1/events/{id}`: what became of an event or increment, by its id.

use std::borrow::Cow;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use serde::Serialize;
use serde_json::{Map, Value};
use tallyring_realtime::{IdHistory, Logged, Store};
use tallyring_records::{
    Grain, Increment, Offset, Record, Schema, Text, TimeCode, check_identity, how_many,
};

use crate::access::Caller;
use crate::calendar::rfc3339_utc;
use crate::problem::{Problem, Result, sentence};
use crate::query_string::QueryString;
use crate::refusals::ReadErrors;
use crate::segments::Segments;
use crate::state::ApiState;
use crate::work::blocking;
use crate::write::cloud_event;

/// The verdict on an id.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct IdVerdict {
    id: String,
    /// The source of a CloudEvent, within which the id is one
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    /// The identity that sent it; left out where it came before there were keys
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<String>,
    verdict: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    counted: Option<CountedEvent>,
    /// The first time the id came again
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicate: Option<DuplicateEvent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filtered: Option<FilteredEvent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<RefusedEvent>,
    /// The verdicts of other identities that know the id, for a key with the scope admin; left out where there are none
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(no_recursion)]
    others: Vec<IdVerdict>,
}

/// The fate of an id.
#[derive(Clone, Copy, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Counted,
    /// Counted, but late.
    Corrected,
    Filtered,
    Refused,
}

/// A field that did not count.
#[derive(Serialize, utoipa::ToSchema)]
struct SetAside {
    field: String,
    /// At most 64 characters
    value: String,
}

/// Where an id was counted.
#[derive(Serialize, utoipa::ToSchema)]
struct CountedEvent {
    /// Where in the log it stands, as in every verdict: epoch and sequence
    position: String,
    arrived: String,
    at: String,
    n: u64,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// Wrong fields, without which it counted
    #[serde(skip_serializing_if = "Vec::is_empty")]
    set_aside: Vec<SetAside>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    insertion: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    referrer: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    evidence: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    meta: Option<Value>,
    /// It came after its time was settled, or for a day that was exported before or lies outside the ring: as the
    /// answer to it said
    late: bool,
    buckets: Vec<EventBucket>,
    /// The generation that holds it; null while it is a delta
    generation: Option<u64>,
}

/// A base bucket.
#[derive(Serialize, utoipa::ToSchema)]
struct EventBucket {
    namespace: String,
    key: String,
    start: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    minute: Option<String>,
}

/// A duplicate of what was counted.
#[derive(Serialize, utoipa::ToSchema)]
struct DuplicateEvent {
    position: String,
    arrived: String,
    /// Position of the first, which counted or was filtered
    of: String,
}

/// Which rule kept an id from being counted.
#[derive(Serialize, utoipa::ToSchema)]
struct FilteredEvent {
    position: String,
    arrived: String,
    rule: String,
}

/// Why an id was refused.
#[derive(Serialize, utoipa::ToSchema)]
struct RefusedEvent {
    position: String,
    arrived: String,
    field: String,
    detail: String,
}

/// The fate of an id
///
/// As long as the log is kept: counted (in which buckets and which generation), corrected (counted late, after its time
/// was settled), filtered (by which rule) or refused (for which field); and when it came again first. Where a whole
/// batch is refused, only the wrong item has a verdict; the others were not seen. A CloudEvent has its id within its
/// `source`. A key is told of ids of its own identity, and of those from before there were keys; a key with the scope
/// admin of all. A key that is limited to namespaces is told of what names no others.
#[utoipa::path(get, path = "/v1/events/{id}", tag = "read",
    params(
        ("id" = String, Path, description = "An event's or increment's id, percent-encoded", example = "e1"),
        ("source" = Option<String>, Query, description = "The source of a CloudEvent", example = "/shop"),
        ("identity" = Option<String>, Query, description = "The identity that sent it; another than that of the key needs the scope admin", example = "2bq4xyz7"),
    ),
    responses(
        (status = 200, description = "The verdict", body = IdVerdict, example = json!({
            "id": "e1", "verdict": "counted", "counted": {
                "position": "1:17", "arrived": "2012-03-16T18:40:48Z", "at": "2012-03-16T18:40:47Z", "n": 1,
                "type": "click", "late": false,
                "buckets": [{
                    "namespace": "ad_click", "key": "42", "start": "2012-03-16T18:00:00Z", "minute": "2012-03-16T18:40:00Z",
                }],
                "generation": null,
            },
            "duplicate": { "position": "1:18", "arrived": "2012-03-16T18:40:49Z", "of": "1:17" },
        })),
        ReadErrors,
    ),
)]
pub(crate) async fn verdict(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(id): Segments<String>,
    RawQuery(query): RawQuery,
) -> Result<impl IntoResponse> {
    let mut query = QueryString::parse(query.as_deref())?;
    let named =
        |text: Option<Cow<'_, str>>| text.filter(|text| !text.is_empty()).map(Cow::into_owned);
    let source = named(query.take("source")?);
    let identity = named(query.take("identity")?);
    query.finish("source and identity")?;
    let whose = Whose::asked(&state, &caller, identity)?;
    let verdict = blocking(&state, move |store| {
        let source = source.as_deref();
        let identity = source.map(|source| cloud_event::identity(source, &id));
        let histories = whose.histories(store, identity.as_deref().unwrap_or(&id))?;
        let verdicts = histories.into_iter().filter_map(|(identity, history)| {
            answer(store, (&id, source), identity, visible(&caller, history))
        });
        let mut verdicts = verdicts.collect::<Vec<_>>().into_iter();
        let first = verdicts.next().ok_or_else(|| {
            let days = how_many(store.options().log_days(), "day");
            let limited = match caller.is_limited() {
                true => "; this key sees only ids that name no namespaces but its own",
                false => "",
            };
            let of_whom = match &whose {
                Whose::One(identity) => format!("; ids of the identity {identity} were asked for"),
                Whose::All(_) => String::new(),
            };
            let detail = format!(
                "was not seen in the log, which is kept for {days}; a batch that was refused as a whole is there with its \
                 wrong item only, and a CloudEvent with its id within its `source`{limited}{of_whom}"
            );
            Problem::unknown("id", &id, detail)
        })?;
        Ok(Json(IdVerdict {
            others: verdicts.collect(),
            ..first
        }))
    });
    // It may come again, or be exported, at any time.
    Ok(([(header::CACHE_CONTROL, "no-cache")], verdict.await?))
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
    /// identity.
    fn histories(
        &self,
        store: &Store,
        id: &str,
    ) -> tallyring_realtime::Result<Vec<(Option<Text>, IdHistory)>> {
        let history = |identity| store.intake().id_history(identity, id);
        let unowned = history(None)?;
        let identities = match self {
            Self::One(identity) => {
                let known = history(Some(identity))?.or(unowned);
                return Ok(vec![(Some(identity.clone()), known)]);
            }
            Self::All(identities) => identities,
        };
        let mut histories = Vec::new();
        for identity in identities {
            let own = history(Some(identity))?;
            if !own.is_empty() {
                histories.push((Some(identity.clone()), own.or(unowned.clone())));
            }
        }
        // A duplicate of what came before there were keys tells of that, too.
        if histories
            .iter()
            .all(|(_, history)| history.counted != unowned.counted)
        {
            histories.push((None, unowned));
        }
        histories.sort_by_key(|(_, history)| {
            let first = history.counted.as_ref().or(history.refused.as_ref());
            first.map(|logged| logged.offset)
        });
        Ok(histories)
    }
}

/// The part of a history that the key may see: a record that names a namespace of others, or none that is known, counts
/// as not seen.
fn visible(caller: &Caller, history: IdHistory) -> IdHistory {
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
    IdHistory {
        counted: history.counted.filter(is_visible),
        refused: history.refused.filter(is_visible),
        ..history
    }
}

fn answer(
    store: &Store,
    (id, source): (&str, Option<&str>),
    identity: Option<Text>,
    history: IdHistory,
) -> Option<IdVerdict> {
    let schema = store.schema();
    let first = history.counted.as_ref().map(|logged| logged.offset);
    let duplicate = history.again.zip(first).and_then(duplicate);
    let filtered = history.counted.as_ref().and_then(filtered);
    let counted = history
        .counted
        .and_then(|logged| counted(&schema, logged, history.generation));
    let refused = history.refused.and_then(refused);
    let verdict = match (&counted, &filtered, &refused) {
        (Some(counted), ..) if counted.late => Verdict::Corrected,
        (Some(_), ..) => Verdict::Counted,
        (_, Some(_), _) => Verdict::Filtered,
        (.., Some(_)) => Verdict::Refused,
        _ => return None,
    };
    Some(IdVerdict {
        id: id.to_owned(),
        source: source.map(str::to_owned),
        identity: identity.map(String::from),
        verdict,
        counted,
        duplicate,
        filtered,
        refused,
        others: Vec::new(),
    })
}

fn counted(schema: &Schema, logged: Logged, generation: Option<u64>) -> Option<CountedEvent> {
    let (position, arrived) = place(&logged);
    let (is_outside, increment) = match logged.record {
        Record::Increment(increment) => (false, increment),
        Record::Late(increment) => (true, increment),
        _ => return None,
    };
    let event = increment.event.as_ref();
    let is_correction = event.is_some_and(|event| event.correction);
    let mut said = said(&increment);
    Some(CountedEvent {
        position,
        arrived,
        at: rfc3339_utc(increment.at),
        n: increment.n,
        late: is_outside || is_correction,
        buckets: buckets(schema, &increment),
        set_aside: set_aside(&increment),
        insertion: said.remove("insertion"),
        referrer: said.remove("referrer"),
        evidence: said.remove("evidence"),
        meta: said.remove("meta"),
        kind: increment.event.map(|event| event.kind),
        generation,
    })
}

fn said(increment: &Increment) -> Map<String, Value> {
    let mut said = Map::new();
    let Some(details) = &increment.details else {
        return said;
    };
    for (name, text) in details.named() {
        let value = match name {
            "meta" => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
            _ => text.into(),
        };
        match name.strip_prefix("evidence.") {
            None => said.insert(name.to_owned(), value),
            Some(name) => {
                let evidence = said.entry("evidence").or_insert_with(|| Map::new().into());
                evidence[name] = value;
                None
            }
        };
    }
    said
}

fn set_aside(increment: &Increment) -> Vec<SetAside> {
    let details = increment.details.as_ref();
    let noted = details.map_or(&[][..], |details| &details.set_aside);
    let of_pair = |(field, value): &(Text, Text)| SetAside {
        field: field.to_string(),
        value: value.to_string(),
    };
    noted.iter().map(of_pair).collect()
}

fn buckets(schema: &Schema, increment: &Increment) -> Vec<EventBucket> {
    let start = |grain| rfc3339_utc(TimeCode::containing(increment.at, grain).start());
    let keys = increment.keys.iter();
    keys.map(|(name, key)| {
        let declared = schema.namespace(name);
        let minutes = declared.is_some_and(|namespace| namespace.minutes);
        EventBucket {
            namespace: name.to_string(),
            key: key.to_string(),
            start: start(declared.map_or(Grain::Hour, |namespace| namespace.grain)),
            minute: minutes.then(|| start(Grain::Minute)),
        }
    })
    .collect()
}

/// None where it repeats an earlier first, which is no longer remembered.
fn duplicate((logged, first): (Logged, Offset)) -> Option<DuplicateEvent> {
    let (position, arrived) = place(&logged);
    match logged.record {
        Record::Duplicate { of, .. } if of == first.sequence => Some(DuplicateEvent {
            position,
            arrived,
            of: first.to_string(),
        }),
        _ => None,
    }
}

fn filtered(logged: &Logged) -> Option<FilteredEvent> {
    let (position, arrived) = place(logged);
    match &logged.record {
        Record::Filtered { rule, .. } => Some(FilteredEvent {
            position,
            arrived,
            rule: rule.clone(),
        }),
        _ => None,
    }
}

fn refused(logged: Logged) -> Option<RefusedEvent> {
    let (position, arrived) = place(&logged);
    match logged.record {
        Record::Refused { field, detail, .. } => Some(RefusedEvent {
            position,
            arrived,
            detail: sentence(Some(&field), None, &detail),
            field,
        }),
        _ => None,
    }
}

fn place(logged: &Logged) -> (String, String) {
    let arrived = rfc3339_utc(logged.arrived_ms.div_euclid(1_000));
    (logged.offset.to_string(), arrived)
}
