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
fn holds_that_another_strand_has_shown_are_read_and_written_as_they_were() {
    let shown = |id, strand, epoch, sequence| {
        let before = Offset { epoch, sequence };
        Record::HoldShown(ShownHold { id, strand, before })
    };
    let id = 0x0a1b_2c3d_4e5f_6071_8293_a4b5_u128;
    let records = vec![
        shown(id, 2, 3, 4_711),
        shown(u128::MAX, u32::MAX, u32::MAX, u64::MAX),
    ];
    for bytes in kept("log-records-hold-shown.txt", records) {
        assert_eq!(bytes[0], 38);
        assert!(decode_all(&bytes[..bytes.len() - 1], 1).is_err());
    }
}

#[test]
fn marks_are_read_and_written_as_they_were() {
    kept("log-records-mark.txt", vec![Record::Mark]);
    assert!(decode_all(&[33, 0], 1).is_err(), "a mark has no fields");
}

#[test]
fn consumed_topics_are_read_and_written_as_they_were() {
    let consumed = |partition, next| {
        let of = TopicPartition {
            topic: "clicks".into(),
            topic_id: "kGdLlXrKQdGWZlqyhPEwNw".into(),
            cluster: "5L6g3nShT-eMCtK--X86sw".into(),
            partition,
        };
        Record::Consumed(Consumed { of, next })
    };
    let records = vec![consumed(0, 4_711), consumed(u32::MAX, u64::MAX)];
    for bytes in kept("log-records-consumed.txt", records) {
        assert_eq!(bytes[0], 37);
        assert!(decode_all(&bytes[..bytes.len() - 1], 1).is_err());
        let no_topic = [&[37, 0][..], &bytes[8..]].concat();
        assert!(decode_all(&no_topic, 1).is_err());
    }
}

#[test]
fn api_keys_are_read_and_written_as_they_were() {
    let key = KeyEntry {
        id: "2bq4xyz7".into(),
        secret_hash: std::array::from_fn(|at| at as u8),
        scopes: vec![Scope::Write, Scope::Read],
        namespaces: Some(vec!["l".into()]),
        login: Some("orofrog".into()),
        limit: Some(100),
        max_n: Some(1_000_000),
        identity: Some("redirectors".into()),
        note: Some("of the redirector".into()),
        created_ms: 1_331_923_247_000,
        revoked_ms: Some(1_331_985_000_000),
        shared: None,
    };
    let plain = KeyEntry {
        namespaces: None,
        login: None,
        limit: None,
        max_n: None,
        identity: None,
        note: None,
        revoked_ms: None,
        ..key.clone()
    };
    let keys = [key, plain].map(|key| Record::Key(Box::new(key)));
    for bytes in kept("log-records-key.txt", keys.to_vec()) {
        assert_eq!(bytes[0], 34);
        assert!(decode_all(&bytes[..bytes.len() - 1], 1).is_err());
        let no_id = bytes.iter().map(|byte| match byte {
            b'z' => b' ',
            byte => *byte,
        });
        let no_id: Vec<u8> = no_id.collect();
        assert!(decode_all(&no_id, 1).is_err(), "an id is a name");
    }
}

#[test]
fn shares_are_read_and_written_as_they_were() {
    let share = |key: Option<&str>, revoked_ms| KeyEntry {
        namespaces: Some(vec!["l".into()]),
        note: Some("for the printer".into()),
        revoked_ms,
        shared: Some(Shared {
            key: key.map(Into::into),
            expires_ms: 1_334_515_247_000,
        }),
        ..KeyEntry::new(
            "2bq4xyz7".into(),
            std::array::from_fn(|at| at as u8),
            Vec::new(),
            1_331_923_247_000,
        )
    };
    let shares = [
        share(Some("abc"), None),
        share(None, Some(1_331_985_000_000)),
    ];
    let records = shares.map(|share| Record::Key(Box::new(share)));
    for bytes in kept("log-records-share.txt", records.to_vec()) {
        assert_eq!(bytes[0], 41);
        assert!(decode_all(&bytes[..bytes.len() - 1], 1).is_err());
        let as_key = [&[34], &bytes[1..]].concat();
        assert!(decode_all(&as_key, 1).is_err(), "a share is no key");
    }
    let scoped = KeyEntry {
        scopes: vec![Scope::Read],
        ..share(None, None)
    };
    let of_all = KeyEntry {
        namespaces: None,
        ..share(None, None)
    };
    for wrong in [scoped, of_all] {
        let mut bytes = Vec::new();
        Record::Key(Box::new(wrong)).encode(&mut bytes);
        assert!(decode_all(&bytes, 1).is_err());
    }
}

#[test]
fn the_beginning_is_read_and_written_as_it_was() {
    let record = Record::BeganWith(Schema::default_clicks());
    for bytes in kept("log-records-began-with.txt", vec![record]) {
        assert_eq!(bytes[0], 35);
        assert!(decode_all(&bytes[..bytes.len() - 1], 1).is_err());
    }
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

#[test]
fn deletes_are_read_and_written_as_they_were() {
    let delete = |key: &str, undo| {
        Record::Delete(Delete {
            namespace: "l".into(),
            key: key.into(),
            from: day("2012-03-16"),
            to: day("2012-04-02"),
            undo,
            reason: "a crawler".into(),
            actor: "2bq4xyz7".into(),
        })
    };
    let records = vec![delete("abc", false), delete("日本 語", true)];
    for bytes in kept("log-records-delete.txt", records) {
        assert_eq!(bytes[0], 40);
        assert!(decode_all(&bytes[..bytes.len() - 1], 1).is_err());
        let mut other_flag = bytes.clone();
        other_flag[1] = 2;
        assert!(decode_all(&other_flag, 1).is_err());
        // The days stand before the reason of nine bytes and the key of eight.
        let days = bytes.len() - 9 - 10 - 4;
        let (first, last) = (&bytes[days..days + 2], &bytes[days + 2..days + 4]);
        let turned = [&bytes[..days], last, first, &bytes[days + 4..]].concat();
        assert!(
            decode_all(&turned, 1).is_err(),
            "the last day is before the first"
        );
    }
}

#[test]
fn final_versions_are_read_and_written_as_they_were() {
    let sums = FinalSums {
        before: 3 << 70,
        causes: BTreeMap::from([
            ("duplicate_beyond_window".to_owned(), -1),
            ("filtered_by:bots".to_owned(), -(1 << 71)),
        ]),
        after: (1 << 70) - 1,
        gross: 3 << 70,
        undecided: 2,
    };
    let version = |version, types| LoggedFinal {
        day: day("2012-03-16"),
        version,
        at_ms: 1_332_158_400_000,
        upto: 4_711,
        ids_from: 7,
        rules: "5d41402abc4b2a76b9719d911017c592".into(),
        content: HEXLOWER.encode(&std::array::from_fn::<u8, 32, _>(|at| at as u8)),
        types,
        forced: false,
        actor: None,
    };
    let types = BTreeMap::from([
        ("click".to_owned(), sums),
        ("increment".to_owned(), FinalSums::default()),
    ]);
    let by_itself = vec![version(1, types), version(3, BTreeMap::new())];
    let forced = by_itself.iter().map(|version| LoggedFinal {
        forced: true,
        ..version.clone()
    });
    let ordered = by_itself.iter().map(|version| LoggedFinal {
        forced: version.version == 3,
        actor: Some("2bq4xyz7".into()),
        ..version.clone()
    });
    let ordered = ordered.map(Record::Final).collect();
    let forced = forced.map(Record::Final).collect();
    let by_itself = by_itself.into_iter().map(Record::Final).collect();
    let golden = [
        kept("log-records-final.txt", by_itself),
        kept("log-records-final-forced.txt", forced),
        kept("log-records-final-ordered.txt", ordered),
    ];
    for bytes in golden.into_iter().flatten() {
        assert!(decode_all(&bytes, 1).is_ok());
        // The version is the third number: the number of the day has two bytes.
        let mut no_version = bytes.clone();
        no_version[3] = 0;
        let mut no_rules = bytes.clone();
        let rules = bytes.windows(4).position(|part| part == b"5d41");
        no_rules[rules.unwrap()] = b'x';
        for wrong in [no_version, no_rules, bytes[..bytes.len() - 1].to_vec()] {
            assert!(decode_all(&wrong, 1).is_err(), "{wrong:?}");
        }
    }
}

fn dataset(days: BTreeMap<String, Vec<(Day, Day)>>) -> LoggedDataset {
    LoggedDataset {
        name: "clicks-2011".into(),
        at_ms: 1_332_158_400_000,
        rows: 4_711,
        content: HEXLOWER.encode(&std::array::from_fn::<u8, 32, _>(|at| at as u8)),
        days,
    }
}

#[test]
fn datasets_that_are_gone_are_read_and_written_as_they_were() {
    let span = (day("2011-05-01"), day("2011-05-31"));
    let gone = Record::DatasetGone(DatasetGone {
        dataset: dataset(BTreeMap::from([("l".to_owned(), vec![span])])),
        reason: "the disk with it burnt".into(),
        actor: "2bq4xyz7".into(),
    });
    for bytes in kept("log-records-dataset-gone.txt", vec![gone]) {
        assert_eq!(bytes[0], 36);
        assert!(decode_all(&bytes[..bytes.len() - 1], 1).is_err());
    }
}

#[test]
fn final_datasets_are_read_and_written_as_they_were() {
    let span = |first, last| (day(first), day(last));
    let days = BTreeMap::from([
        ("l".to_owned(), vec![span("2011-05-01", "2011-05-31")]),
        (
            "u".to_owned(),
            vec![
                span("2011-05-01", "2011-05-01"),
                span("2011-05-03", "2011-06-30"),
            ],
        ),
    ]);
    let known = dataset(days);
    assert!(known.has("u", day("2011-05-03")) && !known.has("u", day("2011-05-02")));
    assert!(known.has("l", day("2011-05-02")) && !known.has("d", day("2011-05-02")));
    assert_eq!(known.span(), Some(span("2011-05-01", "2011-06-30")));
    let records = [known, dataset(BTreeMap::new())].map(Record::Dataset);
    for bytes in kept("log-records-dataset.txt", records.to_vec()) {
        assert!(decode_all(&bytes, 1).is_ok());
        assert!(decode_all(&bytes[..bytes.len() - 1], 1).is_err());
    }
    let mut overlap = Vec::new();
    let spans = vec![
        span("2011-05-01", "2011-05-03"),
        span("2011-05-03", "2011-05-04"),
    ];
    Record::Dataset(dataset([("l".to_owned(), spans)].into())).encode(&mut overlap);
    assert!(decode_all(&overlap, 1).is_err());
}
