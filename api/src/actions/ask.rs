//! A question of caps: a user, the caps to apply, and the candidates.

use std::collections::HashMap;

use tallyring_records::{FieldError, KEY_BYTES_MAX, Schema};

use super::caps::{ActionRules, Cap};
use super::fields::Fields;
use super::question::{CANDIDATES_MAX, at_most, check_lengths, unique};
use crate::problem::Problem;

/// The part that a check and a reservation have in common.
pub(super) struct Ask {
    pub user: String,
    /// Caps to apply.
    pub caps: Vec<Cap>,
    /// Entities of each candidate, raw.
    pub candidates: Vec<HashMap<String, String>>,
}

impl Ask {
    /// Takes the user, the caps and the candidates out of the fields of a body.
    ///
    /// # Errors
    /// The first of them that is wrong.
    pub(super) fn take(
        fields: &mut Fields<'_>,
        (schema, rules): (&Schema, &ActionRules),
    ) -> Result<Self, Problem> {
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
fn caps(names: Option<Vec<String>>, rules: &ActionRules) -> Result<Vec<Cap>, Problem> {
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
fn candidate(
    mut fields: Fields<'_>,
    known: &[&str],
    caps: &[Cap],
) -> Result<HashMap<String, String>, Problem> {
    let mut entities = HashMap::new();
    for name in fields.names() {
        let field = fields.name(&name);
        let Some(key) = fields.text(&name)? else {
            continue;
        };
        if !known.contains(&&*name) {
            let detail = format!("is no entity of an action; use {}", known.join(", "));
            return Err(Problem::malformed(&field, &key, detail));
        }
        check_lengths(&field, std::slice::from_ref(&key), KEY_BYTES_MAX)?;
        entities.insert(name, key);
    }
    match caps.iter().find(|cap| !entities.contains_key(&cap.entity)) {
        None => Ok(entities),
        Some(cap) => {
            let detail = format!(
                "is missing: the cap `{}` counts it; name it, or ask with other `caps`",
                cap.name
            );
            Err(FieldError::refused(fields.name(&cap.entity), "", detail).into())
        }
    }
}
