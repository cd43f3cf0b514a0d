//! Lists of actions keep what was added, also while they move.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

type Content = BTreeMap<(UserKey, Day), Vec<(u32, Vec<u8>, Option<u64>, u64)>>;

/// Texts by the numbers below 10, of the one delta or of the other.
fn whats(of: u32) -> Interner {
    let mut whats = Interner::default();
    for number in 0..10 {
        let what = (number + of) % 10;
        whats.intern(format!("click..ad={what}").as_bytes());
    }
    whats
}

/// The number in the other delta.
fn moved(number: u32) -> u32 {
    (number + 7) % 10
}

fn content(all: &[(&Actions, &Interner)]) -> Content {
    let mut content = Content::new();
    for (actions, whats) in all {
        for list in actions.lists() {
            let records = content.entry(list.place()).or_default();
            actions.visit(list.place(), whats, &mut |action, n| {
                records.push((action.second, action.what.to_vec(), action.tag, n));
            });
        }
    }
    content.values_mut().for_each(|records| records.sort());
    content
}

proptest! {
    #[test]
    fn prop_lists_hold_what_was_added_and_keep_it_as_they_move(
        added in proptest::collection::vec(
            (0..4_u8, 0..2_u32, 0..86_400_u32, 0..5_u32, proptest::option::of(any::<u64>()), prop_oneof![Just(1), 1..u64::MAX]),
            0..RECORDS_MAX as usize,
        ),
        before in 0..50_usize,
    ) {
        let (mut from, mut to, mut model) = (Actions::default(), Actions::default(), Content::new());
        let (of_from, of_to) = (whats(0), whats(3));
        for (index, &(user, day, second, what, tag, n)) in added.iter().enumerate() {
            let place = (UserKey::from_bytes([user; 12]), Day::from_number(9_000 + day));
            let text = format!("click..ad={what}").into_bytes();
            let (into, what) = if index < before { (&mut to, moved(what)) } else { (&mut from, what) };
            into.add(place, Done { second, by_hour: false, what, tag }, n);
            model.entry(place).or_default().push((second, text, tag, n));
        }
        model.values_mut().for_each(|records| records.sort());
        prop_assert_eq!(from.len() + to.len(), added.len());
        let mut number = 0;
        loop {
            prop_assert_eq!(&content(&[(&from, &of_from), (&to, &of_to)]), &model);
            if from.move_list(number, &mut to, &mut moved).is_none() {
                break;
            }
            number += 1;
        }
        prop_assert_eq!((from.len(), to.len()), (0, added.len()));
        prop_assert!(to.bytes() >= 12 * added.len().min(1));
    }

    #[test]
    fn prop_a_busy_user_is_counted_by_the_hour_and_nothing_is_lost(
        added in proptest::collection::vec((0..86_400_u32, 0..3_u8, 1..5_u64), 0..400),
        before in 0..100_usize,
    ) {
        let place = (UserKey::from_bytes([1; 12]), Day::from_number(9_000));
        let (mut from, mut to) = (Actions::default(), Actions::default());
        let mut model: BTreeMap<(u32, u8), u64> = BTreeMap::new();
        for (index, &(second, what, n)) in added.iter().enumerate() {
            let into = if index < before { &mut to } else { &mut from };
            let done = Done { second, by_hour: false, what: u32::from(what), tag: Some(7) };
            into.add(place, done, n);
            *model.entry((second / HOUR_SECONDS, what)).or_insert(0) += n;
        }
        for moved in [false, true] {
            if moved {
                from.move_list(0, &mut to, &mut |what| what);
                prop_assert_eq!((from.len(), from.lists().count()), (0, 0));
                prop_assert!(to.len() <= RECORDS_MAX as usize + 24 * 3);
            }
            let mut found: BTreeMap<(u32, u8), u64> = BTreeMap::new();
            for actions in [&from, &to] {
                actions.visit(place, &whats(0), &mut |action, n| {
                    assert!(!action.by_hour || action.second % HOUR_SECONDS == 0 && action.tag.is_none());
                    let hour = (action.second / HOUR_SECONDS, action.what[action.what.len() - 1] - b'0');
                    *found.entry(hour).or_insert(0) += n;
                });
            }
            prop_assert_eq!(&found, &model);
        }
    }
}
