//! Books of final days are kept for some time, and the sums of their versions for ever.

use tallyring_realtime::{Error, Reconcile, State};

use crate::kept::{DAY, DAYS, FINAL_DAYS, Kept, LOAD, SHARDS, day};

impl Kept {
    /// Goes on to a day after, and merges a click of it.
    fn at_days(&mut self, days: i64) {
        let now = DAY + days * DAYS;
        self.clock.set(now * 1_000);
        self.store.intake().tick().expect("later");
        self.click(&("a".to_owned(), now - DAYS, "US".to_owned()));
        self.rebuild();
    }

    fn check_for_a_reconcile(&self) -> Result<(), Error> {
        let reconcile = Reconcile {
            day: day(),
            load: LOAD,
            rules: None,
            by: None,
            shards: SHARDS,
            level: 1,
            memory_bytes: 1 << 20,
        };
        reconcile.check(&self.disk.blobs(), &self.store.manifest())
    }
}

#[test]
fn the_books_of_a_final_day_go_in_time_and_the_sums_of_its_versions_stay() {
    let mut kept = Kept::new(1);
    kept.rebuild();
    kept.close_as_it_is();
    kept.count();
    kept.close_as_it_is();
    let (total, before) = (kept.final_total(DAY, Some(1)), kept.finals());
    let files = kept.final_files();
    kept.at_days(i64::from(FINAL_DAYS));
    assert_eq!(kept.finals(), before, "not yet");
    assert_eq!(kept.final_total(DAY, Some(1)), total);
    kept.check_for_a_reconcile().expect("the log is whole");
    kept.at_days(i64::from(FINAL_DAYS) + 1);
    for when in ["at once", "after a restart"] {
        assert_eq!(kept.final_files(), [""; 0], "{when}: {files:?}");
        for (version, before) in kept.finals().iter().zip(&before) {
            assert!(version.sums_only, "{when}");
            assert_eq!(version.types, before.types, "{when}");
            let gone = "the books of 2012-03-16 are no longer kept (`final.keep_days`); `/v1/finals/2012-03-16` has the sums \
                        of its versions by event type";
            for asked in [None, Some(version.version)] {
                assert_eq!(kept.final_total(DAY, asked), Err(gone.to_owned()), "{when}");
            }
        }
        assert_eq!(kept.state_of(DAY), State::Final, "{when}");
        let refused = kept.check_for_a_reconcile().expect_err("refused");
        assert!(
            refused.to_string().contains("no longer kept"),
            "{when}: {refused}"
        );
        kept.restart();
    }
}
