//! The counts of users as a text: JSON, or rows of CSV.

use std::borrow::Cow;
use std::io::Write;

use tallyring_records::{COUNT_MAX, Position};

use super::json_text;
use super::question::Question;
use crate::table::Table;

/// Columns of CSV, a row for each count.
const COLUMNS: [&str; 7] = ["user", "range", "action", "view", "entity", "key", "count"];
/// The last column of CSV where actions count that are known by their hour alone.
const APPROXIMATE: &str = "approximate";
/// Memory of a row of CSV, besides the texts of its cells.
const ROW_BYTES: usize = 64;

/// A text that is being written, one user after the other.
pub(super) enum CountsText {
    Json {
        form: Form,
        text: Vec<u8>,
    },
    /// The counts of all users: they decide which columns there are.
    Csv(Vec<u64>),
}

impl CountsText {
    /// A text without any user.
    pub(super) fn begin(question: &Question<'_>, is_csv: bool) -> Self {
        if is_csv {
            return Self::Csv(Vec::with_capacity(question.cells()));
        }
        let form = Form::of(question);
        let mut text = Vec::with_capacity(form.answer_bytes(question));
        text.extend_from_slice(br#"{"users":{"#);
        Self::Json { form, text }
    }

    /// Memory that the text of an answer takes, bytes, at most about.
    pub(super) fn bytes(question: &Question<'_>, is_csv: bool) -> usize {
        let users = question.users.len();
        let json = question.text_bytes().saturating_mul(users);
        if !is_csv {
            return json;
        }
        // Each row names all that JSON names once for many counts. A quote in a cell is doubled.
        let longest = |texts: &[Cow<'_, str>]| texts.iter().map(|text| text.len()).max();
        let named = [&question.users, &question.actions, &question.views].map(|of| longest(of));
        let ranges = question.ranges.iter().map(|range| range.name.len()).max();
        let entities = question.entities.iter().map(|(name, _)| name.len()).max();
        let named = named.into_iter().chain([ranges, entities]).flatten();
        let row = ROW_BYTES + 2 * named.sum::<usize>();
        json.saturating_add(row.saturating_mul(question.cells()))
    }

    /// Adds the counts of the next user.
    pub(super) fn push(&mut self, question: &Question<'_>, user: &str, cells: &[u64]) {
        match self {
            Self::Json { form, text } => {
                if text.last() == Some(&b'}') {
                    text.push(b',');
                }
                json_text(text, user);
                text.push(b':');
                form.write(text, question, cells);
            }
            Self::Csv(all) => all.extend_from_slice(cells),
        }
    }

    /// The whole text of a view that counts everything before `position`.
    pub(super) fn end(
        self,
        question: &Question<'_>,
        position: Position,
        is_approximate: bool,
    ) -> Vec<u8> {
        match self {
            Self::Json { mut text, .. } => {
                // Writing to a vector never fails.
                let _ = write!(
                    text,
                    r#"}},"position":"{position}","approximate":{is_approximate}}}"#
                );
                text
            }
            Self::Csv(cells) => rows(question, &cells, is_approximate).into_bytes(),
        }
    }
}

/// A row for each count, in the order of the question.
fn rows(question: &Question<'_>, cells: &[u64], is_approximate: bool) -> String {
    let overflows = cells.contains(&COUNT_MAX);
    let more = is_approximate.then_some(APPROXIMATE);
    let columns: Vec<&str> = COLUMNS.into_iter().chain(more).collect();
    let mut table = Table::of_counts(&columns, overflows);
    let views = match question.by_view {
        true => &question.views[..],
        false => &[Cow::Borrowed("")],
    };
    let mut cells = cells.iter();
    for user in &question.users {
        for range in &question.ranges {
            for (action, view) in pairs(&question.actions, views) {
                for (entity, keys) in &question.entities {
                    for (key, &count) in keys.iter().zip(&mut cells) {
                        let text = count.to_string();
                        let names: [&str; 6] = [user, &range.name, action, view, entity, key];
                        let row: Vec<&str> = names
                            .into_iter()
                            .chain([text.as_str()])
                            .chain(more.map(|_| "true"))
                            .collect();
                        table.counted(&row, count);
                    }
                }
            }
        }
    }
    table.end()
}

/// Each of `firsts` with each of `seconds`.
fn pairs<'t>(
    firsts: &'t [Cow<'_, str>],
    seconds: &'t [Cow<'_, str>],
) -> impl Iterator<Item = (&'t str, &'t str)> {
    let with = |first: &'t str| seconds.iter().map(move |second| (first, &**second));
    firsts.iter().flat_map(move |first| with(first))
}

/// The text of the counts of one user and range: the same for all of them but for the counts.
#[derive(Default)]
pub(super) struct Form {
    text: Vec<u8>,
    /// The end of the text before each count.
    ends: Vec<usize>,
}

/// Characters of a count, mostly, and of what stands around the counts of a range.
const COUNT_CHARS: usize = 2;
const AROUND_CHARS: usize = 16;

impl Form {
    /// By action, view where views count one by one, entity and key: the order of cells.
    fn of(question: &Question<'_>) -> Self {
        let mut form = Self::default();
        form.ends.reserve(question.plane());
        form.object(&question.actions, |form| match question.by_view {
            true => form.object(&question.views, |form| form.entities(question)),
            false => form.entities(question),
        });
        form
    }

    fn entities(&mut self, question: &Question<'_>) {
        let mut entities = question.entities.iter();
        let names = question.entities.iter().map(|(name, _)| name);
        self.object(names, |form| {
            let (_, keys) = entities.next().expect("BUG: as many as names");
            form.object(keys, |form| form.ends.push(form.text.len()));
        });
    }

    /// Adds an object with these names; `value` adds the value of each, in turn.
    fn object<T: AsRef<str>>(
        &mut self,
        names: impl IntoIterator<Item = T>,
        mut value: impl FnMut(&mut Self),
    ) {
        self.text.push(b'{');
        for (index, name) in names.into_iter().enumerate() {
            if index > 0 {
                self.text.push(b',');
            }
            json_text(&mut self.text, name.as_ref());
            self.text.push(b':');
            value(self);
        }
        self.text.push(b'}');
    }

    /// Bytes of an answer, about.
    fn answer_bytes(&self, question: &Question<'_>) -> usize {
        let range = self.text.len() + COUNT_CHARS * self.ends.len() + AROUND_CHARS;
        question.users.len() * question.ranges.len() * range + 8 * AROUND_CHARS
    }

    /// Appends the counts of a user.
    fn write(&self, text: &mut Vec<u8>, question: &Question<'_>, cells: &[u64]) {
        let mut digits = itoa::Buffer::new();
        text.push(b'{');
        let planes = cells.chunks_exact(self.ends.len());
        for (index, (range, plane)) in question.ranges.iter().zip(planes).enumerate() {
            if index > 0 {
                text.push(b',');
            }
            json_text(text, &range.name);
            text.push(b':');
            let mut start = 0;
            for (&end, &count) in self.ends.iter().zip(plane) {
                text.extend_from_slice(&self.text[start..end]);
                text.extend_from_slice(digits.format(count).as_bytes());
                start = end;
            }
            text.extend_from_slice(&self.text[start..]);
        }
        text.push(b'}');
    }
}
