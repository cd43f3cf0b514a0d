//! A question about the actions of users: who, when, what, and for which candidates.

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::Hash;
use std::ops::Range as Span;

use tallyring_realtime::View;
use tallyring_records::{FieldError, ID_BYTES_MAX, KEY_BYTES_MAX, Schema, TIME_MIN, is_pseudonym};

use super::caps::ActionRules;
use super::fields::Fields;
use super::range::Range;
use crate::calendar::rfc3339_utc;
use crate::problem::{Problem, Result};
use crate::write::event::VIEW_BYTES_MAX;

/// A parsed question. Its candidates are all different.
pub(super) struct Question<'b> {
    pub users: Vec<Cow<'b, str>>,
    /// The moment that ranges end with, Unix seconds.
    pub at: i64,
    pub ranges: Vec<Range>,
    pub actions: Vec<Cow<'b, str>>,
    /// Views that count; all where there are none.
    pub views: Vec<Cow<'b, str>>,
    /// True where each view has counts of its own.
    pub by_view: bool,
    /// Entities, each with its candidates.
    pub entities: Entities<'b>,
    pub distinct: Option<Distinct>,
}

/// Entities, each with its candidates.
type Entities<'b> = Vec<(String, Vec<Cow<'b, str>>)>;

/// Insertions that count once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Distinct {
    /// On each day of the range's zone.
    PerDay,
    /// In the whole range.
    PerRange,
}

pub(super) const USERS_MAX: usize = 1_000;
const RANGES_MAX: usize = 8;
pub(super) const CANDIDATES_MAX: usize = 1_000;
const CELLS_MAX: usize = 200_000;
/// Memory of a count and of the piece of text before it, besides the text.
const CELL_BYTES: usize = 64;
const EXAMPLE: &str =
    r#"{"users":["u1"],"ranges":["24h"],"action":["impression"],"entity":{"ad":["1","2"]}}"#;
const KNOWN: &str = "users, ranges, action, view, by_view, entity, distinct, per and at";

impl<'b> Question<'b> {
    /// Reads the body of a question at `now` (Unix seconds).
    ///
    /// # Errors
    /// The first field that is wrong.
    pub(super) fn parse(
        bytes: &'b [u8],
        (schema, rules): (&Schema, &ActionRules),
        now: i64,
    ) -> Result<Self> {
        let mut fields = Fields::of_body(bytes, EXAMPLE)?;
        let users = unique(required(&mut fields, "users")?);
        users
            .iter()
            .try_for_each(|user| check_user("users", user))?;
        at_most("users", users.len(), USERS_MAX)?;
        let ranges = unique(required(&mut fields, "ranges")?);
        at_most("ranges", ranges.len(), RANGES_MAX)?;
        let range = |text: &Cow<'_, str>| Range::parse("ranges", text, rules.keep_days);
        let ranges: Vec<Range> = ranges.iter().map(range).collect::<Result<_, _>>()?;
        let actions = unique(required(&mut fields, "action")?);
        actions
            .iter()
            .try_for_each(|action| check_action("action", action, schema))?;
        let views = unique(fields.borrowed("view")?.unwrap_or_default());
        check_lengths("view", &views, VIEW_BYTES_MAX)?;
        at_most("view", views.len(), CANDIDATES_MAX)?;
        let by_view = fields.flag("by_view")?;
        if by_view && views.is_empty() {
            return Err(Problem::malformed(
                "by_view",
                "true",
                "needs `view`, the views to count one by one",
            ));
        }
        let entities = entities(&mut fields, &actions, schema)?;
        let distinct = distinct(&mut fields)?;
        let at = fields.instant("at")?.unwrap_or(now);
        check_at(at, now)?;
        fields.finish(KNOWN)?;
        let question = Self {
            users,
            at,
            ranges,
            actions,
            views,
            by_view,
            entities,
            distinct,
        };
        let cells = question.cells();
        if cells > CELLS_MAX {
            let detail = format!(
                "asks for {cells} counts: users × ranges × actions × candidates; at most {CELLS_MAX} are answered at \
                 once, ask in parts"
            );
            return Err(FieldError::refused("users", "", detail).into());
        }
        Ok(question)
    }

    /// The range of each asked range, Unix seconds.
    pub(super) fn spans(&self) -> Vec<Span<i64>> {
        let span = |range: &Range| range.start(self.at)..self.at + 1;
        self.ranges.iter().map(span).collect()
    }

    /// The range that holds all asked ranges, Unix seconds.
    pub(super) fn span(&self) -> Span<i64> {
        let starts = self.ranges.iter().map(|range| range.start(self.at));
        starts.min().unwrap_or(self.at)..self.at + 1
    }

    /// Memory of the text and the counts of one user, bytes, at most about.
    pub(super) fn text_bytes(&self) -> usize {
        let texts = |texts: &[Cow<'_, str>]| {
            texts
                .iter()
                .map(|text| CELL_BYTES + 2 * text.len())
                .sum::<usize>()
        };
        let entities = self.entities.iter();
        let of_view: usize = entities
            .map(|(name, keys)| CELL_BYTES + name.len() + texts(keys))
            .sum();
        let of_action = match self.by_view {
            true => texts(&self.views) + of_view.saturating_mul(self.views.len()),
            false => of_view,
        };
        let of_range = of_action.saturating_mul(self.actions.len()) + texts(&self.actions);
        of_range.saturating_mul(self.ranges.len())
    }

    /// The number of views that have counts of their own; one where all count together.
    pub(super) fn view_levels(&self) -> usize {
        if self.by_view { self.views.len() } else { 1 }
    }

    /// The number of counts of one user and range.
    pub(super) fn plane(&self) -> usize {
        self.actions.len() * self.view_levels() * self.candidates()
    }

    /// The number of all counts.
    pub(super) fn cells(&self) -> usize {
        self.users.len() * self.ranges.len() * self.plane()
    }

    /// The number of candidates of all entities.
    pub(super) fn candidates(&self) -> usize {
        self.entities.iter().map(|(_, keys)| keys.len()).sum()
    }
}

/// The entities that an action of these types may name, each with its candidates.
fn entities<'b>(
    fields: &mut Fields<'b>,
    actions: &[Cow<'_, str>],
    schema: &Schema,
) -> Result<Entities<'b>> {
    let mut asked = fields.object("entity")?;
    let mut entities = Vec::new();
    for entity in asked.names() {
        let name = asked.name(&entity);
        check_entity(&name, &entity, actions, schema)?;
        let keys = asked.borrowed(&entity)?;
        let keys =
            keys.ok_or_else(|| Problem::malformed(&name, "", "must list at least one key"))?;
        check_lengths(&name, &keys, KEY_BYTES_MAX)?;
        entities.push((entity, unique(keys)));
    }
    if entities.is_empty() {
        let detail =
            "must name at least one entity with its candidates, such as {\"ad\":[\"1\",\"2\"]}";
        return Err(Problem::malformed("entity", "", detail));
    }
    let candidates = entities.iter().map(|(_, keys)| keys.len()).sum();
    at_most("entity", candidates, CANDIDATES_MAX)?;
    Ok(entities)
}

fn distinct(fields: &mut Fields<'_>) -> Result<Option<Distinct>> {
    let per = match fields.text("per")?.as_deref() {
        None => None,
        Some("day") => Some(Distinct::PerDay),
        Some("range") => Some(Distinct::PerRange),
        Some(other) => return Err(Problem::malformed("per", other, "must be `day` or `range`")),
    };
    match (fields.text("distinct")?.as_deref(), per) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(Problem::malformed(
            "per",
            "",
            "needs `distinct`; give \"distinct\":\"insertion\", too",
        )),
        (Some("insertion"), per) => Ok(Some(per.unwrap_or(Distinct::PerDay))),
        (Some(other), _) => Err(Problem::malformed("distinct", other, "must be `insertion`")),
    }
}

/// Checks the name of a user.
pub(super) fn check_user(field: &str, user: &str) -> Result<()> {
    match user.len() {
        1..=ID_BYTES_MAX if is_pseudonym(user) => {
            let detail = "is a pseudonym, which stands for a user in the log; give the name";
            Err(Problem::malformed(field, user, detail))
        }
        1..=ID_BYTES_MAX => Ok(()),
        bytes => {
            let detail = format!("has a user of {bytes} bytes; a user has 1 to {ID_BYTES_MAX}");
            Err(Problem::malformed(field, user, detail))
        }
    }
}

/// Checks that the actions of a type are kept.
pub(super) fn check_action(field: &str, action: &str, schema: &Schema) -> Result<()> {
    let kept = || schema.events.iter().filter(|event| event.actions);
    if kept().any(|event| event.name == action) {
        return Ok(());
    }
    let kept: Vec<&str> = kept().map(|event| event.name.as_str()).collect();
    let detail = match kept.as_slice() {
        [] => "must be a type of event whose actions are kept, and there is none: declare [events.<type>] with \
               `actions = true`"
            .to_owned(),
        kept => format!("must be one of {}, whose actions are kept", kept.join(", ")),
    };
    Err(FieldError::refused(field, action, detail).into())
}

/// Checks that actions of one of these types may name an entity.
pub(super) fn check_entity(
    field: &str,
    entity: &str,
    actions: &[impl AsRef<str>],
    schema: &Schema,
) -> Result<()> {
    let asked = schema
        .events
        .iter()
        .filter(|event| actions.iter().any(|action| action.as_ref() == event.name));
    let mut known: Vec<&str> = asked
        .flat_map(|event| &event.entities)
        .map(String::as_str)
        .collect();
    if known.contains(&entity) {
        return Ok(());
    }
    known.sort_unstable();
    known.dedup();
    let detail = format!("must be an entity of these actions: {}", known.join(", "));
    Err(FieldError::refused(field, entity, detail).into())
}

/// Checks that texts are as long as those of events are.
pub(super) fn check_lengths(field: &str, texts: &[impl AsRef<str>], most: usize) -> Result<()> {
    match texts
        .iter()
        .map(AsRef::as_ref)
        .find(|text| text.is_empty() || text.len() > most)
    {
        None => Ok(()),
        Some(text) => Err(wrong_length(field, text, most)),
    }
}

/// A text is empty, or longer than those of events are.
pub(super) fn wrong_length(field: &str, text: &str, most: usize) -> Problem {
    let detail = format!(
        "has a text of {} bytes; those of events have 1 to {most}",
        text.len()
    );
    Problem::malformed(field, "", detail)
}

/// Checks that the moment of a question is not in the future, and not before all time.
pub(super) fn check_at(at: i64, now: i64) -> Result<()> {
    match at <= now {
        true if at < TIME_MIN => {
            let detail = "must not lie before 2000";
            Err(FieldError::refused("at", &at.to_string(), detail).into())
        }
        true => Ok(()),
        false => {
            Err(FieldError::refused("at", &at.to_string(), "must not lie in the future").into())
        }
    }
}

/// Checks that nothing is gone of the actions since the start of a range of `field` (Unix seconds). An answer without
/// them would say less than there was.
pub(super) fn check_kept(field: &str, start: i64, view: &View<'_>) -> Result<()> {
    match view.actions_from().filter(|&kept| start < kept) {
        None => Ok(()),
        Some(kept) => {
            let detail = format!(
                "reaches back to {}, and actions are kept from {} on; ask for a later `at`, or for less time",
                rfc3339_utc(start),
                rfc3339_utc(kept)
            );
            Err(FieldError::refused(field, "", detail).into())
        }
    }
}

/// Checks the length of a list.
pub(super) fn at_most(field: &str, length: usize, most: usize) -> Result<()> {
    if length <= most {
        return Ok(());
    }
    let detail = format!("has {length} items; at most {most} are answered at once, ask in parts");
    Err(FieldError::refused(field, "", detail).into())
}

fn required<'b>(fields: &mut Fields<'b>, field: &str) -> Result<Vec<Cow<'b, str>>> {
    let texts = fields.borrowed(field)?;
    texts.ok_or_else(|| Problem::malformed(field, "", "is missing"))
}

/// The texts without repetitions, in their order.
pub(super) fn unique<T: Clone + Eq + Hash>(texts: Vec<T>) -> Vec<T> {
    let mut seen = HashSet::with_capacity(texts.len());
    if texts.iter().all(|text| seen.insert(text)) {
        return texts;
    }
    seen.clear();
    let first = texts.iter().filter(|text| seen.insert(text));
    first.cloned().collect()
}
