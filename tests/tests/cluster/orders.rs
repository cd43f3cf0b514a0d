//! A node rebuilds for the one that writes, which gets the same generation from that node or from itself: the order may
//! be lost, the node may be killed, stopped or slow, and files may be damaged.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use tallyring_archive::{Blobs, Build, Manifest, Result, names};
use tallyring_realtime::catalog::JobProgress;
use tallyring_rebuild::orders::{
    ALIVE_MS, CLAIM_MS, Claimed, HUNG_MS, Order, Placed, SILENT_MS, Standing, unproven,
};
use tallyring_rebuild::{build, orders};
use tallyring_tests::sim_disk::SimDisk;
use tallyring_tests::sim_objects::{FAULTS, Fault, SimObjects};

use super::play::{OPTIONS, Play};
use super::stand::{take_over, unique_bytes};

const BUILD: [u32; 3] = [0, 1, 0];
const EPOCH: u32 = 3;

/// A node of its own disk.
pub(super) fn node(objects: &SimObjects) -> Blobs {
    let blobs = Blobs::over(Arc::new(SimDisk::default()), Arc::new(objects.clone()));
    blobs.prepare().expect("a live disk");
    blobs
}

pub(super) fn order(manifest: u64, epoch: u32) -> Order {
    Order {
        build: BUILD,
        epoch,
        manifest,
        options: OPTIONS,
    }
}

pub(super) fn place(blobs: &Blobs, order: &Order) -> Placed {
    Placed::place(blobs, order, unique_bytes, 0).expect("placed")
}

pub(super) fn claim(blobs: &Blobs, epoch: u32) -> Option<Claimed> {
    Claimed::claim(blobs, ("c", BUILD), epoch, unique_bytes, |_| true).expect("looked")
}

/// Proves all files of a build.
pub(super) fn prove(blobs: &Blobs, manifest: &Manifest, build: &Build) -> Result<()> {
    let mut files = unproven(manifest, build);
    files.try_for_each(|file| orders::prove(blobs, file))
}

fn is_waiting(placed: &mut Placed, now_ms: i64) -> bool {
    matches!(placed.look(now_ms), Standing::Waits)
}

/// Why no node does it.
pub(super) fn failure(placed: &mut Placed, now_ms: i64) -> String {
    match placed.look(now_ms) {
        Standing::Failed(why) => why,
        other => panic!("not failed: {other:?}"),
    }
}

pub(super) fn done(placed: &mut Placed) -> Option<Build> {
    match placed.look(1) {
        Standing::Done(build) => build.map(|build| *build),
        other => panic!("not done: {other:?}"),
    }
}

/// Objects of orders.
fn ordered(objects: &SimObjects) -> Vec<String> {
    let keys = objects.keys().into_iter();
    keys.filter(|key| key.starts_with("orders/")).collect()
}

/// A store with something to rebuild, and the manifest that a rebuild begins with.
pub(super) fn cut(seed: u64, parts_max: Option<u64>) -> (Play, Arc<Manifest>) {
    let mut play = Play::new(seed);
    play.stand.parts_max = parts_max;
    if parts_max.is_some() {
        let (_, follower) = play.stand.follower(3);
        let owner = play.stand.owner();
        play.writer = take_over(follower, owner);
    }
    (0..40).for_each(|_| play.step());
    play.rebuild();
    (0..20).for_each(|_| play.commit());
    play.pass(86_400);
    play.writer.intake().tick().expect("turned");
    let manifest = play.writer.ledger().cut().expect("cut");
    (play, manifest)
}

pub(super) fn epoch(play: &Play) -> u32 {
    play.writer.intake().epoch().expect("it writes")
}

/// Does the work of an order on a node, as a child there does.
pub(super) fn work(claimed: &Claimed, blobs: &Blobs) -> Option<Build> {
    let order = claimed.order();
    let manifest = Manifest::load_number(blobs, order.manifest).expect("it is shared");
    build(blobs, &manifest, order.options, &|_, _| {}).expect("built")
}

/// Publishes a build, and compares the node that wrote with one that follows.
fn publish(play: &mut Play, build: &Build) {
    play.writer.ledger().publish(build).expect("published");
    play.check_follower();
}

#[test]
fn the_build_of_another_node_is_that_of_the_writer_and_is_published_as_such() {
    let mut merged = 0;
    for (seed, parts_max) in (0..6).zip([None, Some(128 << 10)].into_iter().cycle()) {
        let (mut play, manifest) = cut(seed, parts_max);
        let (blobs, worker) = (play.writer.world().blobs(), node(&play.stand.objects));
        let mut placed = place(&blobs, &order(manifest.number, epoch(&play)));
        let claimed = claim(&worker, epoch(&play)).expect("an order");
        claimed.end(&Ok(work(&claimed, &worker))).expect("told");
        let built = done(&mut placed).expect("there was something to do");
        assert_eq!(placed.node(), Some("c"));
        drop(placed);
        assert_eq!(ordered(&play.stand.objects), [""; 0]);
        prove(&blobs, &manifest, &built).expect("they are whole");
        let own = build(&blobs, &manifest, OPTIONS, &|_, _| {}).expect("built");
        assert_eq!(own.as_ref(), Some(&built), "seed {seed}");
        merged += built.work.merged;
        publish(&mut play, &built);
    }
    assert!(merged > 0, "all files were linked");
}

#[test]
fn an_order_that_no_node_takes_is_taken_back_after_ten_seconds() {
    let objects = SimObjects::default();
    let writer = node(&objects);
    let mut placed = place(&writer, &order(7, EPOCH));
    assert!(is_waiting(&mut placed, CLAIM_MS - 1));
    let why = failure(&mut placed, CLAIM_MS);
    assert_eq!(why, "no node took it in 10 s");
    assert_eq!(placed.node(), None);
    drop(placed);
    assert_eq!(ordered(&objects), [""; 0]);
    assert!(claim(&node(&objects), EPOCH).is_none(), "it comes too late");
}

#[test]
fn a_node_that_is_killed_is_given_up_after_a_minute() {
    let objects = SimObjects::default();
    for signs in 0..3 {
        let mut placed = place(&node(&objects), &order(7, EPOCH));
        let mut claimed = claim(&node(&objects), EPOCH).expect("an order");
        let mut now_ms = CLAIM_MS - 1;
        assert!(is_waiting(&mut placed, now_ms));
        for _ in 0..signs {
            assert!(claimed.live(None, 0).expect("told"));
            now_ms += ALIVE_MS;
            assert!(is_waiting(&mut placed, now_ms));
        }
        drop(claimed);
        assert!(is_waiting(&mut placed, now_ms + SILENT_MS - 1));
        let why = failure(&mut placed, now_ms + SILENT_MS);
        assert_eq!(why, "node c gave no sign of life for 60 s");
        assert!(claim(&node(&objects), EPOCH).is_none(), "it is claimed");
        drop(placed);
        assert_eq!(ordered(&objects), [""; 0]);
    }
}

#[test]
fn a_node_may_take_as_long_as_it_needs_while_it_lives() {
    let objects = SimObjects::default();
    let mut placed = place(&node(&objects), &order(7, EPOCH));
    let mut claimed = claim(&node(&objects), EPOCH).expect("an order");
    let mut now_ms = 0;
    for done in 0..1_000 {
        let progress = JobProgress { done, total: 1_000 };
        // A sign that says nothing new is one, too.
        let progress = Some(progress).filter(|_| done < 500);
        assert!(claimed.live(progress, now_ms).expect("told"));
        now_ms += SILENT_MS - 1;
        assert!(is_waiting(&mut placed, now_ms));
        assert_eq!(placed.progress(), progress);
    }
    claimed.end(&Ok(None)).expect("told");
    assert!(matches!(
        placed.look(now_ms + SILENT_MS),
        Standing::Done(None)
    ));
}

/// Gives signs of life for a time, milliseconds, of a node that last came further at one time of its own; true while
/// the order waits.
fn is_waiting_for(
    (placed, claimed): (&mut Placed, &mut Claimed),
    now_ms: &mut i64,
    ms: i64,
    (progress, advanced_ms): (Option<JobProgress>, i64),
) -> bool {
    let until_ms = *now_ms + ms;
    loop {
        assert!(claimed.live(progress, advanced_ms).expect("told"));
        if !is_waiting(placed, *now_ms) {
            return false;
        }
        if *now_ms == until_ms {
            return true;
        }
        *now_ms = until_ms.min(*now_ms + SILENT_MS - 1);
    }
}

/// Its build goes on or the order waits for another one there: the node is what comes further, or does not.
#[test]
fn a_node_that_comes_no_further_is_given_up_after_an_hour() {
    let objects = SimObjects::default();
    for progress in [None, Some(JobProgress { done: 3, total: 9 })] {
        let mut placed = place(&node(&objects), &order(7, EPOCH));
        // The node that writes was stopped until the claim was there.
        let mut claimed = claim(&node(&objects), EPOCH).expect("an order");
        let mut now_ms = 3 * HUNG_MS;
        assert!(is_waiting(&mut placed, now_ms));
        let mut waits = |placed: &mut Placed, now_ms: &mut i64, ms, advanced_ms| {
            let told = (progress, advanced_ms);
            is_waiting_for((placed, &mut claimed), now_ms, ms, told)
        };
        for advanced_ms in 0..3 {
            assert!(waits(&mut placed, &mut now_ms, HUNG_MS - 1, advanced_ms));
        }
        objects.set_faults(|_| Some(Fault::Refused));
        now_ms += HUNG_MS;
        assert!(is_waiting(&mut placed, now_ms), "no build goes on");
        objects.set_faults(|_| None);
        assert!(waits(&mut placed, &mut now_ms, HUNG_MS - 1, 2));
        assert!(!waits(&mut placed, &mut now_ms, 1, 2));
        let why = failure(&mut placed, now_ms);
        assert_eq!(why, "node c came no further for 60 minutes");
        drop(placed);
        assert!(!claimed.live(None, 2).expect("looked"));
    }
}

/// The node that writes hung for longer, and the one at work did not.
#[test]
fn a_writer_that_was_stopped_takes_what_it_sees_then_for_a_sign() {
    let objects = SimObjects::default();
    let mut placed = place(&node(&objects), &order(7, EPOCH));
    let mut claimed = claim(&node(&objects), EPOCH).expect("an order");
    assert!(is_waiting(&mut placed, 9 * SILENT_MS));
    assert!(claimed.live(None, 0).expect("told"));
    assert!(is_waiting(&mut placed, 18 * SILENT_MS));
    claimed.end(&Ok(None)).expect("told");
    assert!(matches!(placed.look(27 * SILENT_MS), Standing::Done(None)));
}

#[test]
fn a_node_that_was_stopped_and_goes_on_learns_that_nobody_wants_its_work() {
    let (mut play, manifest) = cut(1, None);
    let (blobs, worker) = (play.writer.world().blobs(), node(&play.stand.objects));
    let mut placed = place(&blobs, &order(manifest.number, epoch(&play)));
    let mut claimed = claim(&worker, epoch(&play)).expect("an order");
    assert!(claimed.live(None, 0).expect("told"));
    assert!(is_waiting(&mut placed, 1));
    failure(&mut placed, 1 + SILENT_MS);
    drop(placed);
    let own = build(&blobs, &manifest, OPTIONS, &|_, _| {}).expect("built");
    let own = own.expect("there was something to do");
    publish(&mut play, &own);

    assert!(!claimed.live(None, 0).expect("looked"));
    // Its child may be done by then.
    let late = work(&claimed, &worker);
    assert_eq!(late.as_ref(), Some(&own));
    claimed.end(&Ok(late)).expect("looked");
    assert_eq!(ordered(&play.stand.objects), [""; 0]);
    let mut follower = play.follower.take().expect("a follower");
    play.check(&mut follower, &[]);
}

#[test]
fn an_order_is_of_one_epoch_and_one_build() {
    let objects = SimObjects::default();
    let (old, new, worker) = (node(&objects), node(&objects), node(&objects));
    let _foreign = place(&old, &order(9, EPOCH));
    assert!(claim(&worker, EPOCH + 1).is_none());
    let placed = place(&new, &order(8, EPOCH + 1));
    old.put("orders/00000010-00000000000000ff", b"of a later build")
        .expect("put");
    let other = Claimed::claim(&worker, ("c", [0, 2, 0]), EPOCH + 1, unique_bytes, |_| true);
    assert!(other.expect("looked").is_none(), "it is of another build");
    let claimed = claim(&worker, EPOCH + 1).expect("an order");
    assert_eq!(claimed.order().manifest, 8);
    drop(placed);
    let left = ordered(&objects);
    assert_eq!(left, ["orders/00000010-00000000000000ff"]);
}

#[test]
fn an_order_takes_the_place_of_all_that_were_left_before_it() {
    let objects = SimObjects::default();
    let writer = node(&objects);
    let left = ["", ".claim", ".alive", ".done"].map(|what| names::order(1, 7) + what);
    for name in &left[1..] {
        writer.put(name, b"of an order that is gone").expect("put");
    }
    let lost = place(&writer, &order(5, EPOCH - 1));
    assert_eq!(ordered(&objects).len(), 1);
    let worker = node(&objects);
    claim(&worker, EPOCH - 1).expect("an order");
    let later = place(&node(&objects), &order(6, EPOCH + 1));
    std::mem::forget(lost);
    std::mem::forget(later);
    let later = ordered(&objects);
    assert_eq!(later.len(), 1);
    // A node that does not know yet that it writes no more.
    let old = place(&writer, &order(7, EPOCH));
    assert_eq!(ordered(&objects).len(), 2);
    drop(old);
    assert_eq!(ordered(&objects), later);
    let _new = place(&writer, &order(8, EPOCH + 1));
    assert_eq!(ordered(&objects).len(), 1);
    assert_ne!(ordered(&objects), later);
}

#[test]
fn nobody_is_silent_while_the_bucket_does_not_answer() {
    let objects = SimObjects::default();
    for is_claimed in [false, true] {
        let mut placed = place(&node(&objects), &order(7, EPOCH));
        let claimed = is_claimed.then(|| claim(&node(&objects), EPOCH).expect("an order"));
        objects.set_faults(|_| Some(Fault::Refused));
        for minutes in 1..60 {
            assert!(is_waiting(&mut placed, minutes * 60_000));
        }
        objects.set_faults(|_| None);
        let mut now_ms = 59 * 60_000 + CLAIM_MS - 1;
        assert!(is_waiting(&mut placed, now_ms));
        if is_claimed {
            now_ms += SILENT_MS - 1;
            assert!(is_waiting(&mut placed, now_ms));
        }
        failure(&mut placed, now_ms + 1);
        drop((placed, claimed));
        assert_eq!(ordered(&objects), [""; 0]);
    }
}

#[test]
fn a_node_leaves_an_order_that_it_may_not_take_yet() {
    let objects = SimObjects::default();
    let _placed = place(&node(&objects), &order(7, EPOCH));
    let mut left = Vec::new();
    let mut may = |order: &str| {
        left.push(order.to_owned());
        left.len() > 1
    };
    let busy = node(&objects);
    let mut look = || Claimed::claim(&busy, ("c", BUILD), EPOCH, unique_bytes, &mut may);
    assert!(look().expect("looked").is_none());
    assert!(look().expect("looked").is_some());
    assert!(look().expect("looked").is_none(), "it is claimed");
    assert_eq!(left, [&*left[0]; 2]);
    assert!(left[0].starts_with("orders/"));
}

#[test]
fn a_node_that_is_not_called_as_nodes_are_is_not_shown() {
    let objects = SimObjects::default();
    let long = "c".repeat(201);
    for (claimed_by, shown) in [
        ("c-1.x_2", "c-1.x_2"),
        ("", "?"),
        ("\u{1b}[2J", "?"),
        (&long, "?"),
    ] {
        let mut placed = place(&node(&objects), &order(7, EPOCH));
        let worker = node(&objects);
        let claimed = Claimed::claim(&worker, (claimed_by, BUILD), EPOCH, unique_bytes, |_| true);
        claimed.expect("looked").expect("an order");
        assert!(is_waiting(&mut placed, 1));
        assert_eq!(placed.node(), Some(shown));
    }
}

/// One node claims between two calls of the other.
#[test]
fn one_of_two_nodes_claims_an_order() {
    for call in 1..8 {
        let objects = SimObjects::default();
        let placed = place(&node(&objects), &order(7, EPOCH));
        let (one, other) = (node(&objects), node(&objects));
        let by_one = Arc::new(Mutex::new(None));
        let claiming = Arc::clone(&by_one);
        objects.before_nth_call(call, move || {
            *claiming.lock().expect("no panic") = claim(&one, EPOCH);
        });
        let by_other = claim(&other, EPOCH);
        let by_one = by_one.lock().expect("no panic").is_some();
        assert!(
            by_one != by_other.is_some(),
            "before call {call}: {by_one} and {by_other:?}"
        );
        drop(placed);
    }
}

#[test]
fn whatever_call_fails_one_node_works_and_the_writer_learns_the_end_or_gives_up() {
    let mut ends = BTreeSet::new();
    for fault in FAULTS {
        for call in 1..40 {
            let objects = SimObjects::default();
            let (writer, workers) = (node(&objects), [node(&objects), node(&objects)]);
            objects.fail_nth_call(call, fault);
            let Ok(mut placed) = Placed::place(&writer, &order(7, EPOCH), unique_bytes, 0) else {
                // It rebuilds itself.
                continue;
            };
            let mut now_ms = 0;
            let mut claims = Vec::new();
            while now_ms < CLAIM_MS && is_waiting(&mut placed, now_ms) {
                for (name, blobs) in ["c", "d"].into_iter().zip(&workers) {
                    let claim = Claimed::claim(blobs, (name, BUILD), EPOCH, unique_bytes, |_| true);
                    claims.extend(claim.ok().flatten());
                }
                now_ms += 1_000;
            }
            assert!(claims.len() <= 1, "{fault:?} of call {call}: {claims:?}");
            if let Some(claimed) = claims.first_mut() {
                for _ in 0..3 {
                    let is_wanted = claimed.live(None, 0).unwrap_or(true);
                    assert!(is_wanted, "{fault:?} of call {call}");
                }
                while claimed.end(&Ok(None)).is_err() {}
            }
            let end = loop {
                match placed.look(now_ms) {
                    Standing::Waits => now_ms += 1_000,
                    Standing::Done(None) => break "done",
                    Standing::Done(Some(_)) => panic!("nobody built"),
                    Standing::Failed(_) => break "given up",
                }
                assert!(now_ms <= 2 * (CLAIM_MS + SILENT_MS), "it waits for ever");
            };
            ends.insert(end);
            drop(placed);
            objects.settle();
            let late: Vec<_> = workers.iter().map(|blobs| claim(blobs, EPOCH)).collect();
            assert!(late.iter().all(Option::is_none), "{fault:?} of call {call}");
        }
    }
    assert!(ends.contains("done"), "{ends:?}");
}

#[test]
fn an_end_without_a_build_says_why() {
    let objects = SimObjects::default();
    let (writer, worker) = (node(&objects), node(&objects));
    let ends: [(&[u8], &str); 2] = [
        (b"nonsense", "ended with no build"),
        (
            br#"{"failed":"the disk is full"}"#,
            "node c failed: the disk is full",
        ),
    ];
    for (end, why) in ends {
        let mut placed = place(&writer, &order(7, EPOCH));
        let claimed = claim(&worker, EPOCH).expect("an order");
        let done = format!("{}.done", ordered(&objects)[0]);
        writer.put(&done, end).expect("put");
        claimed.end(&Ok(None)).expect("the first end counts");
        let failure = failure(&mut placed, 1);
        assert!(failure.contains(why), "{failure}");
    }
}
