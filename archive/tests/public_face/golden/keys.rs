//! Manifests of stores that have API keys, or shares.

use tallyring_records::{KeyEntry, Scope, Shared};

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
        shared: None,
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

#[test]
fn a_manifest_with_shares_is_read_and_written_as_it_was() {
    let mut manifest = manifest();
    let share = |id: &str, key: Option<&str>, revoked_ms| KeyEntry {
        namespaces: Some(vec!["l".into()]),
        revoked_ms,
        shared: Some(Shared {
            key: key.map(Into::into),
            expires_ms: 1_334_515_247_000,
        }),
        ..KeyEntry::new(
            id.into(),
            std::array::from_fn(|at| at as u8),
            Vec::new(),
            1_331_923_247_000,
        )
    };
    manifest.intake.keys = vec![
        share("a2bq4xyz", Some("abc"), None),
        share("b2bq4xyz", None, Some(1_331_985_000_000)),
    ];
    let disk = MemoryDisk::default();
    manifest.commit(&disk).unwrap();
    check_written("manifest-77", &disk.read(MANIFEST).unwrap());
    assert_eq!(read("manifest-77"), manifest);
}
