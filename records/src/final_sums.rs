//! The sums of a final version of a day.

use std::collections::BTreeMap;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::counts::capped;

/// Sums of one event type in a final version. All numbers are sums of `n`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct FinalSums {
    /// Counted before, by the version before or live.
    pub before: u128,
    /// The difference by cause.
    pub causes: BTreeMap<String, i128>,
    /// Counted by this version.
    pub after: u128,
    /// Everything that came, whatever the rules said of it.
    pub gross: u128,
    /// Part of `gross` that some rule could not judge, because it lacks the evidence.
    pub undecided: u128,
}

impl FinalSums {
    /// Checks that the causes explain the difference. Fails with the numbers that do not balance.
    ///
    /// ```
    /// use tallyring_records::FinalSums;
    ///
    /// let mut sums = FinalSums {
    ///     before: 3,
    ///     causes: [("filtered_by:bots".to_owned(), -1)].into(),
    ///     after: 2,
    ///     ..FinalSums::default()
    /// };
    /// assert_eq!(sums.check(), Ok(()));
    /// sums.after = 1;
    /// assert_eq!(sums.check().unwrap_err(), "3 before and causes of -1 are not 1 after");
    /// ```
    pub fn check(&self) -> Result<(), String> {
        let mut causes = self.causes.values();
        let causes = causes.try_fold(0_i128, |sum, n| sum.checked_add(*n));
        let after = causes.and_then(|causes| self.before.checked_add_signed(causes));
        if after == Some(self.after) {
            return Ok(());
        }
        Err(format!(
            "{} before and causes of {} are not {} after",
            self.before,
            causes.map_or("too much".to_owned(), |causes| causes.to_string()),
            self.after
        ))
    }

    /// Adds other sums. Sums beyond any that is shown stay there.
    pub fn add(&mut self, other: &Self) {
        for (sum, n) in [
            (&mut self.before, other.before),
            (&mut self.after, other.after),
            (&mut self.gross, other.gross),
            (&mut self.undecided, other.undecided),
        ] {
            *sum = sum.saturating_add(n);
        }
        for (cause, n) in &other.causes {
            let sum = self.causes.entry(cause.clone()).or_insert(0);
            *sum = sum.saturating_add(*n);
        }
    }

    /// The sums as numbers that every JSON reader takes: a larger one stands as 2^53−1.
    pub fn shown(&self) -> ShownSums {
        let signed = |n: &i128| {
            let magnitude = capped(n.unsigned_abs()) as i64;
            if *n < 0 { -magnitude } else { magnitude }
        };
        let causes = self.causes.iter();
        ShownSums {
            before: capped(self.before),
            causes: causes
                .map(|(cause, n)| (cause.clone(), signed(n)))
                .collect(),
            after: capped(self.after),
            gross: capped(self.gross),
            undecided: capped(self.undecided),
        }
    }
}

/// [`FinalSums`], as programs read them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the fields are those of `FinalSums`")]
pub struct ShownSums {
    pub before: u64,
    pub causes: BTreeMap<String, i64>,
    pub after: u64,
    pub gross: u64,
    pub undecided: u64,
}

impl Serialize for FinalSums {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The derived function, which comes before that of the trait.
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for FinalSums {
    /// Fails where the causes do not explain the difference, too.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let sums = Self::deserialize(deserializer)?;
        sums.check().map_err(D::Error::custom)?;
        Ok(sums)
    }
}
