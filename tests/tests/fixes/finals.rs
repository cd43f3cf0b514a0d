//! Final days: published with the fix that moves the counts to them, kept whatever happens later, refused when wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::slice;

use tallyring_archive::{FinalEntry, FinalSums, Manifest, RunEntry, Staged, names, verify_run};
use tallyring_realtime::{BooksView, Clock, Error, Final, Fix, Recount, State};
use tallyring_rebuild::backup::copy;
use tallyring_rebuild::{Healed, heal};
use tallyring_records::{Day, Grain, TimeCode, line, shard_of};
use tallyring_tests::sim_disk::SimDisk;

use crate::kept::{Book, DAY, DAYS, HOURS, Kept, LOAD, Place, SHARDS, day, lines_of, schema};

impl Kept {
    /// A final version of the day as it is counted, after a fix.
    pub(crate) fn closed(&self, plus: &Book, minus: &Book) -> Final {
        let version = self.store.manifest().archive.next_fix(day());
        let before: u64 = self.book.values().sum();
        let (more, less): (u64, u64) = (plus.values().sum(), minus.values().sum());
        let mut book = self.book.clone();
        for (place, count) in plus {
            *book.entry(place.clone()).or_insert(0) += count;
        }
        for (place, count) in minus {
            *book.get_mut(place).expect("counted") -= count;
        }
        book.retain(|_, count| *count > 0);
        let corrects = self.all_records();
        let fix = Fix {
            day: day(),
            version,
            corrects,
            plus: self.write(&lines_of(plus)),
            minus: self.write(&lines_of(minus)),
        };
        let sums = FinalSums {
            before: before.into(),
            causes: BTreeMap::from([
                ("filtered_by:bots".to_owned(), -i128::from(less)),
                ("restored:bots".to_owned(), i128::from(more)),
            ]),
            after: (before + more - less).into(),
            gross: (before + more).into(),
            undecided: 0,
        };
        let hour = TimeCode::containing(DAY, Grain::Hour);
        let verdict = ("verdict|0000000000000003".to_owned(), format!("{hour}:2"));
        Final {
            entry: FinalEntry {
                day: day(),
                version,
                at_ms: 0,
                upto: corrects.until,
                rules: "00ff".into(),
                books: self.write(&lines_of(&book)),
                verdicts: self.write(&BTreeMap::from([verdict])).pop(),
                types: BTreeMap::from([("increment".to_owned(), sums)]),
                filtered: None,
                repeated: None,
                touched: false,
                sums_only: false,
                forced: false,
                actor: None,
                proof: None,
            },
            fix: (!plus.is_empty() || !minus.is_empty()).then_some(fix),
        }
    }

    pub(crate) fn finals(&self) -> Vec<FinalEntry> {
        self.store.manifest().archive.finals.clone()
    }

    /// The names of the files of final days on the disk.
    pub(crate) fn final_files(&self) -> Vec<String> {
        let mut files = self.disk.blobs().list(names::FINALS).expect("listed");
        files.sort();
        files
    }

    /// Some of what one place counts, which is taken away, and what is added elsewhere.
    fn drawn(&mut self) -> (Book, Book) {
        let minus = self.book.first_key_value();
        let minus = minus.map(|(place, _)| (place.clone(), 1));
        let added: Place = ("added".into(), DAY + 7 * HOURS, "JP".into());
        (Book::from([(added, 2)]), minus.into_iter().collect())
    }

    /// Publishes a final version with a fix, and follows.
    fn close(&mut self) -> FinalEntry {
        let (plus, minus) = self.drawn();
        let closed = self.closed(&plus, &minus);
        let published = self.store.ledger().publish_final(&closed);
        published.expect("published");
        self.follow(&plus, &minus);
        self.finals().pop().expect("a final version")
    }
}

#[test]
fn a_final_day_moves_what_is_counted_and_keeps_its_books_whatever_comes_later() {
    for seed in 1..=6 {
        let mut kept = Kept::new(seed);
        kept.rebuild();
        let first = kept.close();
        assert_eq!((first.version, first.touched), (1, false));
        assert_eq!(first.at_ms, (DAY + 2 * DAYS) * 1_000);
        kept.check("it is final");
        let files = kept.final_files();
        assert_eq!(files.len(), first.files().count());
        for step in 0..12 {
            match kept.chance.below(6) {
                0 => kept.count(),
                1 => kept.store.ledger().flush().expect("flushed"),
                2 => kept.rebuild(),
                3 => kept.fix(),
                4 => kept.roll_back(),
                _ => kept.restart(),
            }
            kept.check(&format!("seed {seed}, step {step}"));
            assert_eq!(kept.finals()[0].files().count(), first.files().count());
        }
        let second = kept.close();
        assert!(second.version > 1, "above fixes of the day");
        kept.check("it is final again");
        kept.restart();
        assert_eq!(
            kept.final_files().len(),
            first.files().count() + second.files().count()
        );
        for file in kept.finals().iter().flat_map(FinalEntry::files) {
            verify_run(&kept.disk.blobs(), file).expect("whole");
        }
    }
}

#[test]
fn a_final_day_that_counts_as_its_books_say_needs_no_fix_and_leaves_nothing_behind() {
    let kept = Kept::new(1);
    let closed = kept.closed(&Book::new(), &Book::new());
    assert!(closed.fix.is_none());
    let ledger = kept.store.ledger();
    ledger.publish_final(&closed).expect("published");
    assert!(kept.store.manifest().archive.runs.is_empty(), "no fix");
    let left = kept.disk.blobs().list(names::INCOMING).expect("listed");
    assert!(left.is_empty(), "{left:?}");
    kept.check("it is final");
    let again = ledger.publish_final(&closed).expect_err("published");
    let said = "it is version 1 of 2012-03-16, whose next version is 2; judge the day again";
    assert!(again.to_string().contains(said), "{again}");
}

#[test]
fn a_fix_may_skip_versions_and_is_never_below_a_final_version() {
    let mut kept = Kept::new(2);
    let place = ("added".to_owned(), DAY, "US".to_owned());
    let plus = Book::from([(place, 1)]);
    let fix = |kept: &Kept, version| {
        let fix = Fix {
            day: day(),
            version,
            corrects: kept.all_records(),
            plus: kept.write(&lines_of(&plus)),
            minus: Vec::new(),
        };
        kept.store.ledger().publish_fix(&fix)
    };
    kept.close();
    let refused = fix(&kept, 1)
        .expect_err("a final version has it")
        .to_string();
    assert!(refused.contains("whose next version is 2"), "{refused}");
    fix(&kept, 7).expect("published");
    kept.follow(&plus, &Book::new());
    kept.check("corrected");
    assert_eq!(kept.close().version, 8);
    kept.check("final again");
}

#[test]
fn a_recount_and_a_restored_backup_keep_final_days() {
    let mut kept = Kept::new(3);
    kept.rebuild();
    let closed = kept.close();
    let mut kept = kept.stop_and(|blobs| {
        let from = [None, Some(day().next())];
        for from in from {
            let plan = Recount::plan(blobs, from, &schema(), SHARDS).expect("a plan");
            assert_eq!(plan.manifest.archive.finals, slice::from_ref(&closed));
            plan.manifest.commit(blobs).expect("committed");
        }
    });
    kept.check("a recount has begun");
    kept.rebuild();
    kept.check("a recount has ended");
    assert_eq!(kept.finals(), slice::from_ref(&closed));
    let backup = SimDisk::default().blobs();
    copy(&kept.disk.blobs(), &backup, &|_| true, &|_, _| {}).expect("backed up");
    let copied = Manifest::load(&backup).expect("read").expect("a manifest");
    assert_eq!(copied.archive.finals, slice::from_ref(&closed));
    for file in closed.files() {
        verify_run(&backup, file).expect("whole");
        let blobs = kept.disk.blobs();
        kept.disk.flip_bit(&file.name, 8 * 40);
        verify_run(&blobs, file).expect_err("damaged");
        let scratch = SimDisk::default().blobs();
        let healed = heal(&blobs, &scratch, &copied, file, Some(&backup)).expect("healed");
        assert_eq!(healed, Some(Healed::Backup));
        verify_run(&blobs, file).expect("whole");
    }
}

#[test]
fn no_manifest_no_recount_of_a_day_that_is_final() {
    let mut kept = Kept::new(3);
    kept.close();
    kept.stop_and(|blobs| {
        let newest = Manifest::load(blobs).expect("read").expect("a manifest");
        for number in 1..=newest.number {
            let _ = blobs.remove(&names::manifest(number));
        }
        for file in newest.archive.runs {
            blobs.remove(&file.name).expect("removed");
        }
        let refused = Recount::plan(blobs, None, &schema(), SHARDS).expect_err("no manifest");
        assert!(
            refused.to_string().contains("finals/2012-03-16.v1."),
            "{refused}"
        );
        newest_again(blobs, newest.number);
    });
}

/// Puts a manifest of that number back, so that a start finds one.
fn newest_again(blobs: &tallyring_archive::Blobs, number: u64) {
    for file in blobs.list(names::FINALS).expect("listed") {
        let name = format!("{}/{file}", names::FINALS);
        blobs.remove(&name).expect("removed");
    }
    let mut plan = Recount::plan(blobs, None, &schema(), SHARDS).expect("a plan");
    plan.manifest.number = number + 1;
    plan.manifest.commit(blobs).expect("committed");
}

/// A change that makes a final version a wrong one.
type Change<'c> = &'c dyn Fn(&mut Final);

/// Fails to publish, which changes nothing.
fn check_refused(kept: &Kept, wrong: &Final, said: &str) {
    let before = kept.store.manifest();
    let error = kept.store.ledger().publish_final(wrong).expect_err(said);
    let error = error.to_string();
    assert!(error.contains(said), "{said}: {error}");
    assert_eq!(kept.store.manifest().archive, before.archive, "{said}");
    assert!(kept.final_files().is_empty(), "{said}");
    kept.check(said);
}

#[test]
fn a_wrong_final_version_is_refused_and_changes_nothing() {
    let mut kept = Kept::new(4);
    let (plus, minus) = kept.drawn();
    let good = kept.closed(&plus, &minus);
    let wrong = |change: Change<'_>| {
        let mut wrong = good.clone();
        change(&mut wrong);
        wrong
    };
    let sums =
        |closed: &mut Final| closed.entry.types.get_mut("increment").expect("one").after += 1;
    let tomorrow = kept.store.status().today;
    let book_of_two = |closed: &mut Final| closed.entry.books.push(closed.entry.books[0].clone());
    let cases: [(Change<'_>, &str); 9] = [
        (
            &|closed| closed.entry.version = 2,
            "whose next version is 1",
        ),
        (&|closed| closed.entry.upto += 1, "and the log ends at"),
        (&|closed| closed.entry.upto -= 1, "and those before"),
        (
            &|closed| closed.entry.rules = "x".into(),
            "`x` is no hash of rules; give 1 to 128 hex digits",
        ),
        (&sums, "of `increment`, "),
        (&book_of_two, "it has two runs of shard"),
        (
            &|closed| closed.fix.as_mut().expect("a fix").version = 2,
            "its fix is version 2 of 2012-03-16",
        ),
        (
            &|closed| closed.entry.verdicts = closed.entry.books.first().cloned(),
            "the verdicts have `",
        ),
        (
            &|closed| (closed.entry.day, closed.fix) = (tomorrow, None),
            "2012-03-18 is not over: the ring stands at 2012-03-18",
        ),
    ];
    for (change, said) in cases {
        check_refused(&kept, &wrong(change), said);
    }
    let other_day =
        |closed: &mut Final| (closed.entry.day, closed.fix) = (Day::of(DAY - DAYS), None);
    check_refused(
        &kept,
        &wrong(&other_day),
        "has counts of other days than 2012-03-15",
    );
    let first: &RunEntry = &good.entry.books[0];
    kept.disk.flip_bit(&first.name, 8 * 40);
    let error = kept
        .store
        .ledger()
        .publish_final(&good)
        .expect_err("damaged");
    assert!(matches!(error, Error::Archive(_)), "{error}");
    assert!(kept.finals().is_empty());
    kept.check("it was damaged");
}

/// The state of the day, and until when days are final.
fn state(kept: &Kept) -> (State, Option<i64>) {
    let view = kept.store.view();
    let now = kept.clock.now_ms() / 1_000;
    let states = view.states(&["l"], view.settled_until("l", None, now), None);
    (states.of(&(DAY..DAY + DAYS)), states.final_until())
}

#[test]
fn a_final_day_is_corrected_by_what_counts_later_until_its_next_version() {
    let mut kept = Kept::new(5);
    let until = Some(DAY + DAYS);
    // The delta store of the day before yesterday is open until the next cut.
    assert_eq!(state(&kept), (State::Settled, None));
    kept.rebuild();
    assert_eq!(state(&kept), (State::Provisional, None));
    kept.close();
    assert_eq!(state(&kept), (State::Final, until));
    kept.restart();
    assert_eq!(state(&kept), (State::Final, until));
    let late = ("late".to_owned(), DAY + 60, "US".to_owned());
    kept.click(&late);
    assert_eq!(state(&kept), (State::Corrected, until));
    // The log has it, and no manifest.
    kept.disk = kept.disk.kill();
    kept = kept.stop_and(|_| {});
    assert!(!kept.finals()[0].touched);
    assert_eq!(state(&kept), (State::Corrected, until));
    kept.store.ledger().flush().expect("flushed");
    assert!(kept.finals()[0].touched);
    kept.rebuild();
    kept.restart();
    assert_eq!(state(&kept), (State::Corrected, until));
    let second = kept.close();
    assert!(!second.touched);
    assert_eq!(state(&kept), (State::Final, until));
    kept.restart();
    assert_eq!(state(&kept), (State::Final, until));
    kept.fix();
    assert_eq!(
        state(&kept),
        (State::Corrected, until),
        "by a fix that no version knows"
    );
    kept.restart();
    assert_eq!(state(&kept), (State::Corrected, until));
}

#[test]
fn counts_between_the_judgement_and_the_publication_correct_the_day() {
    for is_flushed in [false, true] {
        let mut kept = Kept::new(6);
        kept.rebuild();
        let closed = kept.closed(&Book::new(), &Book::new());
        let late = ("late".to_owned(), DAY + 60, "US".to_owned());
        kept.click(&late);
        if is_flushed {
            kept.store.ledger().flush().expect("flushed");
        }
        let other_day = ("other".to_owned(), DAY + DAYS, "US".to_owned());
        kept.click(&other_day);
        kept.book.remove(&other_day);
        let ledger = kept.store.ledger();
        ledger.publish_final(&closed).expect("published");
        assert!(kept.finals()[0].touched);
        assert_eq!(state(&kept).0, State::Corrected);
        kept.restart();
        assert_eq!(state(&kept).0, State::Corrected);
        kept.check("it is corrected");
    }
}

#[test]
fn days_are_final_until_the_first_gap_and_loaded_days_never_are() {
    let mut kept = Kept::new(7);
    kept.clock.set((DAY + 6 * DAYS) * 1_000);
    kept.store.intake().tick().expect("later");
    kept.rebuild();
    let close = |kept: &Kept, days: i64| {
        let mut closed = kept.closed(&Book::new(), &Book::new());
        closed.entry.day = Day::of(DAY + days * DAYS);
        closed.entry.books.clear();
        closed.entry.verdicts = None;
        let published = kept.store.ledger().publish_final(&closed);
        published.expect("published");
    };
    for (days, until) in [(3, 4), (4, 5), (1, 2), (2, 5)] {
        close(&kept, days);
        let until = DAY + until * DAYS;
        assert_eq!(state(&kept).1, Some(until), "{days} days later");
    }
    assert_eq!(state(&kept).0, State::Provisional);
    kept.close();
    assert_eq!(state(&kept), (State::Final, Some(DAY + 5 * DAYS)));
    let loaded = lines_of(&Book::from([(("a".to_owned(), DAY, "US".to_owned()), 7)]));
    let staged = Staged {
        load: LOAD.to_owned(),
        store_id: kept.store.manifest().store_id.clone(),
        rows: 1,
        is_final: false,
        runs: kept.write(&loaded),
    };
    staged.write(&kept.disk.blobs()).expect("staged");
    let ledger = kept.store.ledger();
    ledger.adopt("history", LOAD, false).expect("adopted");
    assert_eq!(state(&kept), (State::Provisional, Some(DAY + 5 * DAYS)));
    let touched: Vec<bool> = kept
        .finals()
        .iter()
        .map(|version| version.touched)
        .collect();
    assert_eq!(touched, [true, false, false, false, false]);
}

#[test]
fn a_read_of_one_key_opens_no_book_without_it() {
    for lost in 0..SHARDS {
        let mut kept = Kept::new(8);
        kept.rebuild();
        kept.close();
        let version = kept.store.manifest().archive.finals[0].clone();
        let book = version.books.iter().find(|book| book.meta.shard == lost);
        let name = &book.expect("both have keys").name;
        kept.disk.blobs().remove(name).expect("removed");
        let view = kept.store.view();
        let read = |key| view.books(&[("l", key)], &(DAY..DAY + DAYS), None);
        assert!(read(None).is_err(), "all keys need all books");
        let keys: BTreeSet<&String> = kept.book.keys().map(|(key, ..)| key).collect();
        for key in keys {
            let total_key = line::total_key("l", key);
            let is_lost = shard_of(total_key.as_bytes(), SHARDS) == lost;
            assert_eq!(read(Some(key)).is_err(), is_lost, "{key}");
        }
    }
}

#[test]
fn books_are_read_alone_and_stay_readable_in_every_version() {
    let mut kept = Kept::new(8);
    kept.rebuild();
    let total = |kept: &Kept, version| {
        let view = kept.store.view();
        let books = view
            .books(&[("l", None)], &(DAY..DAY + DAYS), version)
            .expect("final");
        let as_of = Some(BooksView::AS_OF);
        let found = books.view().totals("l", DAY..DAY + DAYS, false, as_of);
        found.expect("read").totals.sum()
    };
    let mut expected = Vec::new();
    for _ in 0..3 {
        kept.close();
        expected.push(kept.book.values().sum::<u64>());
        kept.count();
        kept.rebuild();
        kept.roll_back();
        for (number, sum) in (1..).zip(&expected) {
            assert_eq!(total(&kept, Some(number)), *sum, "version {number}");
        }
        assert_eq!(total(&kept, None), *expected.last().expect("one"));
    }
    let view = kept.store.view();
    let refused = |range: Range<i64>, version| {
        let books = view.books(&[("l", None)], &range, version);
        books.err().expect("refused").to_string()
    };
    assert_eq!(refused(DAY - 1..DAY + 1, None), "2012-03-15 is not final");
    assert_eq!(
        refused(DAY..DAY + 1, Some(9)),
        "2012-03-16 is not final in this version; its versions are 1, 2, 3"
    );
}
