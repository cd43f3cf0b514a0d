//! A consumer of settled buckets, which keeps the newest version of each.

use std::collections::BTreeMap;

use tallyring_realtime::{ClosedReader, Reading, Store, View};

pub(crate) struct Consumer {
    namespace: String,
    cursor: String,
    settled: i64,
    width: i64,
    /// Version and count by key and start, Unix seconds.
    buckets: BTreeMap<(String, i64), (u64, u64)>,
}

impl Consumer {
    pub(crate) fn new(stores: Vec<&Store>, namespace: &str, now: i64) -> Self {
        let lives = stores.iter().map(|store| store.live());
        let view = View::over(lives, Reading::new(stores[0].read_budget()));
        let schema = view.schema().clone();
        let declared = schema.namespace(namespace).expect("declared");
        let reader = ClosedReader::of(stores, &view, declared, now);
        let cursor = reader.begin(None);
        Self {
            namespace: namespace.into(),
            cursor: reader.text_of(&cursor),
            settled: cursor.settled_until(),
            width: reader.grain().seconds(),
            buckets: BTreeMap::new(),
        }
    }

    /// Reads all pages there are.
    pub(crate) fn read_on(&mut self, stores: Vec<&Store>, view: &View<'_>, limit: usize, now: i64) {
        let schema = view.schema().clone();
        let declared = schema.namespace(&self.namespace).expect("declared");
        let reader = ClosedReader::of(stores, view, declared, now);
        self.width = reader.grain().seconds();
        loop {
            let cursor = reader.read_cursor(&self.cursor).expect("our own cursor");
            assert!(!reader.is_ahead(&cursor));
            if !reader.has_more(&cursor) {
                return;
            }
            let page = reader.page(cursor, limit).expect("a page");
            for bucket in page.buckets {
                let told = (page.version, bucket.count);
                let newest = self.buckets.entry((bucket.key, bucket.start)).or_default();
                *newest = told.max(*newest);
            }
            self.cursor = reader.text_of(&page.next);
            self.settled = page.next.settled_until();
        }
    }

    /// Checks that it knows the counts that another one knows, as far as both were told.
    pub(crate) fn compare(&self, other: &Self) {
        let settled = self.settled.min(other.settled);
        let told = |of: &Self| -> BTreeMap<(String, i64), u64> {
            let buckets = of.buckets.iter();
            let told = buckets.filter(|((_, start), _)| start + self.width <= settled);
            told.map(|(bucket, (_, count))| (bucket.clone(), *count))
                .collect()
        };
        assert_eq!(told(self), told(other), "{}", self.namespace);
    }
}
