//! A manifest of a store that has API keys.

use tallyring_records::{KeyEntry, Scope};

use super::{MANIFEST, check_written, manifest, read};
use crate::MemoryDisk;

#[test]
fn a_manifest_with_api_keys_is_read_and_written_as_it_was() {
    let mut manifest = manifest();
    let key = |id: &str, revoked_ms| KeyEntry {
        id: id.into(),
        secret_hash: std::array::from_fn(|at| at as u8),
        scopes: vec![Scope::Write, Scope::Read],
        namespaces: Some(vec!["l".into()]),
        login: Some("orofrog".into()),
        limit: Some(100),
        max_n: Some(1_000_000),
        identity: Some("redirectors".into()),
        note: Some("of the redirector".into()),
        created_ms: 1_331_923_247_000,
        revoked_ms,
    };
    let plain = KeyEntry {
        namespaces: None,
        login: None,
        limit: None,
        max_n: None,
        identity: None,
        note: None,
        ..key("a2bq4xyz", Some(1_331_985_000_000))
    };
    manifest.intake.keys = vec![plain, key("b2bq4xyz", None)];
    let disk = MemoryDisk::default();
    manifest.commit(&disk).unwrap();
    check_written("manifest-30", &disk.read(MANIFEST).unwrap());
    assert_eq!(read("manifest-30"), manifest);
}
