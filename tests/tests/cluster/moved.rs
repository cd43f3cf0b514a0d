//! The store of one machine that becomes one of several nodes, and the other way round: every answer stays, ids that
//! are sent again are known, and the directory serves or the nodes do, wherever the move was stopped.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use axum::body::Body;
use axum::http::Request;
use metrics_exporter_prometheus::PrometheusBuilder;
use tallyring_api::{Access, AccessLimits, Admin, ApiState, App, ask};
use tallyring_archive::{Blobs, names};
use tallyring_realtime::oplog::segments;
use tallyring_realtime::{Batch, Follower, Identity, Service, Store};
use tallyring_rebuild::backup::copy;
use tallyring_rebuild::share::{Share, ShareError, Shared, is_shared};
use tallyring_records::Increment;
use tallyring_tests::model::world;
use tallyring_tests::sim_disk::{SimDisk, random};
use tallyring_tests::sim_objects::{FAULTS, SimObjects};
use tallyring_tests::sim_topic::{SimTopic, Way};
use tokio::runtime::Runtime;

use super::play::Play;
use super::stand::{Stand, commit, compare, take_over};

/// Draws deeds of the store that writes.
fn live(play: &mut Play, deeds: usize) {
    for _ in 0..deeds {
        let choice = play.chance.below(24);
        play.write(if (7..13).contains(&choice) {
            23
        } else {
            choice
        });
    }
}

/// Packs segments, and takes users out of them who were erased.
fn night(store: &Store) {
    let (ledger, stop) = (store.ledger(), AtomicBool::new(false));
    ledger.flush().expect("flushed");
    while let Some(first) = ledger.to_pack(0).expect("a log") {
        assert!(ledger.pack(first, &stop).expect("packed"));
    }
    while let Some(first) = ledger.to_redact(1).expect("a log") {
        ledger.redact(first, 1, &stop).expect("redacted");
    }
}

/// A start that ends in good order, as before a move.
fn settle(stand: &Stand, disk: &SimDisk) {
    let store = stand.open_alone(disk);
    store.ledger().flush().expect("flushed");
    store.intake().seal().expect("sealed");
}

/// Moves the store on this disk, unless it was moved before.
fn try_move(stand: &mut Stand, disk: &SimDisk) -> Result<Shared, ShareError> {
    let (local, shared) = (disk.blobs(), stand.blobs(disk));
    if is_shared(&local, &shared)? {
        return Ok(Shared::default());
    }
    let topic = Arc::new(stand.topic.clone());
    Share::prepare(&local, &shared, topic)?.run(stand.owner(), "there", &|_, _| {})
}

/// Checks that the directory is served no more once nodes can start.
fn check_one_serves(stand: &Stand, disk: &SimDisk) {
    let marked = disk.blobs().read_if_there(names::MOVED);
    let is_marked = marked.expect("a sound disk").is_some();
    let mut keys = stand.objects.keys().into_iter();
    let may_start = keys.any(|key| key.starts_with(names::MANIFESTS));
    assert!(is_marked || !may_start, "both serve");
}

/// A copy of a directory, as a backup is, and what is restored from it.
fn copied(from: &Blobs) -> SimDisk {
    let to = SimDisk::default();
    copy(from, &to.blobs(), &|_| true, &|_, _| {}).expect("copied");
    to
}

fn read_only(stand: &Stand, disk: &SimDisk) -> Store {
    let world = world(disk.clone(), stand.clock.clone());
    Store::open_read_only(world, stand.options).expect("a whole store")
}

/// Answers over HTTP to reads of many kinds.
fn answers(runtime: &Runtime, service: &Arc<Service>, ids: &[String]) -> BTreeMap<String, String> {
    let app = Arc::new(App::new(ApiState {
        strands: Arc::new(Arc::clone(service).into()),
        of_strands: Arc::default(),
        admin: Arc::new(Admin::without_jobs()),
        settings: Arc::default(),
        nodes: Arc::default(),
        access: Arc::new(Access::open(AccessLimits::default())),
        metrics: PrometheusBuilder::new().build_recorder().handle(),
    }));
    let mut paths = vec!["/v1/namespaces".to_owned(), "/v1/final".to_owned()];
    for namespace in ["l", "u", "q", "l_e"] {
        let path = |rest: &str| format!("/v1/{namespace}/{rest}");
        paths.push(path("top?unit=year&units=-1"));
        for key in ["a", "b", "a-", "12345678901", "-"] {
            paths.extend(
                [
                    "summary?unit=year&units=-1",
                    "counts?unit=hour&units=200",
                    "counts?unit=day&units=20&tz=Asia/Kolkata",
                    "by/c?unit=day&units=20",
                    "uniques?unit=day&units=20",
                ]
                .map(|rest| path(&format!("{key}/{rest}"))),
            );
        }
    }
    let plain = |id: &&String| id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    paths.extend(
        ids.iter()
            .filter(plain)
            .map(|id| format!("/v1/events/{id}")),
    );
    let mut answers = BTreeMap::new();
    for path in paths {
        let request = Request::get(format!("http://localhost{path}")).body(Body::empty());
        let answer = runtime.block_on(ask(&app, request.expect("a request")));
        answers.insert(path, format!("{:?}", answer.expect("an answer")));
    }
    answers
}

/// How an increment with each id is answered.
fn outcomes(store: &Store, now: i64, ids: &[String]) -> Vec<String> {
    let outcome = |id: &String| {
        let increment = Increment {
            id: Some(id.clone()),
            ..Increment::new(now, 1, [("l", "sent again")])
        };
        let batch = Batch {
            increments: vec![increment],
            ..Batch::default()
        };
        let accepted = commit(store, batch).expect("an answer");
        format!("{id} {} {}", accepted.accepted, accepted.duplicates)
    };
    ids.iter().map(outcome).collect()
}

fn last(ids: &[String], most: usize) -> Vec<String> {
    ids.iter().rev().take(most).cloned().collect()
}

/// Closes the store of one machine: its last answers, and a copy of its directory.
fn close(
    play: &mut Play,
    runtime: &Runtime,
    ids: &[String],
) -> (BTreeMap<String, String>, SimDisk) {
    night(&play.writer);
    play.writer.ledger().expire_log().expect("expired");
    let service = Arc::new(Service::start(Arc::clone(&play.writer)).expect("threads"));
    let answered = answers(runtime, &service, ids);
    let found = answered.values().filter(|one| one.starts_with("(200"));
    assert!(found.count() > answered.len() / 2, "{answered:?}");
    stop(service);
    settle(&play.stand, &play.disk);
    (answered, copied(&play.disk.blobs()))
}

fn stop(service: Arc<Service>) {
    let service = Arc::into_inner(service).expect("the only one");
    service.stop().expect("stopped");
}

/// Moves the store to nodes: the one that writes, and the disk of another one that was stopped.
fn to_nodes(
    play: &mut Play,
    runtime: &Runtime,
    ids: &[String],
    (answered, machine): (&BTreeMap<String, String>, &SimDisk),
) -> (Arc<Service>, SimDisk) {
    let sent = try_move(&mut play.stand, &play.disk.clone()).expect("moved");
    assert!(sent.files > 0 && sent.records > 100, "{sent:?}");
    check_one_serves(&play.stand, &play.disk);
    let (_, follower) = play.stand.follower(1);
    let (stopped, _) = play.stand.follower(2);
    let alone = read_only(&play.stand, machine);
    compare(&alone, follower.store(), play.now, ids);
    let service = Arc::new(Service::follow(follower).expect("threads"));
    service.take_over(play.stand.owner()).expect("taken over");
    for (path, answer) in &answers(runtime, &service, ids) {
        assert_eq!(answered.get(path), Some(answer), "{path}");
    }
    let alone = play.stand.open_alone(machine);
    let known = outcomes(&alone, play.now, ids);
    assert!(known.iter().any(|one| one.ends_with(" 0 1")), "{known:?}");
    assert_eq!(outcomes(service.store(), play.now, ids), known);
    play.writer = Arc::clone(service.store());
    (service, stopped)
}

/// Goes back to one machine by a backup of the node that was stopped: the disk of the machine.
fn to_machine(
    play: &mut Play,
    runtime: &Runtime,
    service: Arc<Service>,
    stopped: &SimDisk,
) -> SimDisk {
    let ids = last(&play.ids, 40);
    play.writer.ledger().expire_log().expect("expired");
    let answered = answers(runtime, &service, &ids);
    let (world, options) = (play.stand.world(stopped.clone()), play.stand.options);
    let topic = Arc::new(play.stand.topic.clone());
    let end = Follower::bring_up(&world, &options, topic).expect("the whole log");
    assert_eq!(end.sequence, play.writer.live().applied().sequence);
    // A history of an id reaches as far back as the log, so this node forgets what the writer did.
    let mut opened = play.stand.open(2, stopped).expect("a node");
    opened.tidy().expect("tidied");
    let backup = copied(&play.stand.blobs(stopped));
    let machine = copied(&backup.blobs());
    let alone = read_only(&play.stand, &machine);
    compare(opened.store(), &alone, play.now, &ids);
    let alone = Arc::new(play.stand.open_alone(&machine));
    assert!(alone.live().applied().epoch > play.writer.live().applied().epoch);
    let of_machine = Arc::new(Service::start(Arc::clone(&alone)).expect("threads"));
    for (path, answer) in &answers(runtime, &of_machine, &ids) {
        assert_eq!(answered.get(path), Some(answer), "back: {path}");
    }
    let known = outcomes(&play.writer, play.now, &ids);
    assert_eq!(outcomes(&alone, play.now, &ids), known, "back");
    stop(service);
    stop(of_machine);
    machine
}

/// Moves a store to nodes, back, and to other nodes; how many segments of its log lacked an erased user.
fn there_and_back(seed: u64, runtime: &Runtime) -> usize {
    let mut play = Play::alone(seed);
    live(&mut play, 150);
    let ids = last(&play.ids, 40);
    let (answered, machine) = close(&mut play, runtime, &ids);
    let log = segments(&machine).expect("a log");
    let (service, stopped) = to_nodes(&mut play, runtime, &ids, (&answered, &machine));
    live(&mut play, 60);
    (0..9).for_each(|_| play.commit());
    let machine = to_machine(&mut play, runtime, service, &stopped);
    // Where the log was in a cluster before, it moves to another one as well.
    (play.stand.topic, play.stand.objects) = (SimTopic::default(), SimObjects::default());
    settle(&play.stand, &machine);
    try_move(&mut play.stand, &machine).expect("moved again");
    let (_, follower) = play.stand.follower(3);
    let alone = read_only(&play.stand, &machine);
    compare(&alone, follower.store(), play.now, &ids);
    take_over(follower, play.stand.owner());
    log.iter().filter(|one| one.lacks_erased()).count()
}

#[test]
fn nodes_answer_as_the_machine_did_and_a_machine_as_the_nodes_did() {
    let runtime = Runtime::new().expect("a runtime");
    let redacted = (0..6).map(|seed| {
        let moved = catch_unwind(AssertUnwindSafe(|| there_and_back(seed, &runtime)));
        moved.unwrap_or_else(|_| panic!("the store of seed {seed} failed"))
    });
    assert!(redacted.sum::<usize>() > 0, "no log lacks an erased user");
}

/// A small store of one machine with files and a log, closed.
fn small() -> Play {
    let mut play = Play::alone(700);
    (0..6).for_each(|_| play.commit());
    play.writer.ledger().flush().expect("flushed");
    play.write(22);
    play.commit();
    play.writer = Arc::new(play.stand.open_alone(&SimDisk::default()));
    settle(&play.stand, &play.disk);
    play
}

/// Checks that nodes have what the directory has.
fn check_moved(play: &Play) {
    let (_, follower) = play.stand.follower(1);
    let alone = read_only(&play.stand, &play.disk);
    compare(&alone, follower.store(), play.now, &play.ids);
}

/// Runs the move again after one that failed; the directory may have served meanwhile, where it may.
fn complete(play: &mut Play) {
    check_one_serves(&play.stand, &play.disk);
    let marked = play.disk.blobs().read_if_there(names::MOVED);
    if marked.expect("a sound disk").is_none() {
        let store = play.stand.open_alone(&play.disk);
        outcomes(&store, play.now, &["meanwhile".into()]);
        drop(store);
        settle(&play.stand, &play.disk);
    }
    let _ = try_move(&mut play.stand, &play.disk);
    check_one_serves(&play.stand, &play.disk);
    play.stand.objects.settle();
    play.stand.topic.settle();
    try_move(&mut play.stand, &play.disk).expect("moved");
    check_moved(play);
}

#[test]
fn a_move_whose_object_store_fails_at_any_call_is_completed_by_the_next_one() {
    for fault in FAULTS {
        let mut failed = 0;
        for call in 1.. {
            let mut play = small();
            play.stand.objects.fail_nth_call(call, fault);
            failed += u32::from(try_move(&mut play.stand, &play.disk.clone()).is_err());
            let is_through = call > play.stand.objects.calls();
            complete(&mut play);
            if is_through {
                break;
            }
        }
        assert!(failed > 5, "{fault:?}: {failed} failed");
    }
}

#[test]
fn a_move_that_is_killed_at_any_call_of_its_disk_or_topic_is_completed_by_the_next_one() {
    let mut killed = 0;
    for call in 1.. {
        let mut play = small();
        play.disk.stop_at_nth_call(call);
        let moved = try_move(&mut play.stand, &play.disk.clone());
        if moved.is_ok() {
            break;
        }
        killed += 1;
        play.disk = play.disk.crash(&mut random(call));
        complete(&mut play);
    }
    assert!(killed > 20, "{killed} kills");
    for way in [Way::NoAnswer, Way::Lost, Way::Late(1), Way::Late(60)] {
        for sent in 0.. {
            let mut play = small();
            let ways = std::iter::repeat_n(Way::Told, sent).chain([way]);
            play.stand.topic.ways(ways);
            let moved = try_move(&mut play.stand, &play.disk.clone());
            play.stand.topic.ways([]);
            complete(&mut play);
            if moved.is_ok() {
                assert!(sent > 5, "{sent} messages");
                break;
            }
        }
    }
}

#[test]
fn a_bucket_with_anything_else_and_a_damaged_file_are_refused_and_nothing_is_marked() {
    let refused = |play: &mut Play| {
        let refused = try_move(&mut play.stand, &play.disk.clone()).expect_err("refused");
        let marked = play.disk.blobs().read_if_there(names::MOVED);
        assert_eq!(marked.expect("a sound disk"), None);
        refused
    };
    let mut play = small();
    play.stand.objects = Stand::new().objects;
    assert!(matches!(
        refused(&mut play),
        ShareError::InUse { newest: 1 }
    ));

    let mut play = small();
    let other = play.stand.blobs(&SimDisk::default());
    other.prepare().expect("directories");
    Identity::create(&other, |bytes| bytes.fill(9)).expect("an identity");
    assert!(matches!(refused(&mut play), ShareError::OtherStore));

    // A restored store counts apart from the one that it was restored from.
    let mut play = small();
    play.stand.topic.ways([Way::Lost]);
    refused(&mut play);
    play.disk
        .blobs()
        .put_over(names::LINEAGE, b"another\n")
        .expect("written");
    assert!(matches!(refused(&mut play), ShareError::OtherStore));

    let mut play = small();
    let files = play.disk.files();
    let run = files.iter().find(|(name, _)| name.starts_with("deltas/"));
    let (run, _) = run.expect("a run");
    play.disk.flip_bit(run, 100);
    let told = refused(&mut play).to_string();
    assert!(told.contains(run.as_str()), "{told}");
}
