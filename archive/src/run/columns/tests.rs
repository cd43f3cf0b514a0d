//! Columns against the lines that they say, and against changed bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use tallyring_records::{Action, Grain, TimeCode, line};

use super::*;
use crate::error::Error;
use crate::merge::write_subtotal;
use crate::run::block::{Block, IndexedBlock};

/// Columns of lines, and the list that they enter and use.
fn encoded(section: &str, text: &str, list: &mut ValueList) -> Option<Vec<u8>> {
    let columns = Encoder::default().encode(section.as_bytes(), text.as_bytes(), list);
    columns.map(|columns| columns.text)
}

/// The lines of a block's text; none where they cannot be read.
fn decoded(text: &[u8], bytes: usize, list: Option<&[u8]>) -> Option<Vec<u8>> {
    let found = lines(text.to_vec(), bytes, |section| {
        let values = list.and_then(|list| ValueList::values(list, section));
        let values = values.ok_or_else(|| Error::damaged("a run", 0, "it has no list"))?;
        Ok(Arc::new(IndexedBlock::new(Block::new(values.to_vec()))))
    });
    found.ok().flatten()
}

#[test]
fn columns_say_each_key_hour_and_value_once() {
    let text = "c.u|jehiah.c41l,US:4 JP:1\n\
        c.u|jehiah.c41m,US:2\n\
        c.u|jess.c41m,DE:27\n";
    let columns = encoded("c.u|", text, &mut ValueList::default()).unwrap();
    let expected = "columns c.u| hours 107397\n\
        shared ac\n\
        keys jehiah ss \n\
        buckets cb\n\
        gaps abb\n\
        sizes baa\n\
        known \n\
        values US DE JP \n\
        numbers abab\n\
        counts ebcBb\n";
    assert_eq!(String::from_utf8_lossy(&columns), expected);
    assert_eq!(
        decoded(&columns, text.len(), None).unwrap(),
        text.as_bytes()
    );
}

#[test]
fn a_folded_day_has_a_mark_among_hours() {
    let text = "u|jehiah,c41:9 c41l:5 c41m:1\nu|sam,c42:26\n";
    let columns = encoded("u|", text, &mut ValueList::default()).unwrap();
    let expected = "columns u| hours 107376\n\
        shared aa\n\
        keys jehiah sam \n\
        buckets db\n\
        gaps +avb+y\n\
        counts jfbBa\n";
    assert_eq!(String::from_utf8_lossy(&columns), expected);
    assert_eq!(
        decoded(&columns, text.len(), None).unwrap(),
        text.as_bytes()
    );
}

#[test]
fn a_value_of_two_blocks_stands_in_the_list() {
    let mut list = ValueList::default();
    let blocks = [
        "c.u|a.c41l,US:2 JP:1\n",
        "c.u|b.c41l,DE:1 US:1\n",
        "c.u|c.c41l,US:1\n",
    ];
    let columns = blocks.map(|text| encoded("c.u|", text, &mut list).unwrap());
    let text = list.take(b"c.u|").unwrap();
    assert_eq!(text, b"list c.u|\nUS\n");
    assert_eq!(list.take(b"c.u|"), None);
    for (columns, block) in columns.iter().zip(blocks) {
        let found = decoded(columns, block.len(), Some(&text));
        assert_eq!(found.as_deref(), Some(block.as_bytes()));
    }
    assert_eq!(
        decoded(&columns[1], blocks[1].len(), None),
        None,
        "the list is missing"
    );
    let other = b"list c.u|\nGB\n";
    let found = decoded(&columns[1], blocks[1].len(), Some(other));
    assert_ne!(found.as_deref(), Some(blocks[1].as_bytes()));
}

#[test]
fn actions_say_their_seconds_and_tags_in_columns_of_their_own() {
    let text = "_a.@|MnJ1sQy6-tY2gQkB.c41,75600~click..ad=9:4 78301.click.home.ad=42.#3q2-7wAAAAA:1\n\
        _a.@|MnJ1sQy6-tY2gQkB.c42,00026.click.home.ad=42:1 00028.click.home.ad=42:1\n";
    let columns = encoded("_a.@|", text, &mut ValueList::default()).unwrap();
    let expected = "columns _a.@| days 4474\n\
        shared a\n\
        keys MnJ1sQy6-tY2gQkB \n\
        buckets c\n\
        gaps ab\n\
        sizes bb\n\
        known \n\
        values click.home.ad=42 click..ad=9 \n\
        numbers baaa\n\
        seconds ~EHVsDZxBac\n\
        tags .3q2-7wAAAAA..\n\
        counts ebbb\n";
    assert_eq!(String::from_utf8_lossy(&columns), expected);
    assert_eq!(
        decoded(&columns, text.len(), None).unwrap(),
        text.as_bytes()
    );
}

#[test]
fn values_that_are_no_actions_stay_lines() {
    for payload in [
        "US:1",
        "00001.click.ad=1:1",
        "99999.click.home.ad=1:1",
        "0001.click.home.ad=1:1",
        "00001.click.home:1",
    ] {
        let text = format!("_a.@|MnJ1sQy6-tY2gQkB.c41,{payload}\n");
        let columns = encoded("_a.@|", &text, &mut ValueList::default());
        assert_eq!(columns, None, "{payload}");
    }
}

#[test]
fn lines_that_columns_cannot_say_stay_lines() {
    for text in [
        "c.u|a.c41l,JP:1 US:4\n",
        "c.u|a.c41l,US:1 JP:1\n",
        "c.u|a.c41l,US:1 US:1\n",
        "c.u|a b.c41l,US:1\n",
        "c.u|a.c41m,US:1\nc.u|a.c41l,US:1\n",
        "c.u|a.c41l,US\n",
        "c.u|a.never,US:1\n",
        "c.u|a.c41l\n",
        "c.u.c41l,US:1\n",
    ] {
        assert_eq!(
            encoded("c.u|", text, &mut ValueList::default()),
            None,
            "{text}"
        );
    }
    let sketch = "_u.l|abc.c31,AgEHDAMIAQhLu0wK\n";
    assert_eq!(encoded("_u.l|", sketch, &mut ValueList::default()), None);
}

#[test]
fn a_number_beyond_all_values_is_refused() {
    let text = "c.u|a.c41l,US:1\n";
    let columns = encoded("c.u|", text, &mut ValueList::default()).unwrap();
    let mut most = Vec::new();
    push_number(&mut most, u64::MAX);
    let most = format!("numbers {}\n", String::from_utf8(most).unwrap());
    let columns = String::from_utf8(columns)
        .unwrap()
        .replace("numbers a\n", &most);
    assert_eq!(decoded(columns.as_bytes(), text.len(), None), None);
}

#[test]
fn numbers_of_every_size_read_back() {
    for number in (0..2_000).chain([u64::from(u32::MAX), u64::MAX / 26, u64::MAX]) {
        let mut text = Vec::new();
        push_number(&mut text, number);
        assert_eq!(take_number(&mut &text[..]), Some(number));
    }
    for text in ["", "A", "A-", "Zzzzzzz zzz", "ZZZZZZZZZZZZZZZz"] {
        let text = text.as_bytes();
        let number = take_number(&mut &text[..]);
        assert!(number.is_none() || text[0] == b'Z', "{text:?}");
    }
    assert_eq!(take_number(&mut &b"ZZZZZZZZZZZZZZZz"[..]), None);
}

/// A bucket of any grain within ten days.
fn code() -> impl Strategy<Value = TimeCode> {
    const GRAINS: [Grain; 5] = [
        Grain::Day,
        Grain::Hour,
        Grain::Hour,
        Grain::Quarter,
        Grain::Minute,
    ];
    (0_u32..14_400, proptest::sample::select(&GRAINS[..]))
        .prop_map(|(minutes, grain)| TimeCode::from_minutes(6_000_000 + minutes, grain))
}

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0_u64..30, 1 => any::<u64>()]
}

/// Lines of values, in the order and form of a run.
fn value_lines() -> impl Strategy<Value = String> {
    let values = proptest::collection::btree_map("[A-C*]{1,2}|[0-9a-v]{11}=", count(), 1..6);
    let buckets = proptest::collection::btree_map(code(), values, 1..5);
    proptest::collection::btree_map("[a-c.%]{1,4}", buckets, 1..6).prop_map(|keys| {
        let mut lines = BTreeMap::new();
        for (key, buckets) in &keys {
            for (code, values) in buckets {
                let mut payload = Vec::new();
                let mut entries: Vec<(&[u8], u64)> = values
                    .iter()
                    .map(|(value, &count)| (value.as_bytes(), count))
                    .collect();
                write_subtotal(&mut payload, &mut entries);
                lines.insert(
                    format!("c.u|{key}.{code}"),
                    String::from_utf8(payload).unwrap(),
                );
            }
        }
        let lines = lines
            .iter()
            .map(|(key, payload)| format!("{key},{payload}\n"));
        lines.collect()
    })
}

/// Lines of actions, in the order and form of a run.
fn action_lines() -> impl Strategy<Value = String> {
    let what = "(click|view)\\.[a-c#]{0,2}\\.(ad=[0-9]{0,3}|ad=#[A-P]{11})(\\.b=[x#]{1,2})?";
    let tag = proptest::option::of(prop_oneof![any::<u64>(), Just(0)]);
    let action =
        (0_u32..86_400, any::<bool>(), what, tag).prop_map(|(second, by_hour, what, tag)| {
            let (mut value, what) = (Vec::new(), what.as_bytes());
            Action {
                second,
                by_hour,
                what,
                tag,
            }
            .write_value(&mut value);
            value
        });
    let actions = proptest::collection::btree_map(action, count(), 1..6);
    let days = proptest::collection::btree_map(0_u32..40, actions, 1..5);
    proptest::collection::btree_map("[a-zA-Z0-9_-]{16}", days, 1..6).prop_map(|users| {
        let mut lines = BTreeMap::new();
        for (user, days) in &users {
            for (day, actions) in days {
                let code = TimeCode::from_minutes(6_000_480 + day * 1_440, Grain::Day);
                let mut payload = Vec::new();
                let mut entries: Vec<(&[u8], u64)> = (actions.iter())
                    .map(|(value, &count)| (value.as_slice(), count))
                    .collect();
                write_subtotal(&mut payload, &mut entries);
                let payload = String::from_utf8(payload).unwrap();
                lines.insert(format!("_a.@|{user}.{code}"), payload);
            }
        }
        let lines = lines
            .iter()
            .map(|(key, payload)| format!("{key},{payload}\n"));
        lines.collect()
    })
}

/// Lines of totals.
fn total_lines() -> impl Strategy<Value = String> {
    let buckets = proptest::collection::btree_map(code(), count(), 1..9);
    proptest::collection::btree_map("[a-c.%]{1,4}", buckets, 1..6).prop_map(|keys| {
        let lines = keys.iter().map(|(key, buckets)| {
            let mut payload = Vec::new();
            for (place, (code, &count)) in buckets.iter().enumerate() {
                let code = code.to_string();
                line::push_entry(&mut payload, place == 0, code.as_bytes(), count);
            }
            format!("u|{key},{}\n", String::from_utf8(payload).unwrap())
        });
        lines.collect()
    })
}

proptest! {
    #[test]
    fn prop_columns_give_the_bytes_of_the_lines(
        values in proptest::collection::vec(value_lines(), 1..5),
        actions in proptest::collection::vec(action_lines(), 1..5),
        totals in total_lines(),
    ) {
        for (section, blocks) in [("c.u|", values), ("_a.@|", actions)] {
            let mut list = ValueList::default();
            let columns: Vec<_> = blocks.iter().map(|block| encoded(section, block, &mut list)).collect();
            let text = list.take(section.as_bytes());
            for (columns, block) in columns.iter().zip(&blocks) {
                // Buckets of a key that descend in time, though their codes ascend as bytes, stay lines.
                let Some(columns) = columns else {
                    prop_assert_ne!(section, "_a.@|");
                    continue;
                };
                let found = decoded(columns, block.len(), text.as_deref());
                prop_assert_eq!(found.as_deref(), Some(block.as_bytes()));
            }
        }
        if let Some(columns) = encoded("u|", &totals, &mut ValueList::default()) {
            let found = decoded(&columns, totals.len(), None);
            prop_assert_eq!(found.as_deref(), Some(totals.as_bytes()));
        }
    }

    #[test]
    fn prop_changed_columns_never_panic_and_give_no_longer_block(
        block in value_lines(),
        actions in action_lines(),
        totals in total_lines(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        for (section, text) in [("c.u|", &block), ("_a.@|", &actions), ("u|", &totals)] {
            let Some(mut columns) = encoded(section, text, &mut ValueList::default()) else { continue };
            for (at, byte) in &changes {
                let at = at.index(columns.len());
                columns[at] = *byte;
            }
            if columns.starts_with(b"columns ")
                && let Some(found) = decoded(&columns, text.len(), None)
            {
                prop_assert_eq!(found.len(), text.len());
            }
        }
    }
}
