//! Pseudonyms: names of users in a log that no longer tells of persons.
//!
//! A pseudonym is `~` and 22 characters of base64: the 96 keyed bits of the user ([`UserKey`]), by which actions and
//! erasures know the user, and the four bytes that a sketch of few users holds of one ([`User`]). So everything that is
//! counted from a pseudonym is the same, bit for bit, and nothing tells more of the person than the archive does.

use data_encoding::BASE64URL_NOPAD;

use crate::actions::UserKey;
use crate::long_key::LongKeys;
use crate::users::{COUPON_BYTES, User};

const MARK: char = '~';
const BYTES: usize = UserKey::BYTES + COUPON_BYTES;

/// The pseudonym of a user in this installation, who may be named by it already.
///
/// ```
/// use tallyring_records::{LongKeys, UserKey, pseudonym};
///
/// let keys = LongKeys::new([7; 32]);
/// let name = pseudonym(&keys, "jehiah");
/// assert_eq!(pseudonym(&keys, &name), name);
/// assert_eq!(UserKey::of(&keys, &name), UserKey::of(&keys, "jehiah"));
/// ```
pub fn pseudonym(keys: &LongKeys, user: &str) -> String {
    let mut bytes = [0; BYTES];
    let (key, coupon) = bytes.split_at_mut(UserKey::BYTES);
    key.copy_from_slice(UserKey::of(keys, user).as_bytes());
    coupon.copy_from_slice(&User::new(user).coupon());
    format!("{MARK}{}", BASE64URL_NOPAD.encode(&bytes))
}

/// True where a user is named by a pseudonym. Nobody may send one: it stands for a user in the log only.
pub fn is_pseudonym(user: &str) -> bool {
    parts(user).is_some()
}

/// The key and the coupon of a user who is named by a pseudonym.
pub(crate) fn parts(user: &str) -> Option<(UserKey, [u8; COUPON_BYTES])> {
    let text = user.strip_prefix(MARK)?;
    let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).ok()?;
    let (key, coupon) = bytes.split_first_chunk::<{ UserKey::BYTES }>()?;
    Some((UserKey::from_bytes(*key), coupon.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::users::Users;

    #[test]
    fn users_by_pseudonyms_are_the_same_users() {
        let keys = LongKeys::new([3; 32]);
        // A list of few, and registers.
        for count in [1, 7, 8, 400, 3_000] {
            let [mut named, mut hidden, mut both] = <[Users; 3]>::default();
            for user in (0..count).map(|user| format!("user {user}")) {
                let name = pseudonym(&keys, &user);
                assert!(is_pseudonym(&name) && !is_pseudonym(&user));
                assert_eq!(UserKey::of(&keys, &name), UserKey::of(&keys, &user));
                named.add(User::new(&user));
                hidden.add(User::new(&name));
                both.add(User::new(if user.len() % 2 == 0 { &user } else { &name }));
            }
            assert_eq!(named.to_payload(), hidden.to_payload(), "{count}");
            assert_eq!(named.to_payload(), both.to_payload(), "{count}");
        }
    }

    #[test]
    fn a_text_that_is_no_pseudonym_is_a_name() {
        for user in ["", "~", "~abc", "~~~~~~~~~~~~~~~~~~~~~~~", "jehiah"] {
            assert!(!is_pseudonym(user), "{user}");
        }
    }
}
