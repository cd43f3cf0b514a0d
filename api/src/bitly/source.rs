//! What is read: a namespace, a key, and perhaps a subtotal.

use percent_encoding::percent_decode_str;
use tallyring_realtime::{Read, Series, Store};
use tallyring_records::{KEY_BYTES_MAX, Schema};

use super::envelope::Fault;
use super::facets::Facet;
use super::series::Window;
use crate::problem::Problem;
use crate::read::request::blocking;
use crate::state::ApiState;

/// Whose counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A short link.
    Link,
    /// A user, or a group of version 4.
    User,
    /// A tracking domain.
    Domain,
}

impl Kind {
    fn namespace(self) -> &'static str {
        match self {
            Self::Link => "l",
            Self::User => "u",
            Self::Domain => "d",
        }
    }
}

/// One key to read.
#[derive(Debug)]
pub struct Source {
    /// Its namespace.
    pub kind: Kind,
    /// Its key.
    pub key: String,
    /// What to break it down by.
    pub facet: Option<Facet>,
}

impl Source {
    fn is_declared(&self, schema: &Schema) -> bool {
        schema
            .namespace(self.kind.namespace())
            .is_some_and(|namespace| {
                self.facet.is_none_or(|facet| {
                    let declared = &namespace.subtotals;
                    declared.iter().any(|name| name == facet.subtotal())
                })
            })
    }

    fn read(self, window: &Window) -> Read {
        let (from, to) = window.span();
        Read {
            namespace: self.kind.namespace().to_owned(),
            key: self.key,
            subtotal: self.facet.map(|facet| facet.subtotal().to_owned()),
            from,
            to,
        }
    }
}

/// Reads all sources from one view and makes the answer of them, off the threads that serve.
///
/// # Errors
/// [`Fault::NotFound`] for what is not declared, [`Fault::Unavailable`] for what cannot be read.
pub async fn read<T: Send + 'static>(
    state: &ApiState,
    sources: Vec<Source>,
    window: Window,
    answer: impl FnOnce(&Store, &Window, Vec<Series>) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Fault> {
    let schema = state.store().schema();
    if !sources.iter().all(|source| source.is_declared(&schema)) {
        return Err(Fault::NotFound);
    }
    let reads: Vec<Read> = sources
        .into_iter()
        .map(|source| source.read(&window))
        .collect();
    blocking(state, move |store| {
        let view = store.read(&reads, None)?;
        answer(store, &window, view.series)
    })
    .await
    .map_err(|_| Fault::Unavailable)
}

/// The hash in a link of version 3: the last segment of its path, decoded. The scheme may be left
/// out, and so may everything but the hash.
pub fn hash_of_link(link: &str) -> Option<String> {
    let (scheme, rest) = match link.trim().split_once("://") {
        Some((scheme, rest)) => (Some(scheme), rest),
        None => (None, link.trim()),
    };
    let path = rest.split(['?', '#']).next().unwrap_or_default();
    if scheme.is_some() && !path.trim_end_matches('/').contains('/') {
        return None;
    }
    let hash = hash_of_path(path)?;
    let decoded = percent_decode_str(hash).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

/// The hash in a bitlink of version 4: the last segment of the decoded path.
pub fn hash_of_path(path: &str) -> Option<&str> {
    let hash = path.trim_end_matches('/').rsplit('/').next()?;
    is_key(hash).then_some(hash)
}

/// True when something may be counted under this key.
pub fn is_key(key: &str) -> bool {
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
            ("", None),
        ] {
            assert_eq!(hash_of_link(link).as_deref(), hash, "{link}");
        }
        assert_eq!(hash_of_path("bit.ly/abc"), Some("abc"));
        assert_eq!(hash_of_path("abc"), Some("abc"));
        assert_eq!(hash_of_path("/"), None);
    }
}
