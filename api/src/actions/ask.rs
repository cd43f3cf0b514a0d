//! A question of caps: a user, the caps to apply, and the candidates; and how it is answered.
//!
//! Live holds count with the actions of a view. A view without an action that was a hold before is too old
//! ([`Stale`](tallyring_realtime::Stale)); the question is then answered from a newer view.

use std::ops::Range;
use std::sync::Arc;

use tallyring_realtime::{Reading, Stores};
use tallyring_records::{FieldError, KEY_BYTES_MAX, SKEW_SECONDS_MAX, Schema};

use super::caps::{ActionRules, Cap};
use super::fields::Fields;
use super::question::{CANDIDATES_MAX, at_most, unique, wrong_length};
use super::{BYTES_AT_ONCE, PARSED_TIMES};
use crate::access::Length;
use crate::body::Received;
use crate::problem::{Problem, Result};
use crate::state::ApiState;
use crate::work::{Begun, reading};

/// How often a view is read: it must be read again after a confirmation in a sixteenth of a shard of the users.
pub(super) const TRIES: usize = 16;

/// The part that a check and a reservation have in common.
pub(super) struct Ask {
    pub user: String,
    /// Caps to apply.
    pub caps: Vec<Cap>,
    pub candidates: Vec<Candidate>,
}

/// Entities and their keys, raw. There are a few.
pub(super) struct Candidate(Vec<(String, String)>);

impl Candidate {
    /// The key of an entity.
    pub(super) fn key(&self, entity: &str) -> Option<&str> {
        let mut entities = self.0.iter();
        let found = entities.find(|(name, _)| name == entity);
        found.map(|(_, key)| key.as_str())
    }
}

impl Ask {
    /// Takes the user, the caps and the candidates out of the fields of a body.
    ///
    /// # Errors
    /// The first of them that is wrong.
    pub(super) fn take(
        fields: &mut Fields<'_>,
        (schema, rules): (&Schema, &ActionRules),
    ) -> Result<Self> {
        let user = fields.user()?;
        let caps = caps(fields.texts("caps")?, rules)?;
        let asked = fields.objects("candidates")?;
        at_most("candidates", asked.len(), CANDIDATES_MAX)?;
        let known = entities(schema);
        let candidates = asked
            .into_iter()
            .map(|fields| candidate(fields, &known, &caps));
        Ok(Self {
            user,
            candidates: candidates.collect::<Result<_, _>>()?,
            caps,
        })
    }

    /// The user, as a list.
    pub(super) fn users(&self) -> &[String] {
        std::slice::from_ref(&self.user)
    }

    /// Where the ranges of all caps begin, Unix seconds.
    pub(super) fn start(&self, at: i64) -> i64 {
        let starts = self.caps.iter().map(|cap| cap.within.start(at));
        starts.min().unwrap_or(at)
    }

    /// The range that holds the ranges of all caps at the present moment, and what senders whose clocks are ahead sent
    /// already, Unix seconds.
    pub(super) fn span_now(&self, now: i64) -> Range<i64> {
        self.start(now)..now.saturating_add(SKEW_SECONDS_MAX + 1)
    }
}

/// Begins to answer the question of a body, at once where memory suffices: to wait for another thread takes longer.
/// `answer` is asked to answer at once first, and again without where it then has no answer.
pub(super) fn begin<Q: Send + 'static, A: Send + 'static>(
    state: &ApiState,
    bytes: Received,
    parse: impl Fn(&[u8], &Schema) -> Result<Q> + Send + 'static,
    answer: impl Fn(&Q, &Stores, &Reading, bool) -> Result<Option<A>> + Send + 'static,
) -> Result<Begun<A>> {
    let stores = Arc::clone(state.stores());
    let is_small = bytes.len() <= BYTES_AT_ONCE;
    let parse = move |reading: &Reading, schema: &Schema| {
        let _parsed = reading.charge_of(PARSED_TIMES * bytes.len())?;
        parse(&bytes, schema)
    };
    let mut parsed = None;
    if is_small {
        let store = state.store();
        let reading = Reading::new(store.read_budget());
        let question = parse(&reading, &store.schema())?;
        if let Some(answered) = answer(&question, &stores, &reading, true)? {
            return Ok(Begun::Answered(answered));
        }
        parsed = Some(question);
    }
    let state = state.clone();
    Ok(Begun::Large(Box::pin(async move {
        reading(&state, Length::Short, move |view| {
            let question = match parsed {
                Some(question) => question,
                None => parse(view.reading(), view.schema())?,
            };
            let answered = answer(&question, &stores, view.reading(), false)?;
            Ok(answered.expect("BUG: files answer all"))
        })
        .await
    })))
}

/// No view stayed new enough.
pub(super) fn stale() -> Problem {
    let detail = "Too many reservations are confirmed at this moment; retry at once.";
    Problem::unavailable(detail)
}

/// The entities that some kept action may name.
fn entities(schema: &Schema) -> Vec<&str> {
    let kept = schema.events.iter().filter(|event| event.actions);
    let mut known: Vec<&str> = kept
        .flat_map(|event| &event.entities)
        .map(String::as_str)
        .collect();
    known.sort_unstable();
    known.dedup();
    known
}

/// The caps with these names; all declared ones where no names are given.
fn caps(names: Option<Vec<String>>, rules: &ActionRules) -> Result<Vec<Cap>> {
    let declared: Vec<&str> = rules.caps.iter().map(|cap| cap.name.as_str()).collect();
    if declared.is_empty() {
        let detail =
            "cannot be asked for: no cap is declared; add [caps.<name>] to the configuration";
        return Err(FieldError::refused("caps", "", detail).into());
    }
    let Some(names) = names else {
        return Ok(rules.caps.clone());
    };
    let cap = |name: &String| {
        let cap = rules.caps.iter().find(|cap| cap.name == *name).cloned();
        cap.ok_or_else(|| {
            let detail = format!("must be declared caps: {}", declared.join(", "));
            FieldError::refused("caps", name, detail).into()
        })
    };
    unique(names).iter().map(cap).collect()
}

/// The entities of a candidate, which names all that the caps count, and none that no action has.
fn candidate(mut fields: Fields<'_>, known: &[&str], caps: &[Cap]) -> Result<Candidate> {
    let mut candidate = Candidate(Vec::with_capacity(known.len()));
    while let Some((name, key)) = fields.next_text()? {
        if !known.contains(&&*name) {
            let detail = format!("is no entity of an action; use {}", known.join(", "));
            return Err(Problem::malformed(&fields.name(&name), &key, detail));
        }
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
            return Err(wrong_length(&fields.name(&name), &key, KEY_BYTES_MAX));
        }
        candidate.0.push((name, key));
    }
    match caps.iter().find(|cap| candidate.key(&cap.entity).is_none()) {
        None => Ok(candidate),
        Some(cap) => {
            let detail = format!(
                "is missing: the cap `{}` counts it; name it, or ask with other `caps`",
                cap.name
            );
            Err(FieldError::refused(fields.name(&cap.entity), "", detail).into())
        }
    }
}
