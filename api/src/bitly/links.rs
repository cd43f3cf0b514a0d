//! The links with most clicks, of a user or a group.
//!
//! Whose a link is can be said only where users are broken down by link: where the namespace `u` declares
//! the subtotal `l`, and clicks are sent with `by.l`. Without it all users are taken for one group, which
//! they are where one account has its own server: then the heaviest of all links are answered. Not to
//! the bearer of a key with a login, who would take the links of others for its own.

use tallyring_records::MISSING;

use super::answer::Fault;
use super::facets::{self, Facet};
use super::series::Window;
use super::source::{Kind, Source, is_broken_down, read};
use crate::access::{Caller, Length};
use crate::calendar::Unit;
use crate::read::base::{Base, BaseData};
use crate::read::period::span;
use crate::state::ApiState;
use crate::work::reading;

/// The `limit` links with most clicks, most first.
///
/// # Errors
/// [`Fault::NotFound`] where nothing of it is counted, [`Fault::NoMinutes`] and [`Fault::Unavailable`] as
/// for every read.
pub(super) async fn ranked(
    state: &ApiState,
    caller: &Caller,
    user: String,
    window: Window,
    limit: usize,
) -> Result<Vec<(String, u64)>, Fault> {
    let schema = state.store().schema();
    let users = schema.namespace(Kind::User.namespace());
    if users.is_some_and(|users| is_broken_down(users, Facet::Links)) {
        let source = Source {
            kind: Kind::User,
            key: user,
            facet: Some(Facet::Links),
        };
        return read(state, vec![source], window, move |reader, _, series| {
            // One more, as clicks without a link may be among them.
            let mut links = facets::ranked(reader, &series[0], Facet::Links, limit + 1)?;
            links.retain(|(link, _)| link != MISSING);
            links.truncate(limit);
            Ok(links)
        })
        .await;
    }
    let links = schema.namespace(Kind::Link.namespace());
    let links = links.filter(|_| caller.login.is_none());
    let links = links.ok_or(Fault::NotFound)?;
    let base = Base::of(links, &window.selection, BaseData::Totals);
    let by_minute = base.map_err(|_| Fault::NoMinutes)?.by_minute();
    let (from, to) = span(&window.selection);
    let namespace = links.name.clone();
    let ranking = reading(state, Length::Long, move |reader| {
        let ranking = reader.top(&namespace, from..to, by_minute, limit, None)?;
        // These answers have no place to say that there may be others.
        match ranking.bound {
            Some(_) => Ok(reader.top_exact(&namespace, from..to, by_minute, limit, None)?),
            None => Ok(ranking),
        }
    });
    let ranking = ranking.await;
    let ranking = ranking.map_err(|problem| Fault::of_read(&problem))?;
    if window.unit == Unit::Minute && ranking.is_cut {
        return Err(Fault::NoMinutes);
    }
    let links = ranking.keys.into_iter();
    Ok(links.map(|link| (link.key, link.count)).collect())
}
