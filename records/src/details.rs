//! Fields of an increment beside its counts. The log keeps these fields, and no counter ever depends on them.

use crate::error::FieldError;
use crate::increment::{Increment, KEY_BYTES_MAX, KEYS_MAX, Text};
use crate::names::is_same;
use crate::schema::Schema;
use crate::varint::{read_pairs, read_text, write_bytes, write_pairs};

/// Fields that are logged and never counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    /// The fields that were set aside, at most [`KEYS_MAX`]: each name with its value, shortened.
    pub set_aside: Vec<(Text, Text)>,
    /// The insertion that an event belongs to, 1 to 256 bytes.
    pub insertion: Option<String>,
    /// The page that led to an event, 1 to [`KEY_BYTES_MAX`] bytes.
    pub referrer: Option<String>,
    /// A JSON object as compact text.
    pub meta: Option<String>,
    /// The client of an event.
    pub evidence: Evidence,
}

/// The client of an event as its sender saw it; each text has 1 to [`KEY_BYTES_MAX`] bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The address.
    pub ip: Option<String>,
    /// The header `User-Agent`.
    pub ua: Option<String>,
    /// The header `Referer`.
    pub referrer: Option<String>,
}

/// The most breakdown values of one increment that are looked at. The values behind them are set aside.
const VALUES_SEEN_MAX: usize = 8 * KEYS_MAX;

impl Details {
    /// Notes a field that was set aside. Fields beyond the first [`KEYS_MAX`] are not noted.
    pub fn set_aside(&mut self, wrong: FieldError) {
        if self.set_aside.len() < KEYS_MAX {
            let value = wrong.value.unwrap_or_default();
            self.set_aside.push((wrong.field.into(), value.into()));
        }
    }

    /// The details as an increment holds them: none where every field is empty.
    pub fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }

    /// Forgets everything that tells of a person. Fields that were set aside stay.
    pub fn forget_person(&mut self) {
        let set_aside = std::mem::take(&mut self.set_aside);
        *self = Self {
            set_aside,
            ..Self::default()
        };
    }

    /// Memory of the details, bytes, about.
    pub fn weight(&self) -> usize {
        let set_aside = self.set_aside.iter();
        let set_aside =
            set_aside.map(|(name, value)| name.len() + value.len() + size_of::<(Text, Text)>());
        let texts = self.texts().into_iter().flatten().map(String::len);
        size_of::<Self>() + set_aside.chain(texts).sum::<usize>()
    }

    /// The texts besides the fields that were set aside, each with its name.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let names = [
            "insertion",
            "referrer",
            "meta",
            "evidence.ip",
            "evidence.ua",
            "evidence.referrer",
        ];
        let texts = names.into_iter().zip(self.texts());
        texts.filter_map(|(name, text)| Some((name, text.as_deref()?)))
    }

    /// True when there is more than fields that were set aside.
    pub(crate) fn has_texts(&self) -> bool {
        self.texts().into_iter().any(Option::is_some)
    }

    /// Appends the fields that were set aside and the texts, each where there are any.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        if !self.set_aside.is_empty() {
            write_pairs(out, &self.set_aside);
        }
        if self.has_texts() {
            for text in self.texts() {
                write_bytes(out, text.as_deref().unwrap_or_default().as_bytes());
            }
        }
    }

    /// Reads what [`Details::encode`] wrote.
    pub(crate) fn decode(input: &mut &[u8], set_aside: bool, texts: bool) -> Option<Self> {
        let mut details = Self::default();
        if set_aside {
            details.set_aside = read_pairs(input)?;
        }
        if texts {
            let mut text = || Some(Some(read_text(input)?).filter(|text| !text.is_empty()));
            details.insertion = text()?;
            details.referrer = text()?;
            details.meta = text()?;
            details.evidence = Evidence {
                ip: text()?,
                ua: text()?,
                referrer: text()?,
            };
        }
        Some(details)
    }

    /// The texts besides the fields that were set aside, in the order of the log's record.
    fn texts(&self) -> [&Option<String>; 6] {
        let Evidence { ip, ua, referrer } = &self.evidence;
        [
            &self.insertion,
            &self.referrer,
            &self.meta,
            ip,
            ua,
            referrer,
        ]
    }
}

impl Increment {
    /// Sets aside every breakdown value that [`Increment::validate`] refuses, so that the total can count.
    ///
    /// ```
    /// use tallyring_records::{Increment, Schema};
    ///
    /// let schema = Schema::default_clicks();
    /// let mut click = Increment::new(1_331_923_247, 1, [("l", "abc")]);
    /// click.by = vec![("c".into(), "US".into()), ("nothing".into(), "x".into())];
    /// assert!(click.validate(&schema).is_err());
    /// click.set_wrong_values_aside(&schema);
    /// assert!(click.validate(&schema).is_ok());
    /// assert_eq!((click.value("c"), click.set_aside()), (Some("US"), 1));
    /// ```
    pub fn set_wrong_values_aside(&mut self, schema: &Schema) {
        let by = std::mem::take(&mut self.by);
        let (seen, unseen) = by.split_at(by.len().min(VALUES_SEEN_MAX));
        let mut details = self
            .details
            .take()
            .map_or_else(Details::default, |kept| *kept);
        for (name, value) in seen {
            let is_right = self.declares(schema, name)
                && value.len() <= KEY_BYTES_MAX
                // Neither of two values is the right one.
                && seen.iter().filter(|(other, _)| is_same(other, name)).count() == 1
                && self.by.len() < KEYS_MAX;
            if is_right {
                self.by.push((name.clone(), value.clone()));
            } else {
                details.set_aside(wrong_value(name, value));
            }
        }
        for (name, value) in unseen.iter().take(KEYS_MAX) {
            details.set_aside(wrong_value(name, value));
        }
        self.details = details.boxed();
    }

    /// How many fields were set aside.
    pub fn set_aside(&self) -> u64 {
        let details = self.details.as_ref();
        details.map_or(0, |details| details.set_aside.len() as u64)
    }

    /// True when a namespace that the increment names declares the dimension.
    pub fn declares(&self, schema: &Schema, dimension: &str) -> bool {
        let mut named = self.keys.iter();
        named.any(|(name, _)| {
            let namespace = schema.namespace(name);
            namespace.is_some_and(|namespace| namespace.has_dimension(dimension))
        })
    }
}

fn wrong_value(name: &str, value: &str) -> FieldError {
    FieldError::malformed(format!("by.{name}"), value, "cannot be counted")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_right_values_stay_and_what_is_noted_is_bounded() {
        let schema = Schema::default_clicks();
        let long = "x".repeat(KEY_BYTES_MAX + 1);
        let mut by: Vec<(Text, Text)> = vec![
            ("c".into(), "US".into()),
            ("r".into(), long.as_str().into()),
            ("v".into(), "phone".into()),
            ("v".into(), "tablet".into()),
        ];
        by.extend((0..1_000).map(|number| (format!("x{number}").into(), long.as_str().into())));
        let mut click = Increment {
            by,
            ..Increment::new(1_331_923_247, 1, [("l", "abc")])
        };
        click.set_wrong_values_aside(&schema);
        assert_eq!(click.validate(&schema), Ok(()));
        assert_eq!(click.by, [("c".into(), "US".into())]);
        assert_eq!(click.set_aside(), KEYS_MAX as u64);
        let details = click.details.unwrap_or_default();
        let noted = details.set_aside.iter();
        let names: Vec<&str> = noted.map(|(name, _)| name.as_str()).take(4).collect();
        assert_eq!(names, ["by.r", "by.v", "by.v", "by.x0"]);
        assert!(details.set_aside.iter().all(|(_, value)| value.len() <= 70));
    }
}
