//! The answer about an id: its verdict, and each count of it that the log has.

use serde::Serialize;
use serde_json::{Map, Value};
use tallyring_realtime::{IdCount, IdHistory, Logged, Store};
use tallyring_records::{Grain, Increment, Offset, Record, Schema, Text, TimeCode};

use crate::calendar::rfc3339_utc;
use crate::problem::sentence;

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
    /// It was voided, by whom and why: it leaves the counts with the next reconcile of its day
    #[serde(skip_serializing_if = "Option::is_none")]
    voided: Option<VoidedEvent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<RefusedEvent>,
    /// The counts of the id before that one, oldest first; left out where the log has none
    #[serde(skip_serializing_if = "Vec::is_empty")]
    earlier: Vec<EarlierCount>,
    /// Number of counts in the log that are older than those of `earlier`, which has 1,023 at most; left out where
    /// it is 0
    #[serde(skip_serializing_if = "is_zero")]
    earlier_left_out: usize,
    /// Every count that arrived since then is told; older ones may have left the log
    log_from: String,
    /// True where a file of older ids is damaged, so that earlier counts may be missing; left out else
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
    /// The verdicts of other identities that know the id, for a key with the scope admin; left out where there are none
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(no_recursion)]
    pub(super) others: Vec<IdVerdict>,
}

/// A count of an id that counted again later, once it was no longer remembered.
#[derive(Default, Serialize, utoipa::ToSchema)]
struct EarlierCount {
    verdict: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    counted: Option<CountedEvent>,
    /// The first time the id came again after this count
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicate: Option<DuplicateEvent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filtered: Option<FilteredEvent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    voided: Option<VoidedEvent>,
}

/// The fate of an id.
#[derive(Clone, Copy, Default, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Counted,
    /// Counted, but late.
    Corrected,
    Filtered,
    #[default]
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
    /// The generation that holds it; null while it is a delta, which may take weeks: exports wait until they are worth
    /// a merge
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

/// The void that takes an id out of the counts of its day.
#[derive(Serialize, utoipa::ToSchema)]
struct VoidedEvent {
    reason: String,
    /// Id of the API key that ordered it; `installation` where there were none
    actor: String,
    /// When the void was ordered
    at: String,
    /// True while another key must confirm it: it stays in the counts; left out otherwise
    #[serde(skip_serializing_if = "Option::is_none")]
    pending: Option<bool>,
    /// Id of the API key that asked for a void that another key confirmed; left out where none had to
    #[serde(skip_serializing_if = "Option::is_none")]
    asked_by: Option<String>,
}

/// Why an id was refused.
#[derive(Serialize, utoipa::ToSchema)]
struct RefusedEvent {
    position: String,
    arrived: String,
    field: String,
    detail: String,
}

/// The id that is asked for, and what each verdict on it says alike.
pub(super) struct Asked<'a> {
    id: &'a str,
    source: Option<&'a str>,
    store: &'a Store,
    log_from: String,
}

impl<'a> Asked<'a> {
    pub(super) fn new(store: &'a Store, id: &'a str, source: Option<&'a str>) -> Self {
        let from_ms = store.intake().id_histories_from_ms();
        Self {
            id,
            source,
            store,
            log_from: rfc3339_utc(from_ms.div_euclid(1_000)),
        }
    }

    /// The verdict of one identity; none where its history has neither a count nor a refusal.
    pub(super) fn verdict(&self, identity: Option<Text>, history: IdHistory) -> Option<IdVerdict> {
        let counts = history.counts.iter();
        let mut earlier: Vec<EarlierCount> = counts
            .filter_map(|count| self.count(count, history.again(count)))
            .collect();
        let refused = history.refused.and_then(refused);
        let newest = match (earlier.pop(), &refused) {
            (Some(newest), _) => newest,
            (None, Some(_)) => EarlierCount::default(),
            (None, None) => return None,
        };
        Some(IdVerdict {
            id: self.id.to_owned(),
            source: self.source.map(str::to_owned),
            identity: identity.map(String::from),
            verdict: newest.verdict,
            counted: newest.counted,
            duplicate: newest.duplicate,
            filtered: newest.filtered,
            voided: newest.voided,
            refused,
            earlier,
            earlier_left_out: history.older,
            log_from: self.log_from.clone(),
            partial: history.is_partial,
            others: Vec::new(),
        })
    }

    fn count(&self, count: &IdCount, again: Option<&Logged>) -> Option<EarlierCount> {
        let filtered = filtered(&count.logged);
        let counted = counted(self.store, count);
        let verdict = match (&counted, &filtered) {
            (Some(counted), _) if counted.late => Verdict::Corrected,
            (Some(_), _) => Verdict::Counted,
            (None, Some(_)) => Verdict::Filtered,
            (None, None) => return None,
        };
        Some(EarlierCount {
            verdict,
            counted,
            duplicate: again.map(|again| duplicate(again, count.logged.offset)),
            filtered,
            voided: voided(count),
        })
    }
}

fn counted(store: &Store, count: &IdCount) -> Option<CountedEvent> {
    let (position, arrived) = place(&count.logged);
    let (is_outside, increment) = match &count.logged.record {
        Record::Increment(increment) => (false, increment),
        Record::Late(increment) => (true, increment),
        _ => return None,
    };
    let event = increment.event.as_ref();
    let is_correction = event.is_some_and(|event| event.correction);
    let mut said = said(increment);
    Some(CountedEvent {
        position,
        arrived,
        at: rfc3339_utc(increment.at),
        n: increment.n,
        late: is_outside || is_correction,
        buckets: buckets(&store.schema_at(count.logged.offset.sequence), increment),
        set_aside: set_aside(increment),
        insertion: said.remove("insertion"),
        referrer: said.remove("referrer"),
        evidence: said.remove("evidence"),
        meta: said.remove("meta"),
        kind: event.map(|event| event.kind.clone()),
        generation: count.generation,
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

fn duplicate(again: &Logged, of: Offset) -> DuplicateEvent {
    let (position, arrived) = place(again);
    DuplicateEvent {
        position,
        arrived,
        of: of.to_string(),
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

fn voided(count: &IdCount) -> Option<VoidedEvent> {
    let asked = count.void_asked.as_ref();
    let logged = count.voided.as_ref().or(asked)?;
    let (_, at) = place(logged);
    let (Record::Void(void) | Record::VoidAsked(void)) = &logged.record else {
        return None;
    };
    let asked_by = asked.and_then(|asked| match &asked.record {
        Record::VoidAsked(asked) if count.voided.is_some() => Some(asked.actor.clone()),
        _ => None,
    });
    Some(VoidedEvent {
        reason: void.reason.clone(),
        actor: void.actor.clone(),
        at,
        pending: count.voided.is_none().then_some(true),
        asked_by,
    })
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

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands in a reference"
)]
fn is_zero(count: &usize) -> bool {
    *count == 0
}
