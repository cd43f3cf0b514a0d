//! The source of a metric: a namespace, a key, and perhaps a subtotal.

use percent_encoding::percent_decode_str;
use tallyring_realtime::{Read, Series, View};
use tallyring_records::{Grain, KEY_BYTES_MAX, Namespace, Schema, TimeCode};

use super::answer::Fault;
use super::facets::Facet;
use super::series::Window;
use crate::access::Length;
use crate::calendar::Unit;
use crate::problem::Result;
use crate::read::base::{Base, BaseData, overlaps};
use crate::read::period::span;
use crate::state::ApiState;
use crate::work::reading;

/// Whose counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A short link.
    Link,
    /// A user, or a group of version 4.
    User,
    /// A tracking domain.
    Domain,
}

impl Kind {
    /// The namespace that counts it.
    pub(super) fn namespace(self) -> &'static str {
        match self {
            Self::Link => "l",
            Self::User => "u",
            Self::Domain => "d",
        }
    }
}

/// One key to read.
#[derive(Debug)]
pub(super) struct Source {
    /// Its namespace.
    pub kind: Kind,
    /// Its key.
    pub key: String,
    /// The dimension to break the key down by.
    pub facet: Option<Facet>,
}

impl Source {
    /// The read of the store for this source; none for minutes that are not kept. Fails with [`Fault::NotFound`] for
    /// what is not declared.
    fn read(&self, schema: &Schema, window: &Window) -> Result<Option<(Base, Read)>, Fault> {
        let namespace = schema.namespace(self.kind.namespace());
        let namespace = namespace.ok_or(Fault::NotFound)?;
        let data = match self.facet {
            None => BaseData::Totals,
            Some(facet) => BaseData::Values(facet.subtotal()),
        };
        let Ok(base) = Base::of(namespace, &window.selection, data) else {
            return Ok(None);
        };
        let subtotal = match self.facet {
            None => base.subtotal(),
            Some(facet) if is_broken_down(namespace, facet) => {
                Some(base.subtotal_of(facet.subtotal()))
            }
            // Where no devices are sent every click is of an unknown one, which is an answer.
            Some(Facet::Devices) => None,
            Some(_) => return Err(Fault::NotFound),
        };
        let (from, to) = base.span(&window.selection);
        let read = Read {
            namespace: namespace.name.clone(),
            key: self.key.clone(),
            subtotal,
            from,
            to,
            rolled: self.facet.map(|_| {
                let (from, to) = span(&window.selection);
                from..to
            }),
        };
        Ok(Some((base, read)))
    }
}

/// Reads all sources from one view and makes the answer of them, off the threads that serve. Minutes that are not kept
/// are answered by the hours that hold them, and the window says so. Fails with [`Fault::NotFound`] for what is not
/// declared, [`Fault::TooMuch`] and [`Fault::Unavailable`] for what cannot be read.
pub(super) async fn read<T: Send + 'static>(
    state: &ApiState,
    sources: impl AsRef<[Source]> + Send + 'static,
    window: Window,
    answer: impl FnOnce(&View<'_>, &Window, Vec<Series>) -> Result<T> + Send + 'static,
) -> Result<T, Fault> {
    let schema = state.store().schema();
    reading(state, Length::Short, move |reader| {
        match window.or_in_hours(|window| series(reader, &schema, sources.as_ref(), window)) {
            Ok((window, Some(found))) => answer(reader, &window, found).map(Ok),
            Ok((_, None)) => Ok(Err(Fault::invalid("unit"))),
            Err(fault) => Ok(Err(fault)),
        }
    })
    .await
    .map_err(|problem| Fault::of_read(&problem))?
}

/// The counts of each source; none for minutes that are not kept, of all or some of them.
fn series(
    reader: &View<'_>,
    schema: &Schema,
    sources: &[Source],
    window: &Window,
) -> Result<Option<Vec<Series>>, Fault> {
    let (from, to) = span(&window.selection);
    let within = |code: &TimeCode| (from..to).contains(&code.start());
    let mut found = Vec::with_capacity(sources.len());
    for source in sources {
        let Some((base, read)) = source.read(schema, window)? else {
            return Ok(None);
        };
        let series = reader.read(&read, None);
        let mut series = series.map_err(|error| Fault::of_read(&error.into()))?;
        let is_wider = base.span(&window.selection) != (from, to);
        if is_wider || base.by_minute() {
            let counts = base.counts(&series).into_owned();
            // Counted before minutes were kept, or so long ago that they are not any more.
            let is_without =
                |code: TimeCode| code.grain() != Grain::Minute && overlaps(code, (from, to));
            if window.unit == Unit::Minute && counts.codes().any(is_without) {
                return Ok(None);
            }
            series.totals = counts.iter().filter(|(code, _)| within(code)).collect();
        }
        found.push(series);
    }
    Ok(Some(found))
}

/// True when the namespace is broken down by the facet.
pub(super) fn is_broken_down(namespace: &Namespace, facet: Facet) -> bool {
    let mut declared = namespace.subtotals.iter();
    declared.any(|name| name == facet.subtotal())
}

/// The hash in a link of version 3: the last segment of its path, decoded. The scheme may be left
/// out, and so may everything but the hash.
pub(super) fn hash_of_link(link: &str) -> Option<String> {
    let (scheme, rest) = match link.trim().split_once("://") {
        Some((scheme, rest)) => (Some(scheme), rest),
        None => (None, link.trim()),
    };
    let path = rest.split(['?', '#']).next().unwrap_or_default();
    if (scheme.is_some() || is_link(path)) && !path.trim_end_matches('/').contains('/') {
        return None;
    }
    let hash = hash_of_path(path)?;
    let decoded = percent_decode_str(hash).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

/// True of what is no hash but a link, with its scheme or at least its host.
pub(super) fn is_link(text: &str) -> bool {
    let host = text.split_once('/').map(|(host, _)| host);
    text.contains("://") || host.is_some_and(|host| host.contains('.'))
}

/// The hash in a bitlink of version 4: the last segment of the decoded path.
pub(super) fn hash_of_path(path: &str) -> Option<&str> {
    let hash = path.trim_end_matches('/').rsplit('/').next()?;
    is_key(hash).then_some(hash)
}

/// True when something may be counted under this key.
pub(super) fn is_key(key: &str) -> bool {
    !key.is_empty() && key.len() <= KEY_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_last_segment_of_a_link() {
        for (link, hash) in [
            ("http://bit.ly/1234", Some("1234")),
            ("https://bit.ly/1234/", Some("1234")),
            ("bit.ly/1234", Some("1234")),
            ("1234", Some("1234")),
            ("http://nyti.ms/a/Ab-c_1?x=1#y", Some("Ab-c_1")),
            ("http://bit.ly/caf%C3%A9", Some("café")),
            ("http://bit.ly/%FF", None),
            ("http://bit.ly/", None),
            ("http://bit.ly", None),
            ("bit.ly/", None),
            ("abc/", Some("abc")),
            ("", None),
        ] {
            assert_eq!(hash_of_link(link).as_deref(), hash, "{link}");
        }
        assert_eq!(hash_of_path("bit.ly/abc"), Some("abc"));
        assert_eq!(hash_of_path("abc"), Some("abc"));
        assert_eq!(hash_of_path("/"), None);
    }
}
