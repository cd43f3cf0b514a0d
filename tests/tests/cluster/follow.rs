//! Random batches on a writer, and followers that crash and come back.

use std::cmp::Ordering;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tallyring_realtime::{Accepted, Batch, BatchKey, Follower, Store};
use tallyring_records::{Increment, StoreId};
use tallyring_tests::model::{Chance, increment, schema};
use tallyring_tests::sim_disk::{SimDisk, random};
use tallyring_tests::sim_objects::{FAULTS, Fault};

use super::play::Play;
use super::stand::{START, commit, compare, follow, take_over};

/// Runs a play of each seed, and names the seed of one that fails.
fn each_seed(seeds: Range<u64>, run: &dyn Fn(&mut Play)) {
    for seed in seeds {
        let ran = catch_unwind(AssertUnwindSafe(|| run(&mut Play::new(seed))));
        assert!(ran.is_ok(), "the play of seed {seed} failed");
    }
}

#[test]
fn a_follower_answers_as_the_writer_does_at_the_same_position() {
    each_seed(0..20, &|play| {
        for _ in 0..120 {
            play.step();
        }
    });
}

#[test]
fn a_node_that_takes_over_knows_all_that_was_answered() {
    each_seed(100..110, &|play| {
        for _ in 0..4 {
            for _ in 0..30 {
                play.step();
            }
            // The writer is killed, or becomes a follower.
            let follower = play.follower.take().expect("a follower");
            let owner = play.stand.owner();
            let taken = take_over(follower, owner);
            let before = std::mem::replace(&mut play.writer, taken);
            let mut follower = Follower::step_down(before).expect("it wrote");
            let ids: Vec<String> = play.ids.iter().rev().take(50).cloned().collect();
            play.check(&mut follower, &ids);
            play.disk = SimDisk::default();
            let again = play.stand.open(2, &play.disk);
            play.follower = Some(again.expect("opened"));
        }
    });
}

#[test]
fn a_manifest_that_comes_late_from_a_deposed_writer_counts_once() {
    let mut play = Play::new(200);
    for _ in 0..20 {
        play.commit();
    }
    play.pass(86_400);
    play.writer.intake().tick().expect("turned");
    play.commit();
    let built = play.build().expect("something to publish");
    let owner = play.stand.owner();
    let taken = take_over(play.follower.take().expect("a follower"), owner);
    let before = std::mem::replace(&mut play.writer, taken);
    play.commit();
    // It has not looked at the log since.
    before.ledger().publish(&built).expect("committed");
    play.commit();
    let late = before.manifest().number;
    play.writer.ledger().flush().expect("flushed behind it");
    assert_eq!(play.writer.manifest().number, late + 1);
    assert_eq!(
        play.writer.manifest().archive.active,
        1,
        "the generation counts"
    );
    let (_, third) = play.stand.follower(3);
    compare(&play.writer, third.store(), play.now, &play.ids);
    let mut follower = Follower::step_down(before).expect("it wrote");
    follow(&mut follower);
    compare(&play.writer, follower.store(), play.now, &play.ids);
}

#[test]
fn a_node_that_is_succeeded_while_it_takes_over_or_flushes_counts_nothing_twice() {
    for flushes in [false, true] {
        let mut succeeded = 0;
        for call in 1.. {
            let mut play = Play::new(600);
            (0..6).for_each(|_| play.commit());
            let (_, third) = play.stand.follower(3);
            let owners = [play.stand.owner(), play.stand.owner()];
            let taken = Arc::new(Mutex::new(None));
            let taking = Arc::clone(&taken);
            let succeed = move || {
                let store = take_over(third, owners[1]);
                store.ledger().flush().expect("flushed");
                *taking.lock().expect("a lock") = Some(store);
            };
            let mut before = match flushes {
                true => {
                    play.stand.objects.before_nth_call(call, succeed);
                    let _ = play.writer.ledger().flush();
                    Follower::step_down(Arc::clone(&play.writer)).expect("it wrote")
                }
                false => {
                    let follower = play.follower.take().expect("a follower");
                    play.stand.objects.before_nth_call(call, succeed);
                    match follower.take_over(owners[0]) {
                        Ok(store) => Follower::step_down(store).expect("it wrote"),
                        Err(not) => not.follower,
                    }
                }
            };
            let Some(writer) = taken.lock().expect("a lock").take() else {
                break;
            };
            succeeded += 1;
            follow(&mut before);
            compare(&writer, before.store(), play.now, &play.ids);
        }
        assert!(succeeded > 0, "nobody was succeeded");
    }
}

#[test]
fn a_follower_waits_for_a_manifest_that_the_object_store_does_not_give() {
    let mut play = Play::new(300);
    for _ in 0..5 {
        play.commit();
    }
    play.writer.ledger().flush().expect("flushed");
    play.commit();
    play.stand.objects.set_faults(|_| Some(Fault::Refused));
    let mut follower = play.follower.take().expect("a follower");
    for _ in 0..2 {
        let error = loop {
            match follower.step(Duration::ZERO) {
                Ok(came) => assert!(came, "the note is not obeyed"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("manifests/"), "{error}");
        assert_eq!(follower.store().manifest().number, 1);
    }
    play.stand.objects.settle();
    follow(&mut follower);
    compare(&play.writer, follower.store(), play.now, &play.ids);
}

#[test]
fn a_follower_that_is_killed_at_any_call_of_its_disk_comes_back_whole() {
    let mut killed = 0;
    for call in 1..400 {
        let mut play = Play::new(400);
        for _ in 0..6 {
            play.commit();
        }
        play.writer.ledger().flush().expect("flushed");
        play.commit();
        let mut follower = play.follower.take().expect("a follower");
        play.disk.stop_at_nth_call(call);
        let followed = loop {
            match follower.step(Duration::ZERO) {
                Ok(true) => {}
                Ok(false) => break follower.tidy(),
                Err(error) => break Err(error),
            }
        };
        if followed.is_ok() {
            break;
        }
        killed += 1;
        drop(follower);
        let disk = play.disk.crash(&mut random(call));
        let follower = play.stand.open(2, &disk).expect("opened");
        compare(&play.writer, follower.store(), play.now, &play.ids);
    }
    assert!(killed > 20, "{killed} kills");
}

#[test]
fn a_writer_whose_object_store_fails_at_any_call_of_a_flush_goes_on_when_it_is_back() {
    for fault in FAULTS {
        let mut failed = 0;
        for call in 1.. {
            let mut play = Play::new(500);
            (0..6).for_each(|_| play.commit());
            let before = play.stand.objects.calls();
            play.stand.objects.fail_nth_call(call, fault);
            let flushed = play.writer.ledger().flush();
            let is_through = before + call > play.stand.objects.calls();
            failed += u32::from(flushed.is_err());
            play.commit();
            let _ = play.writer.ledger().flush();
            play.stand.objects.settle();
            play.commit();
            play.writer.ledger().flush().expect("flushed");
            play.commit();
            let mut follower = play.follower.take().expect("a follower");
            follow(&mut follower);
            compare(&play.writer, follower.store(), play.now, &play.ids);
            let (_, third) = play.stand.follower(3);
            compare(&play.writer, third.store(), play.now, &play.ids);
            if is_through {
                break;
            }
        }
        assert!(
            failed > 3 || fault == Fault::AnswerLost,
            "{fault:?}: {failed} failed"
        );
    }
}

/// A batch with a key. It has one increment more than its number.
fn keyed(number: u64) -> Batch {
    let mut chance = Chance::new(number);
    let plain = |_| Increment {
        id: None,
        n: 1,
        ..increment(&mut chance, schema(0), START, &[])
    };
    Batch {
        increments: (0..=number).map(plain).collect(),
        key: Some(BatchKey {
            text: format!("batch {number}"),
            body: number.into(),
        }),
        ..Batch::default()
    }
}

/// Sends the next batches and flushes, until runs of ids are merged. Each batch is then answered as before.
fn check_answers(writer: &Store, first: Accepted) {
    let mut answers = vec![first];
    for number in 1..6 {
        answers.push(commit(writer, keyed(number)).expect("answered"));
        writer.ledger().flush().expect("flushed");
    }
    let runs = writer.manifest().intake.ids.runs.len();
    assert!(runs < 5, "{runs} runs of ids are not merged");
    for (number, answer) in (0..).zip(answers) {
        let again = commit(writer, keyed(number));
        assert_eq!(again.expect("answered again"), answer, "batch {number}");
    }
}

#[test]
fn a_batch_that_a_node_flushes_while_it_is_succeeded_is_answered_as_before() {
    let mut succeeded = 0;
    for call in 1.. {
        let mut play = Play::new(700);
        let first = commit(&play.writer, keyed(0)).expect("answered");
        let owner = play.stand.owner();
        let follower = play.follower.take().expect("a follower");
        let taken = Arc::new(Mutex::new(None));
        let taking = Arc::clone(&taken);
        play.stand.objects.before_nth_call(call, move || {
            *taking.lock().expect("a lock") = Some(take_over(follower, owner));
        });
        let _ = play.writer.ledger().flush();
        let Some(writer) = taken.lock().expect("a lock").take() else {
            break;
        };
        succeeded += 1;
        check_answers(&writer, first);
    }
    assert!(succeeded > 0, "nobody was succeeded");
}

#[test]
fn a_batch_of_a_flush_that_fails_and_counts_all_the_same_is_answered_as_before() {
    let mut failed = 0;
    for call in 1.. {
        let play = Play::new(800);
        let first = commit(&play.writer, keyed(0)).expect("answered");
        let last = play.stand.objects.calls() + call;
        // The object store is gone once it has done what this call says.
        play.stand
            .objects
            .set_faults(move |at| match at.cmp(&last) {
                Ordering::Less => None,
                Ordering::Equal => Some(Fault::AnswerLost),
                Ordering::Greater => Some(Fault::Refused),
            });
        let flushed = play.writer.ledger().flush();
        if play.stand.objects.calls() < last {
            break;
        }
        failed += u32::from(flushed.is_err());
        play.stand.objects.settle();
        check_answers(&play.writer, first);
    }
    assert!(failed > 1, "{failed} failed");
}

/// Users of events that come after a final version are known apart by the late store that takes these events.
#[test]
fn late_increments_after_the_mark_of_a_reconcile_go_to_a_store_that_opened_behind_it() {
    let mut play = Play::new(700);
    let late = || Batch {
        increments: vec![Increment::new(START - 9 * 86_400, 1, [("l", "abc")])],
        ..Batch::default()
    };
    for round in 0..3 {
        commit(&play.writer, late()).expect("counted");
        let begun = play.writer.ledger().begin_reconcile().expect("begun");
        commit(&play.writer, late()).expect("counted");
        play.writer.ledger().flush().expect("flushed");
        let manifest = play.writer.manifest();
        let open = manifest.intake.stores.last().expect("the open late store");
        assert!(matches!(open.id, StoreId::Late(_)), "{open:?}");
        let judged = begun.intake.ids.flushed;
        assert!(open.opened >= judged, "{round}: {open:?}, {judged:?}");
        assert_eq!(open.runs.len(), 1, "{round}: {open:?}");
    }
    let mut follower = play.follower.take().expect("a follower");
    play.check(&mut follower, &[]);
}
