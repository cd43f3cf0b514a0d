//! `GET /v1/{namespace}/keys`: the keys of a namespace that have a text, page by page in order, or ranked.

mod best;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::response::Response;
use serde::Serialize;
use tallyring_realtime::{Effort, FoundKey, KeyPlace, KeySearch, KeyText, Read, Searched, View};
use tallyring_records::{FieldError, KEY_BYTES_MAX, sum_capped};

use best::{Best, LISTED_BYTES};

use super::answer::Head;
use super::answering::{overflow, resolve};
use super::basis::Basis;
use super::before::Comparison;
use super::format::Format;
use super::limits::ResponseLimits;
use super::parameters::KeysParameters;
use super::period::span;
use super::question::{Aspect, Question};
use super::reply::Respond;
use super::request::ReadRequest;
use crate::access::Length;
use crate::problem::{Problem, Result};
use crate::query_string::QueryString;
use crate::table::Table;

/// Bytes of lines that a search looks at, and the first one by a prefix: it is asked while somebody types.
const SEARCH_BYTES: u64 = 256 << 20;
const PREFIX_BYTES: u64 = 8 << 20;
/// How long a search looks at lines, about.
const SEARCH_TIME: Duration = Duration::from_secs(1);
/// Keys that a ranking takes at once.
const RANKED_AT_ONCE: usize = 1_000;
/// A namespace rises by its heaviest keys.
const RISING_OF: usize = 1_000;

/// Order of the keys of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sort {
    /// In their order, page by page
    Key,
    /// Those with the highest counts
    Count,
    /// Those whose counts are higher than before, by the difference
    Rising,
}

/// Keys of a namespace.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Keys {
    namespace: String,
    #[serde(flatten)]
    head: Head,
    sort: Sort,
    /// With `sort=rising`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    compared: Option<Compared>,
    /// False where the search ended before all keys were looked at that may have a place in this answer
    complete: bool,
    /// True where a count reached 2^53−1, up to which is counted: it may be more
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    overflow: Option<bool>,
    keys: Vec<ListedKey>,
    /// The `page` that goes on behind these keys; missing behind the last one
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    next: Option<String>,
}

/// The period that counts are compared with.
#[derive(Serialize, utoipa::ToSchema)]
struct Compared {
    kind: Comparison,
    /// Start of its first bucket
    #[schema(value_type = String)]
    from: Arc<str>,
    /// End of its last one
    #[schema(value_type = String)]
    to: Arc<str>,
}

/// A key and its count, which is not 0.
#[derive(Serialize, utoipa::ToSchema)]
struct ListedKey {
    key: String,
    count: u64,
    /// The count in the period that it is compared with
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    before: Option<u64>,
}

/// Keys by their text
///
/// Keys of the namespace that were counted in the range, with their counts: those that begin with `prefix`, those that
/// have the text `contains` anywhere (A to Z are equal in either case), or all. Without `units` and `from` the range
/// is all time. `sort=key` lists short keys in their order and then, in an order of their own, long ones: those of 12
/// bytes or more, or with a space or one of `: , . | * " '`. Where there may be more, `next` is the `page` to ask for;
/// it stays good whatever is counted or rebuilt meanwhile. The texts of long keys are searched one by one, so a search
/// ends after some work, a second or so: it then says `"complete":false`, and `next` goes on. With another `sort`
/// there are no pages, and a longer text makes an incomplete answer complete. Also as `/keys.csv`.
#[utoipa::path(get, path = "/v1/{namespace}/keys", tag = "read",
    params(
        ("namespace" = String, Path, description = "A declared namespace", example = "l"),
        KeysParameters,
    ),
    responses((status = 200, description = "The keys", body = Keys, example = json!({
        "namespace": "l", "unit": "month", "timezone": "UTC",
        "from": "2012-01-01T00:00:00+00:00", "to": "2012-04-01T00:00:00+00:00", "aligned": true, "state": "live",
        "settled_until": "2012-03-16T18:30:00Z", "final_until": null, "generation": 3, "sort": "key",
        "complete": true, "keys": [{"key": "abc", "count": 5}, {"key": "abd", "count": 1}], "next": "abd",
    }))),
)]
pub(crate) async fn keys(request: ReadRequest<String>) -> Result<Response> {
    let (mut query, format) = request.query()?;
    // Nothing is drawn of a list.
    let format = match format {
        Format::Svg(_) => Format::Json,
        format => format,
    };
    let asked = Asked::take(&mut query)?;
    let aspect = match asked.sort {
        Sort::Key | Sort::Count => Aspect::Keys,
        Sort::Rising => Aspect::Rising,
    };
    let (question, reply) = request.question((&request.path, None), aspect, (query, format))?;
    if question.period.basis != Basis::Counted {
        let detail =
            "must be left out: final books are not searched; ask for the keys that are counted";
        return Err(FieldError::refused("basis", "final", detail).into());
    }
    let length = match (&asked.text, asked.sort) {
        (KeyText::Any | KeyText::Prefix(_), Sort::Key) | (KeyText::Any, _) => Length::Long,
        _ => Length::Longest,
    };
    let read = move |reader: &View<'_>, limits: &mut ResponseLimits| {
        asked.answer(reader, question, limits)
    };
    reply.answer(&request.state, length, read).await
}

/// The keys that a request asks for.
struct Asked {
    text: KeyText,
    sort: Sort,
    /// The place where the page begins; none for the first one.
    page: Option<KeyPlace>,
}

impl Asked {
    /// Takes the parameters of the search out of `query`, and gives the range that is left out.
    fn take(query: &mut QueryString<'_>) -> Result<Self> {
        let text = take_text(query)?;
        let sort = match query.take("sort")?.as_deref() {
            None | Some("" | "key") => Sort::Key,
            Some("count") => Sort::Count,
            Some("rising") => Sort::Rising,
            Some(other) => {
                let detail = "must be `key`, `count` or `rising`";
                return Err(Problem::malformed("sort", other, detail));
            }
        };
        let page = query.take("page")?.filter(|page| !page.is_empty());
        let page = match page {
            Some(page) if sort != Sort::Key => {
                let detail = "must be left out beside this `sort`: a ranking has no pages; give a higher `limit`";
                return Err(FieldError::refused("page", &page, detail).into());
            }
            Some(page) => Some(KeyPlace::parse(&page).ok_or_else(|| {
                let detail =
                    "must be the `next` of an answer, unchanged; without it the keys begin anew";
                Problem::malformed("page", &page, detail)
            })?),
            None => None,
        };
        if sort == Sort::Rising {
            query.or("compare", "before");
        } else if !query.gives("units") && !query.gives("from") {
            query.or("unit", "month");
            query.or("units", "-1");
        }
        Ok(Self { text, sort, page })
    }

    fn answer(
        self,
        reader: &View<'_>,
        question: Question,
        limits: &mut ResponseLimits,
    ) -> Result<Keys> {
        let states = question.states(reader);
        let as_of = question.period.as_of;
        let mut listed = match (self.sort, &self.text) {
            (Sort::Key, _) => self.page(reader, &question)?,
            (Sort::Count, KeyText::Any) => heaviest(reader, &question)?,
            (Sort::Rising, KeyText::Any) => rising(reader, &question)?,
            (Sort::Count | Sort::Rising, _) => self.ranked(reader, &question)?,
        };
        limits.take_values(listed.keys.iter().map(|listed| listed.key.as_str()))?;
        let counted = listed.searched.counted;
        let span = counted.map(|counted| (counted.first, counted.last));
        let buckets = resolve(question.period.selection, span)?;
        let cut = (counted, listed.searched.is_cut);
        let minutes_from = reader.minutes_from(as_of);
        let aligned = question.base.check_ranking(cut, minutes_from, &buckets)?;
        let generation = as_of.unwrap_or(reader.generation());
        let compared = match question.before {
            Some((kind, before)) => {
                let buckets = resolve(before.period.selection, None)?;
                let (from, to) = (buckets.label(0), buckets.label(buckets.count()));
                Some(Compared { kind, from, to })
            }
            None => None,
        };
        let most = listed.keys.iter().map(|listed| listed.count).max();
        Ok(Keys {
            head: Head::of(reader, &buckets, aligned, states, generation),
            namespace: question.namespace,
            sort: self.sort,
            compared,
            complete: listed.is_complete,
            overflow: overflow(most.unwrap_or(0)),
            keys: listed.keys,
            next: listed.searched.next.take().map(|next| next.to_string()),
        })
    }

    /// Keys in their order.
    fn page(&self, reader: &View<'_>, question: &Question) -> Result<Listed> {
        let bytes = match (&self.text, &self.page) {
            (KeyText::Prefix(_), None) => PREFIX_BYTES,
            _ => SEARCH_BYTES,
        };
        let (mut keys, mut charge) = (Vec::new(), reader.reading().charge());
        let from = self.page.clone().unwrap_or_default();
        let searched = self.search(reader, question, (from, bytes), &mut |found| {
            charge.grow(found.key.len() + LISTED_BYTES)?;
            keys.push(ListedKey::of(found));
            Ok(match keys.len() < question.limit {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            })
        })?;
        Ok(Listed {
            is_complete: searched.next.is_none() || keys.len() == question.limit,
            keys,
            searched,
        })
    }

    /// The keys with a text that count most, or rise most.
    fn ranked(&self, reader: &View<'_>, question: &Question) -> Result<Listed> {
        let mut best = Best::new(question.limit, reader);
        let from = (KeyPlace::default(), SEARCH_BYTES);
        let mut searched = self.search(reader, question, from, &mut |found| {
            best.take(found)?;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(Listed {
            is_complete: searched.next.take().is_none(),
            keys: best.end(),
            searched,
        })
    }

    fn search(
        &self,
        reader: &View<'_>,
        question: &Question,
        (from, bytes): (KeyPlace, u64),
        found: &mut dyn FnMut(FoundKey) -> tallyring_realtime::Result<ControlFlow<()>>,
    ) -> Result<Searched> {
        let period = |question: &Question| {
            let (from, to) = span(&question.period.selection);
            (question.read(), from..to)
        };
        let before = question.before.iter().map(|(_, before)| period(before));
        let periods: Vec<_> = std::iter::once(period(question)).chain(before).collect();
        let search = KeySearch {
            text: &self.text,
            periods: &periods,
            as_of: question.period.as_of,
            at_once: match self.sort {
                Sort::Key => question.limit.min(RANKED_AT_ONCE),
                Sort::Count | Sort::Rising => RANKED_AT_ONCE,
            },
        };
        let began = Instant::now();
        let is_over = || began.elapsed() > SEARCH_TIME;
        let mut effort = Effort::new(bytes, &is_over);
        Ok(reader.find_keys(&search, from, &mut effort, found)?)
    }
}

/// Takes the text that keys are found by. Fails with 400 for two texts, and for one that no key is long enough for.
fn take_text(query: &mut QueryString<'_>) -> Result<KeyText> {
    let mut take = |name| -> Result<Option<String>> {
        let text = query.take(name)?.filter(|text| !text.is_empty());
        if let Some(text) = text.as_ref().filter(|text| text.len() > KEY_BYTES_MAX) {
            let detail = format!("must have at most {KEY_BYTES_MAX} bytes, as keys have");
            return Err(Problem::malformed(name, text, detail));
        }
        Ok(text.map(String::from))
    };
    match (take("prefix")?, take("contains")?) {
        (Some(_), Some(contains)) => {
            let detail = "must be left out beside `prefix`; give one of them";
            Err(Problem::malformed("contains", &contains, detail))
        }
        (Some(prefix), None) => Ok(KeyText::Prefix(prefix)),
        (None, Some(contains)) => Ok(KeyText::Contains(contains)),
        (None, None) => Ok(KeyText::Any),
    }
}

/// Keys in the order of an answer, and how they were found.
struct Listed {
    keys: Vec<ListedKey>,
    searched: Searched,
    is_complete: bool,
}

/// The heaviest keys of all.
fn heaviest(reader: &View<'_>, question: &Question) -> Result<Listed> {
    let (from, to) = span(&question.period.selection);
    let (by_minute, wanted) = (question.base.by_minute(), (question.limit, true));
    let namespace = &question.namespace;
    let ranking = reader.top(
        namespace,
        from..to,
        by_minute,
        wanted,
        question.period.as_of,
    )?;
    let keys = ranking.keys.into_iter();
    let keys = keys.map(|top| ListedKey {
        key: top.key,
        count: top.count,
        before: None,
    });
    Ok(Listed {
        keys: keys.collect(),
        searched: Searched {
            next: None,
            counted: ranking.counted,
            is_cut: ranking.is_cut,
        },
        is_complete: true,
    })
}

/// The keys that rise most. A key rises by its count at most, so only heavy ones are compared.
fn rising(reader: &View<'_>, question: &Question) -> Result<Listed> {
    let candidates = Question {
        limit: RISING_OF,
        ..question.clone()
    };
    let Listed { keys, searched, .. } = heaviest(reader, &candidates)?;
    let unlisted = match keys.len() < RISING_OF {
        true => 0,
        false => keys.last().map_or(0, |last| last.count),
    };
    let mut best = Best::new(question.limit, reader);
    for key in keys {
        let mut counts = vec![key.count];
        if let Some((_, before)) = &question.before {
            counts.push(count_of(reader, before, &key.key)?);
        }
        let key = key.key;
        best.take(FoundKey { key, counts })?;
    }
    Ok(Listed {
        is_complete: best.least() >= unlisted,
        keys: best.end(),
        searched,
    })
}

/// The count of one key in the period of a question.
fn count_of(reader: &View<'_>, question: &Question, key: &str) -> Result<u64> {
    let read = Read {
        key: key.to_owned(),
        ..question.read()
    };
    let series = reader.read(&read, question.period.as_of)?;
    let (from, to) = span(&question.period.selection);
    let counts = question.base.counts(&series);
    let within = counts
        .iter()
        .filter(|(code, _)| (from..to).contains(&code.start()));
    Ok(sum_capped(within.map(|(_, count)| count)))
}

impl ListedKey {
    fn of(FoundKey { key, counts }: FoundKey) -> Self {
        Self {
            key,
            count: counts[0],
            before: counts.get(1).copied(),
        }
    }
}

impl Respond for Keys {
    fn ends(&self) -> i64 {
        self.head.ends()
    }

    fn identity(&self) -> impl Serialize {
        let found = (
            self.sort,
            self.complete,
            &self.keys,
            &self.next,
            &self.compared,
        );
        (&self.namespace, self.head.identity(), found)
    }

    fn rows(&self) -> String {
        let is_compared = self.compared.is_some();
        let columns: &[&str] = match is_compared {
            true => &["key", "count", "before", "kind"],
            false => &["key", "count", "kind"],
        };
        let mut table = Table::of_counts(columns, self.overflow.is_some());
        let mut row =
            |key: &str, [count, before]: [&str; 2], (kind, most): (&str, u64)| match is_compared {
                true => table.counted(&[key, count, before, kind], most),
                false => table.counted(&[key, count, kind], most),
            };
        for listed in &self.keys {
            let before = listed
                .before
                .map_or(String::new(), |before| before.to_string());
            row(
                &listed.key,
                [&listed.count.to_string(), &before],
                ("value", listed.count),
            );
        }
        if !self.complete || self.next.is_some() {
            row("", ["", ""], ("more", 0));
        }
        table.end()
    }
}
