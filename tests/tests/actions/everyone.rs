//! A pass over all users against reads of one user after the other.

use std::collections::BTreeMap;
use std::ops::Range;

use tallyring_realtime::View;
use tallyring_records::{LongKeys, UserKey};
use tallyring_tests::model::{Deeds, deeds, fixed_bytes};

/// Checks that a pass over a range (Unix seconds) comes once to each of these users, who are all there are, and finds
/// there what a read of this user finds.
pub(crate) fn check(view: &View<'_>, users: &[String], range: &Range<i64>) {
    let mut bytes = [0; 32];
    fixed_bytes(&mut bytes);
    let keys = LongKeys::new(bytes);
    let read = deeds(view, users, range).expect("read");
    let expected = users.iter().map(|user| UserKey::of(&keys, user)).zip(read);
    let expected: BTreeMap<UserKey, Deeds> =
        expected.filter(|(_, deeds)| !deeds.is_empty()).collect();
    let mut found: Vec<(UserKey, Deeds)> = Vec::new();
    let pass = view.all_actions(range, &mut |user, at, action, n| {
        if found.last().is_none_or(|(last, _)| *last != user) {
            found.push((user, Deeds::new()));
        }
        let what = String::from_utf8_lossy(action.what).into_owned();
        if let Some((_, deeds)) = found.last_mut() {
            *deeds.entry((at, what, action.tag)).or_insert(0) += n;
        }
    });
    pass.expect("read");
    let times = found.len();
    let found: BTreeMap<UserKey, Deeds> = found.into_iter().collect();
    assert_eq!(found.len(), times, "a user comes once, in {range:?}");
    assert_eq!(found, expected, "in {range:?}");
}
