//! Version 3's parameters. An empty one counts as left out.

use std::borrow::Cow;

use super::super::answer::Fault;
use super::super::series::{ALL, Window};
use super::super::source::{Kind, hash_of_link, is_key};
use crate::access::Caller;
use crate::calendar::{Unit, Zone};
use crate::query_string::QueryString;

const DEFAULT_ZONE: &str = "America/New_York";
const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 1_000;
const MINUTES_MAX: i64 = 60;

/// Takes `timezone` (or `tz_offset`, as the Python client calls it) and `unit_reference_ts`.
pub(crate) fn take_window(
    query: &mut QueryString,
    unit: Option<String>,
    units: Option<i64>,
    now: i64,
) -> Result<Window, Fault> {
    const REFERENCE: &str = "unit_reference_ts";
    let unit = unit.map_or(Ok(Unit::Day), |unit| {
        unit.parse().map_err(|_| Fault::invalid("unit"))
    })?;
    let units = match units.unwrap_or(ALL) {
        // All minutes are those of the last hour: earlier ones may not be kept.
        ALL if unit == Unit::Minute => MINUTES_MAX,
        units => units,
    };
    let reference = match take_text(query, REFERENCE)? {
        Some(text) if text != "now" => Some(text.parse().map_err(|_| Fault::invalid(REFERENCE))?),
        _ => None,
    };
    if unit == Unit::Minute && reference.is_some() {
        return Err(Fault::invalid(REFERENCE));
    }
    if unit == Unit::Minute && units > MINUTES_MAX {
        return Err(Fault::invalid("units"));
    }
    let (timezone, tz_offset) = (
        take_zone(query, "timezone")?,
        take_zone(query, "tz_offset")?,
    );
    let zone = match timezone.or(tz_offset) {
        Some(zone) => zone,
        None => Zone::named(DEFAULT_ZONE).map_err(|_| Fault::invalid("timezone"))?,
    };
    Window::new(unit, units, zone, (REFERENCE, reference), now)
}

/// Takes a zone by its name or its offset in hours.
fn take_zone(query: &mut QueryString, name: &str) -> Result<Option<Zone>, Fault> {
    let Some(text) = take_text(query, name)? else {
        return Ok(None);
    };
    let zone = match text.trim().parse() {
        Ok(hours) => Zone::fixed(hours),
        Err(_) => Zone::named(text.trim()),
    };
    zone.map(Some).map_err(|_| Fault::invalid(name))
}

/// The key that a request is about.
pub(super) struct CountedKey {
    /// The key as it is counted.
    pub key: String,
    /// The key as the request names it.
    pub asked: String,
}

/// The key that the request is about. The login is the one behind the token; for a token that has none the
/// one that is named, and without keys of our own else the token itself.
pub(super) fn take_key(
    query: &mut QueryString,
    kind: Kind,
    caller: &Caller,
) -> Result<CountedKey, Fault> {
    match kind {
        Kind::Link => {
            let asked = take_text(query, "link")?.ok_or(Fault::Missing("link"))?;
            let key = hash_of_link(&asked).ok_or_else(|| Fault::invalid("link"))?;
            Ok(CountedKey { key, asked })
        }
        Kind::User => {
            let login = take_text(query, "login")?;
            let token = take_text(query, "access_token")?;
            // A key of ours is a secret, never a name.
            let token = token.filter(|_| !caller.has_key());
            // So with one that has no login, the login is what is missing.
            let parameter = match caller.has_key() || login.is_some() {
                true => "login",
                false => "access_token",
            };
            let login = caller.login.clone().or(login);
            let key = login.or(token).ok_or(Fault::Missing(parameter))?;
            checked(key, parameter)
        }
        Kind::Domain => {
            let domain = take_text(query, "domain")?.ok_or(Fault::Missing("domain"))?;
            checked(domain, "domain")
        }
    }
}

fn checked(key: String, parameter: &str) -> Result<CountedKey, Fault> {
    if !is_key(&key) {
        return Err(Fault::invalid(parameter));
    }
    let asked = key.clone();
    Ok(CountedKey { key, asked })
}

/// Takes a parameter; an empty one counts as left out.
pub(super) fn take_text(query: &mut QueryString, name: &str) -> Result<Option<String>, Fault> {
    let text = query.take(name)?.filter(|text| !text.is_empty());
    Ok(text.map(Cow::into_owned))
}

/// Takes `true` or `false`, in any case, or `1` or `0`.
pub(super) fn take_flag(query: &mut QueryString, name: &str) -> Result<Option<bool>, Fault> {
    let text = take_text(query, name)?.map(|text| text.to_lowercase());
    match text.as_deref() {
        None => Ok(None),
        Some("true" | "1") => Ok(Some(true)),
        Some("false" | "0") => Ok(Some(false)),
        Some(_) => Err(Fault::invalid(name)),
    }
}

/// Takes `limit`, which bounds lists of values.
pub(super) fn take_limit(query: &mut QueryString) -> Result<usize, Fault> {
    let limit: Option<usize> = query.take_as("limit", "a whole number from 1 to 1000")?;
    Some(limit.unwrap_or(LIMIT_DEFAULT))
        .filter(|limit| (1..=LIMIT_MAX).contains(limit))
        .ok_or_else(|| Fault::invalid("limit"))
}

/// True for `format=txt`. The envelope itself sees to `xml`.
pub(crate) fn take_is_text(query: &mut QueryString) -> Result<bool, Fault> {
    match take_text(query, "format")?.as_deref() {
        None | Some("json" | "xml") => Ok(false),
        Some("txt") => Ok(true),
        Some(_) => Err(Fault::invalid("format")),
    }
}

/// Only a single number can be text.
pub(crate) fn refuse_text(is_text: bool) -> Result<(), Fault> {
    if is_text {
        Err(Fault::invalid("format"))
    } else {
        Ok(())
    }
}
