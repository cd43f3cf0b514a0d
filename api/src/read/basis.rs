//! The numbers that a read is answered from: those that are counted, or the books of final days.

use std::ops::Range;

use tallyring_realtime::{Beside, BooksView, Error, States, View};
use tallyring_records::FieldError;

use super::period::Period;
use crate::calendar::{Selection, rfc3339_utc};
use crate::problem::{Problem, Result};
use crate::query_string::QueryString;

/// The numbers that a read asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Basis {
    /// Everything that is known.
    Counted,
    /// The newest final version of each day.
    Final,
    /// This final version of each day.
    Version(u32),
}

impl Basis {
    /// Takes `basis` and `final` out of `query`. Fails with 400 for a word or a number that is none, and for two that
    /// contradict each other.
    pub(crate) fn take(query: &mut QueryString) -> Result<Self> {
        let version = query.take_as("final", "the number of a final version, from 1")?;
        let basis = query.take("basis")?.filter(|basis| !basis.is_empty());
        match (basis.as_deref(), version) {
            (_, Some(0)) => {
                let detail = "must be the number of a final version, from 1";
                Err(Problem::malformed("final", "0", detail))
            }
            (None | Some("final"), Some(version)) => Ok(Self::Version(version)),
            (Some("final"), None) => Ok(Self::Final),
            (None | Some("counted"), None) => Ok(Self::Counted),
            (Some("counted"), Some(version)) => {
                let detail = "must be left out beside `basis=counted`";
                Err(Problem::malformed("final", &version.to_string(), detail))
            }
            (Some(other), _) => {
                let detail = "must be `counted`, or `final` for the books of final days";
                Err(Problem::malformed("basis", other, detail))
            }
        }
    }

    /// The final version that is read, where it is named.
    fn version(self) -> Option<u32> {
        match self {
            Self::Counted | Self::Final => None,
            Self::Version(version) => Some(version),
        }
    }

    /// The parameter that asks for final numbers, and its value.
    fn parameter(self) -> (&'static str, String) {
        match self {
            Self::Counted => ("basis", "counted".to_owned()),
            Self::Final => ("basis", "final".to_owned()),
            Self::Version(version) => ("final", version.to_string()),
        }
    }
}

/// The view that a read reads.
pub(crate) enum Source<'v, 's> {
    /// Everything that is counted, or a kept generation.
    Counted(&'v View<'s>, Option<u64>),
    /// The books of final days.
    Books(BooksView<'s>),
}

impl<'s> Source<'_, 's> {
    /// The view.
    pub(crate) fn view(&self) -> &View<'s> {
        match self {
            Self::Counted(view, _) => view,
            Self::Books(books) => books.view(),
        }
    }

    /// The generation to read.
    pub(crate) fn as_of(&self) -> Option<u64> {
        match self {
            Self::Counted(_, as_of) => *as_of,
            Self::Books(_) => Some(BooksView::AS_OF),
        }
    }
}

impl Period {
    /// The states of what is read, where those of what is counted are these.
    pub(crate) fn states(&self, counted: States) -> States {
        match self.basis {
            Basis::Counted => counted,
            Basis::Final | Basis::Version(_) => counted.of_books(),
        }
    }

    /// The view to read, of what `reader` sees of these namespaces, or of one key of each. Fails with 422 where final
    /// numbers are asked for and a day of the range is not final for one of them: it says which day, and until when all
    /// days are final.
    pub(crate) fn source<'v, 's>(
        &self,
        reader: &'v View<'s>,
        of: &[(&str, Option<&str>)],
    ) -> Result<Source<'v, 's>> {
        if self.basis == Basis::Counted {
            return Ok(Source::Counted(reader, self.as_of));
        }
        let (name, value) = self.basis.parameter();
        let refuse =
            |detail: String| -> Problem { FieldError::refused(name, &value, detail).into() };
        let Selection::Bounded(buckets) = &self.selection else {
            let detail = "needs a period with a beginning and an end that are final: give `from` and `to`, or `units`";
            return Err(refuse(detail.to_owned()));
        };
        let range: Range<i64> = buckets.start()..buckets.end();
        let books = reader.books(of, &range, self.basis.version());
        books.map(Source::Books).map_err(|error| match error {
            Error::NotFinal { .. } => {
                let namespaces: Vec<&str> = of.iter().map(|(namespace, _)| *namespace).collect();
                let until = reader.states(&namespaces, self.now, None).final_until();
                let until = match until {
                    Some(until) => format!("days are final until {} (`final_until`)", rfc3339_utc(until)),
                    None => "no day is final yet".to_owned(),
                };
                refuse(format!(
                    "needs UTC days that are all final, and {error}; {until}: ask for a range of final days, or leave \
                     `{name}` out"
                ))
            }
            Error::Loaded { beside, .. } => refuse(match beside {
                Beside::Waits => {
                    format!("needs days whose counts are all final, and {error}: wait for it, or leave `{name}` out")
                }
                Beside::Dropped => format!(
                    "needs days whose counts are all final, and {error}: run `tallyring rebuild`, or leave `{name}` out"
                ),
                Beside::Lost => format!(
                    "needs days whose counts are all final, and {error}: load it again with --final, or leave `{name}` out"
                ),
                Beside::NotFinal => format!(
                    "needs days whose counts are all final, and {error}: drop it, load it with --final, ask for the books \
                     of the log alone by their version (`final=1`), or leave `{name}` out"
                ),
            }),
            Error::SumsOnly { .. } => refuse(format!(
                "needs days whose books are kept, and {error}: ask for later days, or leave `{name}` out"
            )),
            Error::ManyFinalDays { .. } => refuse(format!("covers too much: {error}")),
            error => error.into(),
        })
    }
}
