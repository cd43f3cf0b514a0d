//! Datasets whose counts are part of final numbers, and those beside.

use tallyring_archive::{Staged, names};
use tallyring_realtime::{BooksView, Error, Final, State};
use tallyring_records::Day;

use crate::kept::{Book, DAY, DAYS, HOURS, Kept, LOAD, day, lines_of};

/// A day before the store began.
const EARLY: i64 = DAY - 5 * DAYS;

impl Kept {
    /// Loads seven clicks of the day of `at`.
    fn load(&self, name: &str, at: i64, is_final: bool, replace: bool) -> Result<(), Error> {
        let book = Book::from([(("a".to_owned(), at, "US".to_owned()), 7)]);
        self.load_book(name, &book, is_final, replace)
    }

    fn load_book(
        &self,
        name: &str,
        book: &Book,
        is_final: bool,
        replace: bool,
    ) -> Result<(), Error> {
        let loaded = lines_of(book);
        let staged = Staged {
            load: LOAD.to_owned(),
            store_id: self.store.manifest().store_id.clone(),
            rows: 1,
            is_final,
            runs: self.write(&loaded),
        };
        staged.write(&self.disk.blobs()).expect("staged");
        let adopted = self.store.ledger().adopt(name, LOAD, replace);
        if adopted.is_err() {
            let gone = self.disk.blobs().remove(&names::staged(LOAD));
            gone.expect("the next load has the same name");
        }
        adopted.map(drop)
    }

    pub(crate) fn state_of(&self, at: i64) -> State {
        let states = self.store.view().states(&["l"], DAY + 9 * DAYS, None);
        states.of(&(at..at + DAYS))
    }

    fn is_before_store(&self, at: i64) -> bool {
        let states = self.store.view().states(&["l"], DAY + 9 * DAYS, None);
        states.is_before_store(Day::of(at))
    }

    /// The final number of a day, or why there is none.
    pub(crate) fn final_total(&self, at: i64, version: Option<u32>) -> Result<u64, String> {
        let view = self.store.view();
        let books = view.books(&[("l", None)], &(at..at + DAYS), version);
        let books = books.map_err(|error| error.to_string())?;
        let as_of = Some(BooksView::AS_OF);
        let found = books.view().totals("l", at..at + DAYS, false, as_of);
        Ok(found.expect("read").totals.sum())
    }

    pub(crate) fn close_as_it_is(&self) {
        let closed: Final = self.closed(&Book::new(), &Book::new());
        let published = self.store.ledger().publish_final(&closed);
        published.expect("published");
    }
}

#[test]
fn a_final_dataset_makes_days_before_the_store_final_and_stays() {
    let mut kept = Kept::new(1);
    kept.rebuild();
    let before = kept.store.manifest().archive.active;
    assert!(kept.is_before_store(EARLY) && !kept.is_before_store(DAY));
    kept.load("history", EARLY, true, false).expect("adopted");
    assert!(!kept.is_before_store(EARLY), "it is loaded");
    assert_eq!(kept.state_of(EARLY), State::Provisional, "not counted yet");
    let waits = "2012-03-11 may have counts of the dataset `history`, which is final and counts with the next rebuild";
    assert_eq!(kept.final_total(EARLY, None), Err(waits.to_owned()));
    kept.rebuild();
    let is_final = |kept: &Kept| {
        assert_eq!(kept.state_of(EARLY), State::Final);
        assert_eq!(kept.final_total(EARLY, None), Ok(7));
    };
    is_final(&kept);
    let next_day = kept.final_total(EARLY + DAYS, None);
    assert_eq!(next_day, Err("2012-03-12 is not final".to_owned()));
    let dropped = kept.store.ledger().drop_dataset("history");
    let replaced = kept.load("history", EARLY + DAYS, false, true);
    for refused in [dropped, replaced] {
        assert!(
            matches!(&refused, Err(Error::DatasetFinal(name)) if name == "history"),
            "{refused:?}"
        );
    }
    // A rollback is no request to lose it, and the next rebuild counts it again.
    kept.store.ledger().activate(before).expect("rolled back");
    assert_eq!(kept.final_total(EARLY, None), Err(waits.to_owned()));
    kept.rebuild();
    is_final(&kept);
    kept.restart();
    is_final(&kept);
    // An event of the day comes late: it counts, and the final number stays.
    kept.click(&("a".to_owned(), EARLY, "US".to_owned()));
    for when in ["in memory", "in runs", "after a restart"] {
        assert_eq!(kept.state_of(EARLY), State::Corrected, "{when}");
        assert_eq!(kept.final_total(EARLY, None), Ok(7), "{when}");
        match when {
            "in memory" => kept.store.ledger().flush().expect("flushed"),
            _ => kept.restart(),
        }
    }
}

#[test]
fn late_events_correct_their_own_days_and_none_between() {
    let mut kept = Kept::new(4);
    kept.rebuild();
    let days = |from: i64| DAY - from * DAYS;
    let history = [9, 8, 7, 6, 5].map(|from| (("a".to_owned(), days(from), "US".to_owned()), 7));
    kept.load_book("history", &Book::from(history), true, false)
        .expect("adopted");
    kept.rebuild();
    kept.click(&("a".to_owned(), days(8), "US".to_owned()));
    kept.click(&("a".to_owned(), days(6), "US".to_owned()));
    // Years before: a client whose clock is wrong.
    kept.click(&("a".to_owned(), days(3_000), "US".to_owned()));
    for when in ["in memory", "flushed", "restarted", "merged", "killed"] {
        match when {
            "in memory" => {}
            "flushed" => kept.store.ledger().flush().expect("flushed"),
            "restarted" => kept.restart(),
            "merged" => kept.rebuild(),
            _ => {
                kept.disk = kept.disk.kill();
                kept = kept.stop_and(|_| {});
            }
        }
        let states = [9, 8, 7, 6, 5].map(|from| kept.state_of(days(from)));
        let (same, late) = (State::Final, State::Corrected);
        assert_eq!(states, [same, late, same, late, same], "{when}");
        assert!(kept.is_before_store(days(2_000)), "{when}");
        assert!(!kept.is_before_store(days(3_000)), "{when}");
    }
}

#[test]
fn a_final_dataset_is_in_every_version_of_its_days_or_is_refused() {
    let mut kept = Kept::new(2);
    kept.load("more", DAY, true, false).expect("adopted");
    // Until it counts it may be replaced.
    kept.load("more", DAY, true, true).expect("replaced");
    kept.close_as_it_is();
    assert!(
        kept.final_total(DAY, Some(1)).is_err(),
        "it is no version without it"
    );
    kept.rebuild();
    let expected = kept.book.values().sum::<u64>() + 7;
    assert_eq!(kept.state_of(DAY), State::Final);
    kept.click(&("a".to_owned(), DAY, "US".to_owned()));
    for version in [None, Some(1)] {
        assert_eq!(kept.final_total(DAY, version), Ok(expected), "{version:?}");
    }
    let refused = kept.load("late", DAY, true, false).expect_err("refused");
    assert!(
        refused
            .to_string()
            .contains("2012-03-16 is final already in version 1"),
        "{refused}"
    );
    assert_eq!(kept.store.manifest().archive.datasets.len(), 1);
}

#[test]
fn a_dataset_that_is_not_final_keeps_its_days_provisional_and_their_versions_readable() {
    let mut kept = Kept::new(3);
    kept.rebuild();
    kept.close_as_it_is();
    let expected = kept.book.values().sum::<u64>();
    assert_eq!(kept.final_total(DAY, None), Ok(expected));
    kept.load("history", DAY, false, false).expect("adopted");
    kept.rebuild();
    assert_eq!(kept.state_of(DAY), State::Provisional);
    let beside =
        "2012-03-16 may have counts of the dataset `history`, which was not loaded with --final";
    assert_eq!(kept.final_total(DAY, None), Err(beside.to_owned()));
    assert_eq!(kept.final_total(DAY, Some(1)), Ok(expected));
    kept.store
        .ledger()
        .drop_dataset("history")
        .expect("dropped");
    kept.rebuild();
    assert_eq!(kept.final_total(DAY, None), Ok(expected), "{}", day());
}

#[test]
fn a_day_that_a_final_dataset_makes_final_takes_no_other_one() {
    let mut kept = Kept::new(4);
    let hour = |at: i64, hour: i64| at + hour * HOURS;
    kept.load("first", hour(EARLY, 10), true, false)
        .expect("adopted");
    let refused = "its rows from 2012-03-11 to 2012-03-11 cannot be part of final numbers, because 2012-03-11 is final \
                   by the dataset `first`, which was loaded with --final, and no final number ever changes";
    for when in ["before it counts", "once it counts"] {
        let manifest = kept.store.manifest();
        let second = kept.load("second", hour(EARLY, 12), true, false);
        let second = second.expect_err(when).to_string();
        assert!(second.contains(refused), "{when}: {second}");
        assert_eq!(kept.store.manifest().archive, manifest.archive, "{when}");
        if when == "before it counts" {
            kept.load("first", hour(EARLY, 11), true, true)
                .expect("it replaces itself");
        }
        kept.rebuild();
        assert_eq!(kept.final_total(EARLY, None), Ok(7), "{when}");
    }
    kept.load("next", hour(EARLY + DAYS, 1), true, false)
        .expect("the next day is free");
    // A day since the store began becomes final by its version alone, which has both.
    for (at, name) in [(3, "one"), (4, "two")] {
        kept.load(name, hour(DAY, at), true, false).expect(name);
    }
    kept.rebuild();
    kept.close_as_it_is();
    let expected = kept.book.values().sum::<u64>() + 14;
    assert_eq!(kept.final_total(DAY, None), Ok(expected));
    assert_eq!(kept.final_total(EARLY + DAYS, None), Ok(7));
}

#[test]
fn the_day_after_the_last_row_of_a_dataset_is_none_of_its_days() {
    let mut kept = Kept::new(5);
    kept.load("history", EARLY + 10 * HOURS, true, false)
        .expect("adopted");
    kept.load("beside", DAY - DAYS + 10 * HOURS, false, false)
        .expect("adopted");
    kept.rebuild();
    kept.close_as_it_is();
    let next = kept.final_total(EARLY + DAYS, None);
    assert_eq!(next, Err("2012-03-12 is not final".to_owned()));
    assert!(kept.is_before_store(EARLY + DAYS));
    let expected = kept.book.values().sum::<u64>();
    assert_eq!(kept.state_of(DAY), State::Final);
    assert_eq!(kept.final_total(DAY, None), Ok(expected));
}
