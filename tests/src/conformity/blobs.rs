//! The laws of blobs, wherever they lie: on a local disk, or in an object store.
//!
//! Each law begins with no blobs. Most laws are held for three kinds of names, because an object store treats them
//! differently: a sorted file, a small blob that all nodes share, and a blob of the node's own.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::sync::{Arc, Mutex};

use tallyring_archive::{
    Blobs, Error, Manifest, Run, RunEntry, RunSpec, RunWriter, manifest, names, verify_on_disk,
    verify_run,
};

/// Blobs to try a law on.
pub struct Bench {
    /// There are none yet. The directories are made.
    pub blobs: Blobs,
    /// True over an object store.
    pub is_shared: bool,
    /// Gives the same blobs as the next process finds them, after a loss of power where the disk can simulate one. The
    /// blobs of before are of no use then.
    pub next_process: Box<dyn FnMut() -> Blobs>,
}

impl Bench {
    fn restart(&mut self) {
        self.blobs = (self.next_process)();
    }
}

/// Panics where it does not hold.
type Law = fn(&mut Bench);

/// Holds every law over a bench of its own. Panics, and names the law, where one does not hold.
pub fn check(bench: &dyn Fn() -> Bench) {
    let laws: [(&str, Law); 12] = [
        ("a name is given once", is_named_once),
        ("a name that is replaced has the new content", is_replaced),
        ("a missing blob is told as gone", is_told_as_gone),
        ("a blob of any size is read as it was put", has_any_size),
        ("a copy is a second name", has_second_name),
        ("what was begun and not put leaves nothing", leaves_nothing),
        ("blobs of a group are put by many threads", are_put_together),
        ("a list has finished blobs alone", is_listed),
        ("a removed blob is gone but where it is held", is_removed),
        ("every file that is made is told", is_told),
        ("a run is proven", is_proven),
        ("a manifest number is committed once", is_committed_once),
    ];
    for (law, hold) in laws {
        let mut bench = bench();
        let is_held = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| hold(&mut bench)));
        assert!(is_held.is_ok(), "this law does not hold: {law}");
    }
}

/// Writes a run of some lines, the number of which makes its content.
///
/// # Errors
/// When the blobs refuse.
pub fn write_run(blobs: &Blobs, lines: u32) -> Result<RunEntry, Error> {
    let spec = RunSpec {
        origin: "export day-2012-03-16".parse().expect("BUG: an origin"),
        partition: "2012-03".parse().expect("BUG: a partition"),
        shard: 0,
        shards: 1,
        level: 3,
    };
    let mut writer = RunWriter::create(blobs, spec)?;
    for line in 0..lines {
        writer.push(format!("u|user{line:06}").as_bytes(), b"c3g0:5")?;
    }
    Ok(writer.finish()?.expect("BUG: lines were pushed"))
}

/// An empty manifest of that number; `written_at_ms` tells one writer's from another's.
pub fn empty_manifest(number: u64, written_at_ms: i64) -> Manifest {
    let text = format!(
        r#"{{"number": {number}, "written_at_ms": {written_at_ms}, "store_id": "",
            "intake": {{"today": "2012-03-16", "schemas": [], "stores": [], "ids": {{"flushed": "0:0", "runs": []}}}},
            "archive": {{"runs": [], "datasets": [], "generations": [], "active": 0}}}}"#
    );
    serde_json::from_str(&text).expect("BUG: a manifest")
}

/// A small blob that all nodes share, and two of the node's own.
const SMALL: [&str; 3] = ["rules/00", "incoming/a.json", "oplog/a.tlog"];

/// A name of each kind with a content.
fn samples() -> Vec<(String, Vec<u8>)> {
    let (run, bytes) = sorted(100);
    let small = SMALL.map(|name| (name.to_owned(), format!("content of {name}").into_bytes()));
    small.into_iter().chain([(run.name, bytes)]).collect()
}

/// A sorted file and its bytes.
fn sorted(lines: u32) -> (RunEntry, Vec<u8>) {
    let directory = tempfile::tempdir().expect("BUG: a directory");
    let blobs = Blobs::local(directory.path()).expect("BUG: a directory");
    blobs.prepare().expect("BUG: an empty directory");
    let run = write_run(&blobs, lines).expect("BUG: a good disk");
    let bytes = blobs.read(&run.name).expect("BUG: it was written");
    (run, bytes)
}

/// Asserts that every way to read a blob gives `bytes`, in the next process too.
fn assert_reads(bench: &mut Bench, name: &str, bytes: &[u8]) {
    for is_restarted in [false, true] {
        if is_restarted {
            bench.restart();
        }
        let blobs = &bench.blobs;
        assert!(blobs.read(name).unwrap() == bytes, "{name}");
        assert!(blobs.content(name).unwrap().all().unwrap() == bytes);
        assert!(blobs.read_if_there(name).unwrap().as_deref() == Some(bytes));
        let mut parts = Vec::new();
        let read = blobs.read_from_disk(name, &mut |part| parts.extend_from_slice(part));
        read.unwrap();
        assert!(parts == bytes, "{name}");
    }
}

fn assert_gone(blobs: &Blobs, name: &str) {
    assert!(blobs.read(name).unwrap_err().is_gone(), "{name}");
    assert!(blobs.content(name).unwrap_err().is_gone(), "{name}");
    assert_eq!(blobs.read_if_there(name).unwrap(), None);
    let read = blobs.read_from_disk(name, &mut |_| panic!("a part of what is not there"));
    assert!(read.unwrap_err().is_gone(), "{name}");
}

fn is_named_once(bench: &mut Bench) {
    for (name, bytes) in samples() {
        assert!(bench.blobs.put(&name, &bytes).unwrap(), "{name}");
        assert!(!bench.blobs.put(&name, &bytes).unwrap(), "{name}");
    }
    for name in SMALL {
        assert!(!bench.blobs.put(name, b"other").unwrap(), "{name}");
    }
    for (name, bytes) in samples() {
        assert_reads(bench, &name, &bytes);
    }
}

fn is_replaced(bench: &mut Bench) {
    for (name, bytes) in samples() {
        bench.blobs.put_over(&name, &bytes).unwrap();
        bench.blobs.put_over(&name, &bytes).unwrap();
        assert_reads(bench, &name, &bytes);
    }
    let directory = tempfile::tempdir().unwrap();
    let others = Blobs::local(directory.path()).unwrap();
    others.put("other", b"of another directory").unwrap();
    for name in SMALL {
        bench.blobs.put_over(name, b"new").unwrap();
        assert_reads(bench, name, b"new");
        bench.blobs.put_over_from(&others, "other", name).unwrap();
        assert_reads(bench, name, b"of another directory");
        let gone = bench.blobs.put_over_from(&others, "absent", name);
        assert!(gone.unwrap_err().is_gone());
        assert_reads(bench, name, b"of another directory");
    }
}

fn is_told_as_gone(bench: &mut Bench) {
    for (name, _) in samples() {
        assert_gone(&bench.blobs, &name);
        let copied = bench.blobs.copy(&name, "incoming/copy").unwrap_err();
        assert!(copied.is_gone(), "{copied}");
        assert!(!bench.blobs.clear_way(1, &name).unwrap());
    }
    assert_gone(&bench.blobs, "incoming/copy");
}

fn has_any_size(bench: &mut Bench) {
    for bytes in [0, 1, (1 << 20) - 1, (3 << 20) + 1] {
        let bytes: Vec<u8> = (0..bytes).map(|at: usize| (at % 251) as u8).collect();
        for name in SMALL {
            bench.blobs.put_over(name, &bytes).unwrap();
            assert_reads(bench, name, &bytes);
        }
    }
}

fn has_second_name(bench: &mut Bench) {
    for (from, to) in [
        ("rules/00", "rules/01"),
        ("incoming/a", "rules/02"),
        ("incoming/b", "incoming/c"),
        ("rules/03", "aside/d"),
    ] {
        bench.blobs.put(from, from.as_bytes()).unwrap();
        let _ = bench.blobs.disk().create_directory(names::ASIDE);
        assert!(bench.blobs.copy(from, to).unwrap(), "{to}");
        bench.blobs.put_over("rules/04", b"other").unwrap();
        assert!(!bench.blobs.copy("rules/04", to).unwrap(), "{to}");
        bench.blobs.remove(from).unwrap();
        assert_eq!(bench.blobs.read(to).unwrap(), from.as_bytes());
    }
    let run = write_run(&bench.blobs, 100).unwrap();
    let second = run.renamed("load 0123456789abcdef".parse().unwrap());
    assert!(bench.blobs.copy(&run.name, &second.name).unwrap());
    bench.blobs.remove(&run.name).unwrap();
    verify_run(&bench.blobs, &second).unwrap();
    bench.restart();
    verify_run(&bench.blobs, &second).unwrap();
}

fn leaves_nothing(bench: &mut Bench) {
    let mut temporary = Vec::new();
    for directory in [names::RULES, names::INCOMING, names::RUNS] {
        let mut begun = bench.blobs.begin(&format!("{directory}/begun")).unwrap();
        begun.write(b"some bytes").unwrap();
        assert_eq!(begun.bytes(), 10);
        temporary.push(begun.temporary_name().to_owned());
    }
    for name in temporary {
        assert_gone(&bench.blobs, &name);
    }
    // A process that dies leaves its files to the next one.
    let begun = bench.blobs.begin("rules/begun").unwrap();
    std::mem::forget(begun);
    assert_eq!(bench.blobs.remove_unfinished(names::RULES).unwrap(), 1);
    assert_eq!(bench.blobs.remove_unfinished(names::RULES).unwrap(), 0);
}

fn are_put_together(bench: &mut Bench) {
    let files: Vec<(RunEntry, Vec<u8>)> = (1..=6).map(|lines| sorted(lines * 10)).collect();
    let group = bench.blobs.group();
    std::thread::scope(|scope| {
        for (run, bytes) in &files {
            let group = &group;
            scope.spawn(move || {
                let mut begun = group.blobs().begin(&run.name).unwrap();
                begun.write(bytes).unwrap();
                assert!(group.put(begun, &run.name).unwrap());
            });
        }
    });
    group.commit().unwrap();
    bench.restart();
    for (run, _) in &files {
        verify_run(&bench.blobs, run).unwrap();
    }
}

fn is_listed(bench: &mut Bench) {
    for directory in [names::RULES, names::INCOMING] {
        assert_eq!(bench.blobs.list(directory).unwrap(), [""; 0]);
        let mut expected = Vec::new();
        for number in (0..10).rev() {
            let file = format!("{number:02}");
            let name = format!("{directory}/{file}");
            bench.blobs.put(&name, b"text").unwrap();
            expected.push(file);
        }
        expected.sort_unstable();
        let begun = bench.blobs.begin(&format!("{directory}/begun")).unwrap();
        assert_eq!(bench.blobs.list(directory).unwrap(), expected);
        drop(begun);
        bench.restart();
        assert_eq!(bench.blobs.list(directory).unwrap(), expected);
    }
    let run = write_run(&bench.blobs, 100).unwrap();
    match (bench.is_shared, bench.blobs.list(names::RUNS)) {
        (true, Err(refused)) => assert!(refused.to_string().contains("ask the manifest")),
        (false, Ok(files)) => assert_eq!(files, [run.name.strip_prefix("runs/").unwrap()]),
        (_, listed) => panic!("{listed:?}"),
    }
}

fn is_removed(bench: &mut Bench) {
    for name in SMALL {
        bench.blobs.put(name, b"held").unwrap();
        let held = bench.blobs.content(name).unwrap();
        bench.blobs.remove(name).unwrap();
        assert_eq!(held.all().unwrap(), b"held");
        assert_gone(&bench.blobs, name);
        assert!(bench.blobs.put(name, b"again").unwrap());
        assert_eq!(bench.blobs.read(name).unwrap(), b"again");
    }
    let run = write_run(&bench.blobs, 100).unwrap();
    let held = Run::open_named(&bench.blobs, &run).unwrap();
    bench.blobs.remove(&run.name).unwrap();
    let mut lines = held.cursor();
    let mut found = 0;
    while lines.advance().unwrap() {
        found += 1;
    }
    assert_eq!(found, run.meta.lines);
    match bench.is_shared {
        true => drop(verify_run(&bench.blobs, &run).unwrap()),
        false => assert_gone(&bench.blobs, &run.name),
    }
}

fn is_told(bench: &mut Bench) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = {
        let told = Arc::clone(&told);
        bench
            .blobs
            .telling(move |name| told.lock().unwrap().push(name.to_owned()))
    };
    let run = write_run(&telling, 100).unwrap();
    telling.put("incoming/a", b"text").unwrap();
    telling.put("incoming/a", b"text").unwrap();
    let told = told.lock().unwrap();
    let finished = told
        .iter()
        .filter(|name| !name.ends_with(names::TEMPORARY_SUFFIX));
    assert_eq!(
        finished.collect::<Vec<_>>(),
        [run.name.as_str(), "incoming/a"]
    );
    assert_eq!(told.len(), 5, "{told:?}");
}

fn is_proven(bench: &mut Bench) {
    let run = write_run(&bench.blobs, 5_000).unwrap();
    verify_run(&bench.blobs, &run).unwrap();
    bench.restart();
    verify_run(&bench.blobs, &run).unwrap();
    verify_on_disk(&bench.blobs, &run, &mut || ()).unwrap();
}

fn is_committed_once(bench: &mut Bench) {
    assert_eq!(Manifest::load(&bench.blobs).unwrap(), None);
    for number in 1..=12 {
        empty_manifest(number, 1).commit(&bench.blobs).unwrap();
        let again = empty_manifest(number, 2).commit(&bench.blobs);
        assert!(matches!(again, Err(Error::Conflict { number: n }) if n == number));
    }
    let numbers = manifest::numbers(&bench.blobs).unwrap();
    let oldest = if bench.is_shared { 1 } else { 5 };
    assert_eq!(numbers, (oldest..=12).collect::<Vec<_>>());
    bench.restart();
    let newest = Manifest::load(&bench.blobs).unwrap();
    assert_eq!(newest, Some(empty_manifest(12, 1)));
}
