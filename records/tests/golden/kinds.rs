//! Kinds of log records that came one by one.

use super::*;

#[test]
fn holds_are_read_and_written_as_they_were() {
    let id = 0x0a1b_2c3d_4e5f_6071_8293_a4b5_u128;
    let records = || {
        let held = Record::Hold(LoggedHold {
            id,
            user: UserKey::from_bytes([7; 12]),
            what: "impression.home.ad=42.campaign=7".into(),
            until_ms: 1_331_923_267_250,
        });
        vec![held, Record::HoldEnded { id }]
    };
    let mut bytes = Vec::new();
    records()
        .iter()
        .for_each(|record| record.encode(&mut bytes));
    let kept = golden(
        "log-records-hold.txt",
        &format!("{}\n", HEXLOWER.encode(&bytes)),
    );
    let bytes = HEXLOWER.decode(kept.trim().as_bytes()).unwrap();
    assert_eq!(decode_all(&bytes, 2), Ok(records()));
}

#[test]
fn erasures_are_read_and_written_as_they_were() {
    let record = || Record::Erase {
        users: vec![UserKey::from_bytes([7; 12]), UserKey::from_bytes([9; 12])],
    };
    let mut bytes = Vec::new();
    record().encode(&mut bytes);
    let kept = golden(
        "log-records-erase.txt",
        &format!("{}\n", HEXLOWER.encode(&bytes)),
    );
    let bytes = HEXLOWER.decode(kept.trim().as_bytes()).unwrap();
    assert_eq!(decode_all(&bytes, 1), Ok(vec![record()]));
}

#[test]
fn further_stores_of_days_are_read_and_written_as_they_were() {
    let day = day("2012-03-16");
    let cut = Record::Cut {
        stores: vec![StoreId::Again(day, 4_711), StoreId::Late(7)],
    };
    kept("log-records-further.txt", vec![Record::Reopen { day }, cut]);
}

#[test]
fn voids_are_read_and_written_as_they_were() {
    let void = |identity: Option<&str>, at| {
        Record::Void(Void {
            identity: identity.map(Into::into),
            id: "id-1".into(),
            at,
            reason: "the campaign was never agreed on".into(),
            actor: INSTALLATION.into(),
        })
    };
    let Record::Void(asked) = void(Some("2bq4xyz7"), -1) else {
        panic!("a void");
    };
    let records = vec![
        void(None, 1_331_923_247),
        void(Some("2bq4xyz7"), -1),
        Record::VoidAsked(asked),
    ];
    for bytes in kept("log-records-void.txt", records) {
        // A reason of no byte, and an actor that is none.
        let at = bytes.len() - INSTALLATION.len();
        for wrong in [
            [&bytes[..at - 34], &[0, 1, b'k']].concat(),
            [&bytes[..at - 1], &[1, b' ']].concat(),
        ] {
            assert!(decode_all(&wrong, 1).is_err(), "{wrong:?}");
        }
    }
}
