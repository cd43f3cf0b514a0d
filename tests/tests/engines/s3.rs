//! A bucket of S3 gives what blobs need, and blobs over it hold the laws of all blobs.
//!
//! `TALLYRING_S3` names a bucket, as `s3://<bucket>/<prefix>`. The tests make objects below the prefix and leave them.
//! Endpoint and credentials are those of the environment (`AWS_ENDPOINT_URL` and so on).

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tallyring_archive::{Blobs, Content, Objects, PartCache, verify_on_disk, verify_run};
use tallyring_cluster::{Finding, S3Objects, Standing, check_bucket};
use tallyring_tests::conformity::blobs::{Bench, check, write_run};
use tallyring_tests::needs::skipped;

/// An empty part of the bucket; none where the environment has no bucket, which the output says.
fn bucket(test: &str) -> Option<Arc<S3Objects>> {
    let Ok(url) = std::env::var("TALLYRING_S3") else {
        skipped(test, "TALLYRING_S3 names no bucket");
        return None;
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let url = format!("{url}/{}/{}", std::process::id(), now.as_nanos());
    Some(Arc::new(S3Objects::open(url.parse().unwrap()).unwrap()))
}

/// A node with a directory of its own, which lives as long as what is returned.
fn node(objects: &Arc<S3Objects>) -> (tempfile::TempDir, Blobs) {
    let directory = tempfile::tempdir().unwrap();
    let blobs = over(directory.path(), objects);
    blobs.prepare().unwrap();
    (directory, blobs)
}

fn over(path: &std::path::Path, objects: &Arc<S3Objects>) -> Blobs {
    let disk = tallyring_archive::OsDisk::new(path).unwrap();
    Blobs::over(Arc::new(disk), objects.clone())
}

#[test]
fn blobs_in_s3_hold_the_laws() {
    if bucket("blobs_in_s3_hold_the_laws").is_none() {
        return;
    }
    let directories = std::cell::RefCell::new(Vec::new());
    check(&|| {
        let objects = bucket("blobs_in_s3_hold_the_laws").unwrap();
        let (directory, blobs) = node(&objects);
        let path = directory.path().to_owned();
        directories.borrow_mut().push(directory);
        Bench {
            blobs,
            is_shared: true,
            next_process: Box::new(move || over(&path, &objects)),
        }
    });
}

#[test]
fn objects_of_many_parts_are_read_as_they_were_put_and_replaced_as_a_whole() {
    let Some(objects) = bucket("objects_of_many_parts") else {
        return;
    };
    let part = 16 << 20;
    for bytes in [0, 1, part - 1, part, part + 1, 3 * part + 7] {
        let content: Vec<u8> = (0..bytes).map(|at: usize| (at % 251) as u8).collect();
        objects
            .put("runs/large", &Content::new(content.clone()))
            .unwrap();
        let mut read = Vec::new();
        objects
            .get("runs/large", &mut |part| read.extend_from_slice(part))
            .unwrap();
        assert!(read == content, "{bytes} bytes");
        assert_eq!(objects.info("runs/large").unwrap().bytes, bytes as u64);
        for (start, end) in [(0, bytes), (bytes / 3, bytes / 2), (bytes / 2, bytes)] {
            if start < end {
                let part = objects.get_part("runs/large", start as u64, end - start);
                assert!(part.unwrap() == content[start..end], "{start}..{end}");
            }
        }
    }
    let gone = objects.get_part("runs/gone", 0, 9).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    let (_one, one) = node(&objects);
    let (_two, two) = node(&objects);
    let run = write_run(&one, 300_000).unwrap();
    verify_run(&two, &run).unwrap();
    verify_on_disk(&two, &run, &mut || ()).unwrap();
    // A server that keeps parts, and one that has room for none.
    for room in [64 << 20, 0] {
        let directory = tempfile::tempdir().unwrap();
        let disk = Arc::new(tallyring_archive::OsDisk::new(directory.path()).unwrap());
        let cache = PartCache::open(disk.clone(), room).unwrap();
        let server = Blobs::over(disk, Arc::new(cache.over(objects.clone())));
        verify_run(&server, &run).unwrap();
        let kept = std::fs::read_dir(directory.path().join("parts")).unwrap();
        assert_eq!(kept.count() > 0, room > 0);
    }
}

#[test]
fn of_many_who_race_for_a_key_one_gets_it_and_all_read_its_bytes() {
    let Some(objects) = bucket("of_many_who_race_for_a_key") else {
        return;
    };
    for round in 0..30 {
        let key = format!("manifests/manifest-{round:08}");
        let put = |writer: u8| objects.put_if_absent(&key, &[writer; 1_000]).unwrap();
        let won: Vec<bool> = std::thread::scope(|scope| {
            let racing: Vec<_> = (0..8)
                .map(|writer| scope.spawn(move || put(writer)))
                .collect();
            racing.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let winner = won.iter().position(|&won| won).unwrap();
        assert_eq!(won.iter().filter(|&&won| won).count(), 1, "{won:?}");
        let mut bytes = Vec::new();
        objects
            .get(&key, &mut |part| bytes.extend_from_slice(part))
            .unwrap();
        assert_eq!(bytes, [winner as u8; 1_000]);
    }
}

#[test]
fn lists_go_on_behind_a_key_and_what_is_missing_is_told_so() {
    let Some(objects) = bucket("lists_go_on_behind_a_key") else {
        return;
    };
    let gone =
        |refused: std::io::Result<()>| assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotFound);
    gone(objects.get("rules/00", &mut |_| panic!("a part of what is not there")));
    gone(objects.info("rules/00").map(drop));
    objects.remove("rules/00").unwrap();
    assert_eq!(objects.list("rules", "").unwrap(), []);
    for number in 0..5 {
        objects
            .put_if_absent(&format!("rules/{number:02}"), b"list")
            .unwrap();
    }
    objects.put_if_absent("rules2", b"no member").unwrap();
    let keys = |after: &str| -> Vec<String> {
        let listed = objects.list("rules", after).unwrap();
        assert!(
            listed
                .iter()
                .all(|(_, info)| info.bytes == 4 && info.modified_ms > 0)
        );
        listed.into_iter().map(|(key, _)| key).collect()
    };
    assert_eq!(
        keys(""),
        ["rules/00", "rules/01", "rules/02", "rules/03", "rules/04"]
    );
    assert_eq!(keys("rules/02"), ["rules/03", "rules/04"]);
    assert_eq!(keys("rules/04"), [""; 0]);
    objects.remove("rules/03").unwrap();
    assert_eq!(keys("rules/02"), ["rules/04"]);
}

#[tokio::test]
async fn requests_are_answered_on_a_thread_of_another_runtime() {
    let Some(objects) = bucket("requests_are_answered_on_a_thread_of_another_runtime") else {
        return;
    };
    assert!(objects.put_if_absent("STORE", b"identity").unwrap());
    assert!(!objects.put_if_absent("STORE", b"identity").unwrap());
}

#[test]
fn the_bucket_keeps_what_a_store_relies_on() {
    let Some(objects) = bucket("the_bucket_keeps_what_a_store_relies_on") else {
        return;
    };
    let now_ms = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        i64::try_from(now.as_millis()).unwrap()
    };
    let found = check_bucket(&*objects, "test", now_ms);
    let is_ok = |finding: &Finding| finding.standing == Standing::Ok;
    assert!(found.iter().all(is_ok), "{found:#?}");
    assert_eq!(objects.list("probe", "").unwrap(), []);
}
