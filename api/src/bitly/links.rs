//! The links with most clicks, of a user or a group.
//!
//! Whose a link is can be said only where users are broken down by link: where the namespace `u` declares
//! the subtotal `l`, and clicks are sent with `by.l`. Without it all users are taken for one group, which
//! they are where one account has its own server: then the heaviest of all links are answered. Not to
//! the bearer of a key with a login, who would take the links of others for its own.

use tallyring_realtime::{Ranking, View};
use tallyring_records::{MISSING, Namespace};

use super::answer::Fault;
use super::facets::{self, Facet};
use super::series::Window;
use super::source::{Kind, Source, is_broken_down, read};
use crate::access::{Caller, Length};
use crate::calendar::Unit;
use crate::problem::Result;
use crate::read::base::{Base, BaseData};
use crate::read::period::span;
use crate::state::ApiState;
use crate::work::reading;

/// The `limit` links with most clicks, most first, and the window that they are of: hours where minutes are asked for
/// and not kept. Fails with [`Fault::NotFound`] where nothing of it is counted, [`Fault::Unavailable`] as for every
/// read.
pub(super) async fn ranked(
    state: &ApiState,
    caller: &Caller,
    user: String,
    window: Window,
    limit: usize,
) -> Result<(Window, Vec<(String, u64)>), Fault> {
    let schema = state.store().schema();
    let users = schema.namespace(Kind::User.namespace());
    if users.is_some_and(|users| is_broken_down(users, Facet::Links)) {
        let source = Source {
            kind: Kind::User,
            key: user,
            facet: Some(Facet::Links),
        };
        return read(state, [source], window, move |reader, window, series| {
            // One more, as clicks without a link may be among them.
            let mut links = facets::ranked(reader, &series[0], Facet::Links, limit + 1)?;
            links.retain(|(link, _)| link != MISSING);
            links.truncate(limit);
            Ok((window.clone(), links))
        })
        .await;
    }
    let links = schema.namespace(Kind::Link.namespace());
    let links = links.filter(|_| caller.login.is_none());
    let links = links.ok_or(Fault::NotFound)?;
    let links = links.clone();
    let ranking = reading(state, Length::Long, move |reader| {
        window.or_in_hours(|window| of_all(reader, &links, window, limit))
    });
    let (window, ranking) = ranking.await.map_err(|problem| Fault::of_read(&problem))?;
    let ranking = ranking.ok_or_else(|| Fault::invalid("unit"))?;
    let links = ranking.keys.into_iter();
    let links = links.map(|link| (link.key, link.count)).collect();
    Ok((window, links))
}

/// The heaviest links of all; none where minutes are asked for that are not kept.
fn of_all(
    reader: &View<'_>,
    links: &Namespace,
    window: &Window,
    limit: usize,
) -> Result<Option<Ranking>> {
    let Ok(base) = Base::of(links, &window.selection, BaseData::Totals) else {
        return Ok(None);
    };
    let by_minute = base.by_minute();
    let (from, to) = span(&window.selection);
    let mut ranking = reader.top(&links.name, from..to, by_minute, (limit, false), None)?;
    // These answers have no place to say that there may be others.
    if ranking.bound.is_some() {
        ranking = reader.top(&links.name, from..to, by_minute, (limit, true), None)?;
    }
    let lacks = window.unit == Unit::Minute && ranking.is_cut;
    Ok((!lacks).then_some(ranking))
}
