//! The rules of time zones that a running server takes from a folder.

use tallyring_tests::server::{Server, tallyring_ok};
use tempfile::TempDir;

#[test]
fn newer_rules_of_a_folder_count_and_the_status_names_them() {
    let directory = TempDir::new().unwrap();
    let folder = directory.path().join("zoneinfo");
    std::fs::create_dir_all(folder.join("America")).unwrap();
    // Version 1 of the format: no transitions, one offset of 2 hours, with the name TST.
    let mut compiled = b"TZif\0".to_vec();
    compiled.extend([0; 15]);
    for count in [0_u32, 0, 0, 0, 1, 4] {
        compiled.extend(count.to_be_bytes());
    }
    compiled.extend(7_200_i32.to_be_bytes());
    compiled.extend([0, 0]);
    compiled.extend(b"TST\0");
    std::fs::write(folder.join("America/Havana"), compiled).unwrap();
    std::fs::write(folder.join("America/Nome"), "TZif, and nothing more").unwrap();
    std::fs::write(folder.join("version"), "2099a\n").unwrap();
    let data = directory.path().join("data");
    let server = Server::start_with(("TZDIR", &folder), &data, &[]);
    for (zone, offset) in [
        ("America/Havana", "+02:00"),
        ("America/Nome", "-09:00"),
        ("Asia/Tokyo", "+09:00"),
    ] {
        let path = format!("/v1/l/abc/counts?units=1&to=2026-01-15T12:00:00Z&timezone={zone}");
        let answer = server.get_json(&path);
        let from = answer["from"].as_str().unwrap();
        assert!(from.ends_with(offset), "{zone}: {answer}");
    }
    let rules = &server.status()["zone_rules"];
    assert_eq!(rules["version"], "2099a");
    assert_eq!(rules["source"], folder.to_str().unwrap());
    let status = tallyring_ok(&["status", "--data", data.to_str().unwrap()]);
    let line = format!("zones     rules 2099a, {}\n", folder.display());
    assert!(status.ends_with(&line), "{status}");
    server.terminate();
}
