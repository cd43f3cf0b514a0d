//! Answers to reads of a key, in the shapes of the contract.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use tallyring_realtime::{State, States, View};

use super::base::are_cut;
use super::before::Before;
use super::bucket_counts::{BucketCounts, Count};
use super::filtered::Filtered;
use super::text::write_json;
use super::value::Value;
use crate::calendar::{Buckets, Unit, rfc3339_utc};
use crate::chart::{self, Measure, Picture, SeriesChart};
use crate::problem::Result;

/// The answer to a read of one key, or of all keys of a namespace together.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Answer {
    pub namespace: String,
    /// Left out where the answer is about all keys together
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key: Option<String>,
    /// Title of a picture of all keys together, or of some values alone.
    #[serde(skip)]
    pub title: Option<String>,
    #[serde(flatten)]
    pub head: Head,
    /// The values that are counted, by dimension; left out where all are
    #[serde(rename = "where", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = json!({"c": "US"}))]
    pub only: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subtotal: Option<String>,
    /// The name by which people know the subtotal of a breakdown
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subtotal_title: Option<String>,
    pub total: u64,
    /// True where the total reached 2^53−1, up to which is counted: it, and what it is made of, may be more
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub overflow: Option<bool>,
    #[serde(flatten)]
    #[schema(value_type = BodyFields)]
    pub body: Body,
    /// With `compare`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub before: Option<Before>,
    /// With `filtered=true`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub filtered: Option<Filtered>,
}

/// The range of an answer, and how far it is settled.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Head {
    #[schema(value_type = String)]
    pub unit: Unit,
    #[schema(value_type = String)]
    pub timezone: Arc<str>,
    /// Start of the first bucket
    #[schema(value_type = String)]
    pub from: Arc<str>,
    /// End of the last one, which is the first instant after the range
    #[schema(value_type = String)]
    pub to: Arc<str>,
    /// False where base buckets are too coarse for the zone's boundaries: each counts where it starts
    pub aligned: bool,
    /// The least state of its days: `live`, `settled`, `provisional`, `corrected` or `final`
    #[schema(value_type = String)]
    pub state: State,
    /// No count is expected for earlier times any more
    pub settled_until: String,
    /// From the first final day until then, every day is final; null as long as none is
    pub final_until: Option<String>,
    /// The archive's generation in this view, 0 before the first
    pub generation: u64,
    /// The buckets of the range.
    #[serde(skip)]
    buckets: Buckets,
    /// The states of times in the view.
    #[serde(skip)]
    states: States,
}

impl Head {
    /// About these buckets, in a view with these states.
    pub(super) fn of(
        reader: &View<'_>,
        buckets: &Buckets,
        aligned: bool,
        states: States,
        generation: u64,
    ) -> Self {
        Self {
            unit: buckets.unit(),
            timezone: buckets.zone().shared_name(),
            from: buckets.label(0),
            to: buckets.label(buckets.count()),
            aligned: aligned && !are_cut(reader, buckets, generation),
            state: states.of(&(buckets.start()..buckets.end())),
            settled_until: rfc3339_utc(states.settled_until()),
            final_until: states.final_until().map(rfc3339_utc),
            generation,
            buckets: buckets.clone(),
            states,
        }
    }

    /// The dates of its range, or its times where buckets are shorter than days; for people.
    pub(super) fn dates(&self) -> String {
        let last = self.buckets.zone().label(self.buckets.end() - 1);
        chart::dates(self.buckets.unit(), &self.from, &last)
    }

    /// The chart of counts by bucket, oldest first, and of the period before where there is one.
    pub(super) fn chart<'p>(
        &self,
        title: String,
        points: impl Iterator<Item = (&'p Arc<str>, u64)>,
        before: Option<&Before>,
        picture: Picture,
    ) -> SeriesChart {
        SeriesChart {
            title,
            subtitle: String::new(),
            unit: self.unit,
            zone: self.timezone.to_string(),
            measure: Measure::Counts,
            points: points
                .map(|(start, count)| (start.to_string(), count))
                .collect(),
            gaps: Vec::new(),
            provisional_from: self.provisional_from(),
            not_final: self.not_final(picture.hatches),
            aligned: self.aligned,
            before: before.map_or(Vec::new(), |before| before.counts.clone()),
            before_name: before.map_or("", |before| before.kind.name()),
            is_before_covered: before.is_some_and(|before| before.covered),
            picture,
        }
    }

    /// First instant behind its range, Unix seconds.
    pub(super) fn ends(&self) -> i64 {
        self.buckets.end()
    }

    /// Index of the first bucket that may still change; none when all are settled.
    pub(super) fn provisional_from(&self) -> Option<usize> {
        let mut buckets = self.buckets.iter();
        buckets.position(|bucket| bucket.end > self.states.settled_until())
    }

    /// The state of the whole range, where the store has final days.
    pub(super) fn told_state(&self) -> Option<State> {
        self.states.has_finals().then_some(self.state)
    }

    /// The state of every bucket, oldest first, where the store has final days; else nothing.
    pub(super) fn bucket_states(&self) -> Vec<State> {
        if !self.states.has_finals() {
            return Vec::new();
        }
        let buckets = self.buckets.iter();
        buckets
            .map(|bucket| self.states.of(&(bucket.start..bucket.end)))
            .collect()
    }

    /// For each bucket whether it is not final; nothing where days never become final: none is, and `becomes_final` is
    /// false.
    pub(super) fn not_final(&self, becomes_final: bool) -> Vec<bool> {
        if !becomes_final && !self.states.has_finals() {
            return Vec::new();
        }
        let buckets = self.buckets.iter();
        let states = buckets.map(|bucket| self.states.of(&(bucket.start..bucket.end)));
        states.map(|state| state != State::Final).collect()
    }

    /// The part of an answer's validator that the range makes: which buckets are settled, not when they are, nor in
    /// which generation they are.
    pub(super) fn identity(&self) -> impl Serialize {
        (
            self.provisional_from(),
            self.unit,
            &self.timezone,
            &self.from,
            &self.to,
            self.aligned,
            self.state,
            self.bucket_states(),
            &self.final_until,
        )
    }
}

/// The part that differs between the reads: `counts`, or `values` and `other`, or `buckets`, or nothing.
#[derive(utoipa::ToSchema)]
#[expect(
    dead_code,
    reason = "describes `Body`, whose shapes no schema can tell apart"
)]
struct BodyFields {
    counts: Option<Vec<Count>>,
    values: Option<Vec<Value>>,
    /// Sum of the values that are not listed.
    other: Option<u64>,
    buckets: Option<Vec<Bucket>>,
}

/// The part that differs between the reads.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Body {
    Counts {
        #[serde(skip_serializing_if = "BucketCounts::is_added")]
        counts: BucketCounts,
    },
    Rolled {
        values: Vec<Value>,
        other: u64,
    },
    Buckets {
        buckets: Vec<Bucket>,
    },
    Summary {},
}

/// One bucket's ranking.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Bucket {
    #[schema(value_type = String)]
    pub start: Arc<str>,
    /// Once the store has final days
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    pub state: Option<State>,
    pub total: u64,
    pub values: Vec<Value>,
    pub other: u64,
}

impl Answer {
    /// The count of every bucket; empty for anything but a series.
    pub(super) fn into_counts(self) -> Vec<u64> {
        match self.body {
            Body::Counts { counts } => counts.into_counts(),
            Body::Rolled { .. } | Body::Buckets { .. } | Body::Summary {} => Vec::new(),
        }
    }

    /// Bytes of its JSON, about; of a breakdown, those of what stands before it.
    pub(super) fn json_bytes(&self) -> usize {
        const HEAD_BYTES: usize = 512;
        match &self.body {
            Body::Counts { counts } => HEAD_BYTES + counts.json_bytes(),
            Body::Rolled { .. } | Body::Buckets { .. } | Body::Summary {} => HEAD_BYTES,
        }
    }

    /// Adds it to `text`, as JSON; serde alone would leave the counts out.
    pub(super) fn write_json(&self, text: &mut Vec<u8>) -> Result<()> {
        match &self.body {
            Body::Counts { counts } => counts.write_json_behind(self, text),
            Body::Rolled { .. } | Body::Buckets { .. } | Body::Summary {} => write_json(self, text),
        }
    }
}
