//! Actions of users: a subtotal that no configuration can declare, and that has a value for each action.
//!
//! `_a.@|q2Xb9K0fJt4wLm1c.c41,78301.click.home.ad=42.campaign=7.#3q2-7wAAAAA:1` says that a user clicked on ad 42 of
//! campaign 7 at second 78,301 of the UTC day `c41`, on the view `home`, for an insertion whose tag is `3q2-7wAAAAA`. A
//! view or a tag may be missing; the place of the view is empty then. Keys and views are in their stored form. The user
//! is 96 bits that are keyed per installation, so no file tells a user's name. `75600~click..ad=42:900` says that a
//! user clicked 900 times within the hour that begins at second 75,600: so count the actions of a user who has very
//! many.
//!
//! An action is a count like any other: it merges, expires, moves between shards and is verified as values of
//! subtotals are. Where all of an action is equal, its count is that of all of them.

mod sums;

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use data_encoding::{BASE64URL, BASE64URL_NOPAD};

use crate::day::Day;
use crate::line;
use crate::long_key::LongKeys;
use crate::pseudonym;
use crate::shard::KeyCrc;

pub use sums::ActionSums;

/// The subtotal's name.
pub const ACTIONS: &str = "_a";

/// The section of all lines of actions, which sorts before all others of a run.
pub const ACTIONS_SECTION: &str = "_a.@|";

/// Stands for a namespace in the key of a user's lines. No namespace can have this name.
const USERS: &str = "@";

/// Domains of keyed bits ([`LongKeys::identity`]).
const USER_DOMAIN: u8 = 4;
const INSERTION_DOMAIN: u8 = 5;
/// The bits of a tag that count. Lines of earlier builds have bits behind them, too.
const TAG_MASK: u64 = !0xffff;

/// The 96 keyed bits of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserKey([u8; UserKey::BYTES]);

/// The text of a user's key in a line.
pub type UserText = [u8; UserKey::CHARS];

/// One action, or several that are equal.
///
/// ```
/// use tallyring_records::Action;
///
/// let action = Action { second: 78_301, by_hour: false, what: b"click.home.ad=42", tag: Some(7 << 16) };
/// let mut value = Vec::new();
/// action.write_value(&mut value);
/// assert_eq!(value, b"78301.click.home.ad=42.#AAAAAAAHAAA");
/// assert_eq!(Action::parse(&value), Some(action));
/// let (kind, view, entities) = action.parts();
/// assert_eq!((kind, view), (&b"click"[..], &b"home"[..]));
/// assert_eq!(entities.collect::<Vec<_>>(), [b"ad=42"]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Action<'t> {
    /// Second of the UTC day.
    pub second: u32,
    /// True where the action happened at any time of the hour that begins with the second.
    pub by_hour: bool,
    /// The type, the view and the entities: `click.home.ad=42.campaign=7`.
    pub what: &'t [u8],
    /// The tag of the insertion ([`insertion_tag`]).
    pub tag: Option<u64>,
}

/// Type, view and entities of an action.
///
/// ```
/// use tallyring_records::What;
///
/// let what = What::parse("click.home.ad=42.campaign=7").unwrap();
/// assert_eq!((what.kind, what.view), ("click", Some("home")));
/// assert_eq!(what.entity("campaign"), Some("7"));
/// assert_eq!(what.entity("advertiser"), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct What<'t> {
    /// The type of event.
    pub kind: &'t str,
    /// The view in its stored form.
    pub view: Option<&'t str>,
    entities: &'t str,
}

const DAY_SECONDS: u32 = 86_400;
const HOUR_SECONDS: u32 = 3_600;
const SECOND_DIGITS: usize = 5;
/// Stands behind the second that begins an hour.
const BY_HOUR: u8 = b'~';

impl UserKey {
    /// Bytes of a key.
    pub const BYTES: usize = 12;
    /// Characters of its text.
    const CHARS: usize = 16;

    /// The key of a user in this installation, who may be named by a pseudonym.
    pub fn of(keys: &LongKeys, user: &str) -> Self {
        if let Some((key, _)) = pseudonym::parts(user) {
            return key;
        }
        let bits = keys.identity(USER_DOMAIN, user.as_bytes()).to_be_bytes();
        let mut key = [0; Self::BYTES];
        key.copy_from_slice(&bits[..Self::BYTES]);
        Self(key)
    }

    /// The key with these bytes.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes of the key.
    pub fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// The user whose actions a line with this key holds; none for another line.
    ///
    /// ```
    /// use tallyring_records::UserKey;
    ///
    /// let user = UserKey::from_bytes([7; 12]);
    /// let key = format!("{}c41", user.prefix());
    /// assert_eq!(UserKey::of_line(key.as_bytes()), Some(user));
    /// assert_eq!(UserKey::of_line(b"u|jehiah"), None);
    /// ```
    pub fn of_line(key: &[u8]) -> Option<Self> {
        if !is_actions(key) {
            return None;
        }
        let (_, total, _) = line::split_subtotal(key)?;
        let text = total.strip_prefix(USERS.as_bytes())?.strip_prefix(b"|")?;
        Self::from_text(text.try_into().ok()?)
    }

    /// The text of the key, by which lines are sorted.
    pub fn text(&self) -> UserText {
        let mut text = [0; Self::CHARS];
        BASE64URL.encode_mut(&self.0, &mut text);
        text
    }

    /// The key with this text; `None` for a text that no key has.
    pub fn from_text(text: &UserText) -> Option<Self> {
        let mut key = [0; Self::BYTES];
        let decoded = BASE64URL.decode_mut(text, &mut key);
        decoded
            .is_ok_and(|bytes| bytes == key.len())
            .then_some(Self(key))
    }

    /// The text that tells the shard of the user, in place of a total key: `@|q2Xb9K0fJt4wLm1c`.
    pub fn total_key(&self) -> String {
        String::from_utf8_lossy(&self.shard_key()).into_owned()
    }

    /// The checksum that tells the shard of the user.
    pub fn crc(&self) -> KeyCrc {
        KeyCrc::of(&self.shard_key())
    }

    fn shard_key(&self) -> [u8; USERS.len() + 1 + Self::CHARS] {
        let mut key = *b"@|0123456789abcdef";
        BASE64URL.encode_mut(&self.0, &mut key[USERS.len() + 1..]);
        key
    }

    /// The beginning of the keys of the user's lines, which a day's code follows.
    pub fn prefix(&self) -> String {
        line::subtotal_prefix(ACTIONS, USERS, &self.to_string())
    }
}

crate::serde_as_text!(UserKey);

impl FromStr for UserKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let key = text.as_bytes().try_into().ok();
        let key = key.and_then(Self::from_text);
        key.ok_or_else(|| format!("`{}` is no user key", text.escape_debug()))
    }
}

impl fmt::Display for UserKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64URL.encode(&self.0))
    }
}

/// 48 keyed bits of an insertion, and 16 bits that are 0. Two of 1,000 insertions of a user have one tag with a
/// probability of 2 in 10⁹.
pub fn insertion_tag(keys: &LongKeys, insertion: &str) -> u64 {
    (keys.identity(INSERTION_DOMAIN, insertion.as_bytes()) >> 64) as u64 & TAG_MASK
}

/// The text of the tag of an insertion, as lines of actions have it.
///
/// ```
/// assert_eq!(tallyring_records::tag_text(7 << 16), "AAAAAAAHAAA");
/// ```
pub fn tag_text(tag: u64) -> String {
    BASE64URL_NOPAD.encode(&tag.to_be_bytes())
}

/// How long the time is in which an action happened: an hour for one that is known by its hour alone, or one second.
pub fn action_seconds(by_hour: bool) -> i64 {
    if by_hour { 3_600 } else { 1 }
}

/// Appends the type and the view of an action, the view in its stored form, as [`What`] reads them.
pub(crate) fn begin_what(out: &mut Vec<u8>, kind: &str, view: Option<&str>) {
    for part in [kind, ".", view.unwrap_or_default()] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Appends an entity and its stored key behind what stands there.
pub(crate) fn push_entity(out: &mut Vec<u8>, entity: &str, key: &str) {
    for part in [".", entity, "=", key] {
        out.extend_from_slice(part.as_bytes());
    }
}

impl<'t> Action<'t> {
    /// Characters of the text of a tag: 64 bits in base64.
    pub const TAG_CHARS: usize = 11;

    /// The action with those bits of its tag by which insertions are told apart. A line of an earlier build has further
    /// ones.
    #[must_use]
    pub fn as_told_apart(self) -> Self {
        let tag = self.tag.map(|tag| tag & TAG_MASK);
        Self { tag, ..self }
    }

    /// How long the time is in which the action happened, which begins with the second ([`action_seconds`]).
    pub fn seconds(&self) -> i64 {
        action_seconds(self.by_hour)
    }

    /// The instant (Unix seconds) of an action of a day, where it may have happened within a range.
    pub fn at_within(&self, day: Day, range: &Range<i64>) -> Option<i64> {
        let at = day.start() + i64::from(self.second);
        (at < range.end && at + self.seconds() > range.start).then_some(at)
    }

    /// The type, the view (empty where there is none), and each entity with its key, as they stand in the text. Nothing
    /// is checked: what is no action gives any parts.
    pub fn parts(&self) -> (&'t [u8], &'t [u8], impl Iterator<Item = &'t [u8]> + use<'t>) {
        let mut parts = self.what.split(|&byte| byte == b'.');
        let kind = parts.next().unwrap_or_default();
        let view = parts.next().unwrap_or_default();
        (kind, view, parts)
    }

    /// Appends the value of the action.
    pub fn write_value(&self, out: &mut Vec<u8>) {
        let mut text = [0; Self::TAG_CHARS];
        let tag = match self.tag {
            Some(tag) => {
                BASE64URL_NOPAD.encode_mut(&tag.to_be_bytes(), &mut text);
                &text[..]
            }
            None => &[],
        };
        Self::write_texts(out, (self.second, self.by_hour), self.what, tag);
    }

    /// As [`Action::write_value`], of the second of the day and whether it stands for its hour, and of the text of the
    /// tag, which is empty for no tag.
    pub fn write_texts(out: &mut Vec<u8>, when: (u32, bool), what: &[u8], tag: &[u8]) {
        let (mut rest, by_hour) = when;
        let start = out.len();
        out.resize(start + SECOND_DIGITS, b'0');
        for digit in out[start..].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        out.push(if by_hour { BY_HOUR } else { b'.' });
        out.extend_from_slice(what);
        if !tag.is_empty() {
            out.extend_from_slice(b".#");
            out.extend_from_slice(tag);
        }
    }

    /// The action of a value; `None` for a text that no action has.
    pub fn parse(value: &'t [u8]) -> Option<Self> {
        let (digits, rest) = value.split_at_checked(SECOND_DIGITS)?;
        let digit = |sum: u32, &byte: &u8| {
            byte.is_ascii_digit()
                .then(|| 10 * sum + u32::from(byte - b'0'))
        };
        let second = digits
            .iter()
            .try_fold(0, digit)
            .filter(|&second| second < DAY_SECONDS)?;
        let (&mark, rest) = rest.split_first()?;
        let by_hour = mark == BY_HOUR;
        (by_hour || mark == b'.').then_some(())?;
        let (what, tag) = match split_tag(rest) {
            Some((what, tag)) => (what, Some(tag)),
            None => (rest, None),
        };
        What::parse(std::str::from_utf8(what).ok()?)?;
        Some(Self {
            second,
            by_hour,
            what,
            tag,
        })
    }
}

/// The text before a tag, and the tag. `None` where the text ends otherwise: `.#` may begin a view, too, but a tag has
/// neither `.` nor `=`, which follow a view.
fn split_tag(text: &[u8]) -> Option<(&[u8], u64)> {
    let (what, tag) = text.split_at(text.len().checked_sub(Action::TAG_CHARS + 2)?);
    let mut bits = [0; 8];
    let decoded = BASE64URL_NOPAD.decode_mut(tag.strip_prefix(b".#")?, &mut bits);
    let is_whole = decoded.is_ok_and(|bytes| bytes == bits.len());
    is_whole.then_some((what, u64::from_be_bytes(bits)))
}

impl<'t> What<'t> {
    /// Reads the text of what was done; `None` for any other text.
    pub fn parse(text: &'t str) -> Option<Self> {
        let (kind, rest) = text.split_once('.')?;
        let (view, entities) = rest.split_once('.')?;
        let is_pair = |pair: &str| {
            pair.split_once('=')
                .is_some_and(|(entity, _)| !entity.is_empty())
        };
        let is_whole = !kind.is_empty() && entities.split('.').all(is_pair);
        is_whole.then_some(Self {
            kind,
            view: Some(view).filter(|view| !view.is_empty()),
            entities,
        })
    }

    /// The stored key of an entity; `None` where the action does not name the entity.
    pub fn entity(&self, name: &str) -> Option<&'t str> {
        self.entities()
            .find(|(entity, _)| *entity == name)
            .map(|(_, key)| key)
    }

    /// The entities and their stored keys.
    pub fn entities(&self) -> impl Iterator<Item = (&'t str, &'t str)> + use<'t> {
        self.entities
            .split('.')
            .filter_map(|pair| pair.split_once('='))
    }
}

/// True for the key of a line of actions of a day that began before `instant` (Unix seconds). A merge may leave such a
/// line out once actions are that old.
pub fn is_actions_before(key: &[u8], instant: i64) -> bool {
    is_actions(key) && line::split_subtotal(key).is_some_and(|(_, _, code)| code.start() < instant)
}

/// True for a section of the books that sums actions.
pub fn is_actions_section(section: &str) -> bool {
    is_actions(section.as_bytes())
}

/// True for the key of a line of actions, and for its section.
pub fn is_actions(text: &[u8]) -> bool {
    text.strip_prefix(ACTIONS.as_bytes())
        .is_some_and(|rest| rest.starts_with(b"."))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_that_no_action_has_are_refused() {
        for value in [
            "",
            "78301",
            "78301.",
            "86400.click..ad=1",
            "7830a.click..ad=1",
            "78301.click",
            "78301.click.",
            "78301.click.home",
            "78301..home.ad=1",
            "78301.click.home.ad",
            "78301.click.home.=1",
            "78301.click.home.ad=1.#AAAAAAAAAA!",
            "78301.click.home.ad=1.#AAAAAAAAAA",
            "78301.click.home.ad=1.",
        ] {
            assert_eq!(Action::parse(value.as_bytes()), None, "{value}");
        }
    }

    #[test]
    fn a_users_key_is_of_the_installation_and_safe_in_a_line() {
        let keys = LongKeys::new([7; 32]);
        let key = UserKey::of(&keys, "ann");
        assert_eq!(key.to_string().len(), 16);
        assert_ne!(key, UserKey::of(&LongKeys::new([8; 32]), "ann"));
        assert_eq!(UserKey::from_text(&key.text()), Some(key));
        assert_eq!(UserKey::from_text(b"0123456789abcde!"), None);
        let line = [key.prefix().as_bytes(), b"c41"].concat();
        let begin = [ACTIONS_SECTION.as_bytes(), &key.text(), b"."].concat();
        assert!(line.starts_with(&begin));
        let (subtotal, total, _) = line::split_subtotal(&line).expect("a key");
        assert_eq!(
            (subtotal, total),
            (ACTIONS.as_bytes(), key.total_key().as_bytes())
        );
        assert_eq!(line::kind_of(&line), Some(line::Kind::Subtotal));
        assert!(
            is_actions_section("_a.@|")
                && !is_actions_section("a.u|")
                && !is_actions_section("_ab.@|")
        );
        assert!(is_actions_before(&line, crate::TIME_MAX) && !is_actions_before(&line, 0));
    }

    #[test]
    fn a_tag_of_64_bits_is_that_of_its_first_48() {
        let line = |tag| format!("78301.click..ad=42.#{}", tag_text(tag));
        let [before, now] = [0x0123_4567_89ab_cdef, 0x0123_4567_89ab_0000].map(line);
        let parse = |line: &str| Some(Action::parse(line.as_bytes())?.as_told_apart().tag);
        assert_eq!(parse(&before), Some(Some(0x0123_4567_89ab_0000)));
        assert_eq!(parse(&before), parse(&now));
    }

    #[test]
    fn a_hashed_view_is_no_tag() {
        let action = Action {
            second: 5,
            by_hour: false,
            what: b"click.#abc.a=12345",
            tag: None,
        };
        let mut value = Vec::new();
        action.write_value(&mut value);
        assert_eq!(Action::parse(&value), Some(action));
    }

    proptest! {
        #[test]
        fn prop_an_action_finds_itself_again(
            second in 0..DAY_SECONDS,
            view in proptest::option::of("[a-zA-Z0-9#=_-]{1,11}"),
            entities in proptest::collection::vec(("[a-z][a-z0-9_]{0,5}", "[^ :,.|*\"'\\x00-\\x1f\\x7f-\\x9f]{1,11}"), 1..5),
            tag in proptest::option::of(any::<u64>()),
            by_hour in any::<bool>(),
        ) {
            let mut what = Vec::new();
            let pairs = entities.iter().map(|(entity, key)| (entity.as_str(), key.as_str()));
            begin_what(&mut what, "click", view.as_deref());
            pairs.clone().for_each(|(entity, key)| push_entity(&mut what, entity, key));
            let action = Action { second, by_hour, what: &what, tag };
            let mut value = Vec::new();
            action.write_value(&mut value);
            prop_assert_eq!(Action::parse(&value), Some(action));
            let read = What::parse(std::str::from_utf8(&what).unwrap()).unwrap();
            prop_assert_eq!((read.kind, read.view), ("click", view.as_deref()));
            prop_assert_eq!(read.entities().collect::<Vec<_>>(), pairs.collect::<Vec<_>>());
        }
    }
}
