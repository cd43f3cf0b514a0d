//! Blobs in an object store that several nodes share.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tallyring_archive::{
    Blobs, Content, Error, Manifest, ObjectInfo, Objects, Run, RunEntry, names, verify_on_disk,
    verify_run,
};

use crate::{Files, Line, spec, write};

/// An object store in memory. Lists have two objects at most.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    /// The fates of the next objects that are put if absent.
    faults: Mutex<Vec<Fault>>,
    /// How many parts of objects were read.
    parts: AtomicUsize,
}

/// A put whose answer is an error.
#[derive(Debug, Clone)]
enum Fault {
    /// The object was not made.
    Refused,
    /// The object was made.
    AnswerLost,
    /// Another node made an object of its own.
    Overtaken(&'static [u8]),
}

impl Bucket {
    pub(crate) fn parts_read(&self) -> usize {
        self.parts.load(Ordering::Relaxed)
    }

    fn keys(&self) -> Vec<String> {
        self.objects.lock().unwrap().keys().cloned().collect()
    }

    fn bytes(&self, key: &str) -> io::Result<Vec<u8>> {
        let found = self.objects.lock().unwrap().get(key).cloned();
        found.ok_or_else(|| ErrorKind::NotFound.into())
    }

    pub(crate) fn change(&self, key: &str, change: impl FnOnce(&mut Vec<u8>)) {
        change(self.objects.lock().unwrap().get_mut(key).unwrap());
    }
}

impl Objects for Bucket {
    fn put_if_absent(&self, key: &str, bytes: &[u8]) -> io::Result<bool> {
        let fault = self.faults.lock().unwrap().pop();
        let mut objects = self.objects.lock().unwrap();
        let bytes = match &fault {
            None | Some(Fault::AnswerLost) => bytes,
            Some(Fault::Overtaken(others)) => others,
            Some(Fault::Refused) => return Err(ErrorKind::TimedOut.into()),
        };
        let is_free = !objects.contains_key(key);
        objects
            .entry(key.to_owned())
            .or_insert_with(|| bytes.to_vec());
        match fault {
            None => Ok(is_free),
            Some(_) => Err(ErrorKind::TimedOut.into()),
        }
    }

    fn put(&self, key: &str, content: &Content) -> io::Result<()> {
        let bytes = content.all()?;
        self.objects.lock().unwrap().insert(key.to_owned(), bytes);
        Ok(())
    }

    fn get(&self, key: &str, part: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        self.bytes(key)?.chunks(7).for_each(part);
        Ok(())
    }

    fn get_part(&self, key: &str, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        self.parts.fetch_add(1, Ordering::Relaxed);
        let all = self.bytes(key)?;
        let start = all.len().min(offset as usize);
        Ok(all[start..all.len().min(start + bytes)].to_vec())
    }

    fn info(&self, key: &str) -> io::Result<ObjectInfo> {
        Ok(ObjectInfo {
            bytes: self.bytes(key)?.len() as u64,
            modified_ms: 0,
        })
    }

    fn list(&self, directory: &str, after: &str) -> io::Result<Vec<(String, ObjectInfo)>> {
        let prefix = format!("{directory}/");
        let found = self.keys().into_iter();
        let found = found.filter(|key| key.starts_with(&prefix) && key.as_str() > after);
        let with_info = |key: String| Ok((key.clone(), self.info(&key)?));
        found.take(2).map(with_info).collect()
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        self.objects.lock().unwrap().remove(key);
        Ok(())
    }
}

/// A node of a cluster: its disk, and the blobs that it shares with the others.
struct Node {
    disk: Files,
    blobs: Blobs,
}

/// Two nodes over one object store.
fn nodes() -> (Arc<Bucket>, Node, Node) {
    let bucket = Arc::new(Bucket::default());
    let node = || {
        let disk = Files::default();
        let blobs = Blobs::over(Arc::new(disk.clone()), bucket.clone());
        Node { disk, blobs }
    };
    let (one, two) = (node(), node());
    (bucket, one, two)
}

impl Node {
    fn files(&self) -> Vec<String> {
        self.disk.0.lock().unwrap().keys().cloned().collect()
    }
}

fn lines() -> Vec<Line> {
    let line = |number: u32| (format!("u|user{number:04}").into(), b"c41l:5".to_vec());
    (0..500).map(line).collect()
}

fn run_of(node: &Node) -> RunEntry {
    let spec = spec("2012-04", 0, 1);
    write(&node.blobs, spec, &lines()).unwrap().unwrap()
}

/// A run under the name of another origin.
fn renamed(run: &RunEntry) -> RunEntry {
    run.renamed("load 0123456789abcdef".parse().unwrap())
}

#[test]
fn a_run_that_one_node_made_is_read_by_another_and_its_copy_serves_without_the_object_store() {
    let (bucket, one, two) = nodes();
    let run = run_of(&one);
    let key = names::object_key(&run.name).unwrap();
    assert_eq!(bucket.keys(), [key.as_str()]);
    assert_eq!(two.files(), [""; 0]);
    verify_run(&two.blobs, &run).unwrap();
    assert_eq!([one.files(), two.files()], [[run.name.as_str()]; 2]);
    bucket.remove(&key).unwrap();
    for node in [&one, &two] {
        verify_run(&node.blobs, &run).unwrap();
    }
}

#[test]
fn all_names_of_one_content_are_one_object_and_the_removal_of_one_name_leaves_it() {
    let (bucket, one, two) = nodes();
    let run = run_of(&one);
    let second = renamed(&run);
    assert!(one.blobs.copy(&run.name, &second.name).unwrap());
    assert!(!one.blobs.copy(&run.name, &second.name).unwrap());
    // A node without a copy has nothing to name.
    assert!(two.blobs.copy(&run.name, &second.name).unwrap());
    assert_eq!(bucket.keys().len(), 1);
    one.blobs.remove(&run.name).unwrap();
    one.blobs.remove(&run.name).unwrap();
    for node in [&one, &two] {
        verify_run(&node.blobs, &second).unwrap();
        assert_eq!(node.files(), [second.name.as_str()]);
        verify_run(&node.blobs, &run).unwrap();
    }
    bucket.remove(&bucket.keys()[0]).unwrap();
    let gone = one.blobs.copy(&run.name, &second.name).unwrap_err();
    assert!(gone.is_gone(), "{gone}");
    let other = run.name_of("ffffffffffffffffffffffffffffffff");
    let refused = one.blobs.copy(&run.name, &other).unwrap_err().to_string();
    assert!(refused.contains("other content"), "{refused}");
}

#[test]
fn an_object_with_a_flipped_bit_gets_no_name_on_the_node_that_fetched_it() {
    let (bucket, one, two) = nodes();
    let run = run_of(&one);
    let key = names::object_key(&run.name).unwrap();
    bucket.change(&key, |bytes| bytes[9] ^= 1);
    let damaged = Run::open_named(&two.blobs, &run).unwrap_err();
    assert!(damaged.is_damage() && !damaged.is_gone());
    let text = damaged.to_string();
    assert!(text.contains(&key) && text.contains(&run.name), "{text}");
    assert_eq!(two.files(), [""; 0]);
    // A check of what is stored reads past the node's copy.
    verify_run(&one.blobs, &run).unwrap();
    verify_on_disk(&one.blobs, &run, &mut || ()).unwrap_err();
    // Good bytes in its place heal it for all nodes.
    one.blobs
        .put_over_from(&one.blobs, &run.name, &run.name)
        .unwrap();
    verify_run(&two.blobs, &run).unwrap();
    verify_on_disk(&one.blobs, &run, &mut || ()).unwrap();
}

#[test]
fn an_object_that_is_not_what_its_key_says_is_put_again() {
    let (bucket, one, two) = nodes();
    let run = run_of(&one);
    let key = names::object_key(&run.name).unwrap();
    let bytes = one.blobs.read(&run.name).unwrap();
    let damages: [fn(&mut Vec<u8>); 3] = [
        |bytes| bytes.push(0),
        |bytes| bytes.truncate(9),
        |bytes| bytes[9] ^= 1,
    ];
    for damage in damages {
        bucket.change(&key, damage);
        two.blobs.put(&run.name, &bytes).unwrap();
        assert_eq!(bucket.bytes(&key).unwrap(), bytes);
        verify_run(&two.blobs, &run).unwrap();
    }
}

#[test]
fn a_file_that_is_not_what_its_name_says_takes_the_place_of_no_object() {
    let (bucket, one, two) = nodes();
    let run = run_of(&one);
    let key = names::object_key(&run.name).unwrap();
    let bytes = one.blobs.read(&run.name).unwrap();
    let mut damaged = bytes.clone();
    damaged[9] ^= 1;
    for wrong in [&damaged[..], &bytes[1..], b""] {
        let refused = two.blobs.put(&run.name, wrong).unwrap_err();
        assert!(refused.is_damage(), "{refused}");
        assert_eq!(two.files(), [""; 0]);
        assert_eq!(bucket.bytes(&key).unwrap(), bytes);
    }
}

#[test]
fn each_part_that_is_read_uploaded_or_fetched_is_told() {
    let (_, one, two) = nodes();
    let told = Arc::new(AtomicUsize::new(0));
    let telling = |node: &Node| {
        let told = Arc::clone(&told);
        let count = move || {
            told.fetch_add(1, Ordering::Relaxed);
        };
        node.blobs.telling_parts(count)
    };
    let told = || told.swap(0, Ordering::Relaxed);
    let spec = spec("2012-04", 0, 1);
    let run = write(&telling(&one), spec, &lines()).unwrap().unwrap();
    assert_eq!(told(), 1, "the object store takes it at once");
    let content = telling(&two).content(&run.name).unwrap();
    let fetched = run.bytes.div_ceil(7);
    assert_eq!(
        told() as u64,
        fetched,
        "the object store has parts of 7 bytes"
    );
    content.part(0, 9).unwrap();
    content.all().unwrap();
    content.parts(&mut |_| ()).unwrap();
    assert_eq!(told(), 3);
    let copy = Blobs::new(Arc::new(Files::default()));
    copy.put_over_from(&telling(&two), &run.name, &run.name)
        .unwrap();
    assert_eq!(told(), 1);
}

#[test]
fn a_put_whose_answer_is_lost_is_answered_by_the_object() {
    let name = names::manifest(1);
    for (faults, expected, there) in [
        (vec![Fault::AnswerLost], Some(true), Some(b"mine")),
        (vec![Fault::Overtaken(b"your")], Some(false), Some(b"your")),
        (vec![Fault::Refused], Some(true), Some(b"mine")),
        // A second request meets what the first one made.
        (
            vec![Fault::AnswerLost, Fault::Refused],
            Some(true),
            Some(b"mine"),
        ),
        (vec![Fault::Refused; 3], None, None),
    ] {
        let (bucket, one, _) = nodes();
        let said = format!("{faults:?}");
        *bucket.faults.lock().unwrap() = faults;
        assert_eq!(one.blobs.put(&name, b"mine").ok(), expected, "{said}");
        let bytes = bucket.bytes(&name).ok();
        assert_eq!(bytes.as_deref(), there.map(|bytes| &bytes[..]), "{said}");
        assert_eq!(one.files(), [""; 0], "{said}");
    }
}

#[test]
fn of_two_nodes_one_commits_a_manifest_and_both_load_it() {
    let (_, one, two) = nodes();
    let manifest = |number: u64, written_at_ms: i64| -> Manifest {
        serde_json::from_str(&format!(
            r#"{{"number": {number}, "written_at_ms": {written_at_ms}, "store_id": "",
                "intake": {{"today": "2012-03-16", "schemas": [], "stores": [], "ids": {{"flushed": "0:0", "runs": []}}}},
                "archive": {{"runs": [], "datasets": [], "generations": [], "active": 0}}}}"#
        ))
        .unwrap()
    };
    for number in 1..=20 {
        manifest(number, 1).commit(&one.blobs).unwrap();
        let taken = manifest(number, 2).commit(&two.blobs);
        assert!(matches!(taken, Err(Error::Conflict { number: n }) if n == number));
    }
    let loaded = Manifest::load(&two.blobs).unwrap();
    assert_eq!(loaded, Some(manifest(20, 1)));
    let numbers = tallyring_archive::manifest::numbers(&two.blobs).unwrap();
    // Old ones stay: over an object store, a sweep removes them.
    assert_eq!(numbers, (1..=20).collect::<Vec<_>>());
}

#[test]
fn sorted_files_are_not_listed_and_what_belongs_to_a_node_stays_on_its_disk() {
    let (bucket, one, two) = nodes();
    for directory in names::SORTED_FILE_DIRECTORIES {
        let refused = one.blobs.list(directory).unwrap_err().to_string();
        assert!(refused.contains("ask the manifest"), "{refused}");
    }
    let sorted = "incoming/0123456789abcdef.2012-04.s00of01.74c109901dcadec7.csv.zst";
    let own = [
        sorted,
        "incoming/0123456789abcdef.json",
        "oplog/0000000000000000.tlog",
        names::LOCK,
        names::BACKUP,
    ];
    for name in own {
        assert!(one.blobs.put(name, b"of one").unwrap());
        assert!(two.blobs.content(name).unwrap_err().is_gone(), "{name}");
    }
    assert_eq!(bucket.keys(), [""; 0]);
    let listed = one.blobs.list(names::OPLOG).unwrap();
    assert_eq!(listed, ["0000000000000000.tlog"]);
    // A load is uploaded when it gets its place among the source runs.
    let source = "runs/bulk-0123456789abcdef.2012-04.s00of01.74c109901dcadec7.csv.zst";
    assert!(one.blobs.copy(sorted, source).unwrap());
    let key = names::object_key(source).unwrap();
    assert_eq!(bucket.bytes(&key).unwrap(), b"of one");
    // So is the content of a list that was written beside a server.
    let list = names::list_content("00");
    assert!(one.blobs.copy(names::BACKUP, &list).unwrap());
    assert_eq!(two.blobs.read(&list).unwrap(), b"of one");
    one.blobs.remove(&list).unwrap();
    assert_eq!(two.blobs.read_if_there(&list).unwrap(), None);
    // A file that a node puts aside is a copy of its own.
    assert!(one.blobs.copy(source, "aside/a").unwrap());
    assert_eq!(one.blobs.read("aside/a").unwrap(), b"of one");
}

#[test]
fn another_blob_has_no_copy_and_is_replaced_for_all_nodes_at_once() {
    let (bucket, one, two) = nodes();
    one.blobs.put_over(names::IDENTITY, b"first").unwrap();
    assert_eq!(two.blobs.read(names::IDENTITY).unwrap(), b"first");
    two.blobs.put_over(names::IDENTITY, b"second").unwrap();
    assert_eq!(one.blobs.read(names::IDENTITY).unwrap(), b"second");
    assert_eq!([one.files(), two.files()], [[""; 0]; 2]);
    assert_eq!(bucket.keys(), [names::IDENTITY]);
}
