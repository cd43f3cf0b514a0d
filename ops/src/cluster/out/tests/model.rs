//! Two nodes tell of two strands, each as far as it has counted them, and each as long as it believes that it writes.
//! Brokers fail at any call, and at any call one node may hang while the other one goes on.

use std::sync::atomic::AtomicBool;

use tempfile::TempDir;

use super::*;

const STRANDS: usize = 2;
const STEPS: usize = 80;

#[test]
fn of_two_tellers_and_several_strands_the_highest_version_is_the_count() {
    for seed in 0..16 {
        let outside = Arc::new(Outside::new(seed));
        outside.take_over(0);
        for _ in 0..STEPS {
            outside.append();
            let node = outside.below(2);
            outside.deliver(node);
            outside.round(node);
            match outside.below(16) {
                0 => outside.take_over(node),
                1 => outside.compact(),
                2 => outside.arrive(),
                _ => {}
            }
        }
        outside.check(seed);
    }
}

#[test]
fn a_deposed_teller_sends_no_older_sum_with_a_higher_version() {
    let outside = Outside::calm([&["a", "b", "b", "b"], &["a"]]);
    // One node lacks the second increment of the first key, and the other one has counted less in all.
    outside.count(0, [4, 0]);
    outside.count(1, [1, 1]);
    outside.round(1);
    outside.round(0);
    outside.check(0);
}

#[test]
fn a_teller_waits_until_it_has_all_that_was_told_before() {
    let outside = Outside::calm([&["a", "b"], &["a"]]);
    // Both nodes have counted as much, and each what the other one lacks.
    outside.count(0, [1, 1]);
    outside.count(1, [2, 0]);
    outside.round(0);
    // It ended before it could keep how far it was.
    outside.progress.lock().pop();
    outside.round(1);
    outside.check(0);
}

/// The brokers, and the nodes.
struct Outside {
    state: Mutex<u64>,
    clock: Arc<TestClock>,
    /// Time and key of each increment, by strand.
    logs: Mutex<[Vec<(i64, String)>; STRANDS]>,
    nodes: [Node; 2],
    messages: Mutex<Vec<OutMessage>>,
    /// Messages that come after their sender gave up.
    late: Mutex<Vec<OutMessage>>,
    progress: Mutex<Vec<Kept>>,
    /// True while one node goes on because the other one hangs.
    hangs: AtomicBool,
    /// True when nothing fails any more.
    is_calm: AtomicBool,
}

#[derive(Clone)]
struct Kept {
    offset: usize,
    teller: usize,
    progress: Vec<u8>,
}

struct Node {
    directory: TempDir,
    held: Mutex<Option<Held>>,
    telling: Mutex<Option<Telling<Handle>>>,
}

struct Held {
    stores: Arc<Stores>,
    /// Increments that were counted of each strand.
    counted: [usize; STRANDS],
}

/// The topics as one teller opened them.
struct Handle {
    outside: Arc<Outside>,
    node: usize,
    read: usize,
}

impl Outside {
    fn new(seed: u64) -> Self {
        let clock = Arc::new(TestClock(AtomicI64::new(START)));
        let base = tempfile::tempdir().unwrap();
        // All strands of all nodes are of one identity.
        drop(open(base.path(), &clock));
        let node = || {
            let directory = tempfile::tempdir().unwrap();
            for strand in 0..STRANDS {
                copy(base.path(), &directory.path().join(strand.to_string()));
            }
            Node {
                directory,
                held: Mutex::default(),
                telling: Mutex::default(),
            }
        };
        Self {
            state: Mutex::new(seed),
            nodes: [node(), node()],
            clock,
            logs: Mutex::default(),
            messages: Mutex::default(),
            late: Mutex::default(),
            progress: Mutex::default(),
            hangs: AtomicBool::new(false),
            is_calm: AtomicBool::new(false),
        }
    }

    /// Nothing fails. The first node tells, and the second one took over and has not told yet. These keys come in each
    /// strand then, in one settled hour.
    fn calm(keys: [&[&str]; STRANDS]) -> Arc<Self> {
        let outside = Arc::new(Self::new(0));
        outside.is_calm.store(true, Ordering::Relaxed);
        outside.take_over(0);
        outside.round(0);
        outside.take_over(1);
        let of_key = |key: &&str| (START - 34 * HOUR, (*key).to_owned());
        *outside.logs.lock() = keys.map(|keys| keys.iter().map(of_key).collect());
        outside
    }

    /// A number that looks random.
    fn below(&self, end: usize) -> usize {
        let mut state = self.state.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }

    /// An increment comes, and time goes on within a day, because a turn of the day could be at another place of a log
    /// on each node. Most increments change a settled bucket, which a few others change, too.
    fn append(&self) {
        let late = [0, 33 * HOUR, 34 * HOUR, 34 * HOUR][self.below(4)];
        let at = self.clock.0.fetch_add(60, Ordering::Relaxed) - late;
        let key = format!("key{}", self.below(2));
        self.logs.lock()[self.below(STRANDS)].push((at, key));
    }

    /// A node counts some of what came, of one strand more than of another.
    fn deliver(&self, node: usize) {
        let room = [0; STRANDS].map(|_: usize| [0, 0, 2, 9][self.below(4)]);
        self.count(node, room);
    }

    fn count(&self, node: usize, room: [usize; STRANDS]) {
        let mut held = self.nodes[node].held.lock();
        let Some(held) = held.as_mut() else { return };
        let logs = self.logs.lock();
        for (strand, log) in logs.iter().enumerate() {
            let new = log.iter().skip(held.counted[strand]).take(room[strand]);
            for (at, key) in new {
                count(&held.stores.all()[strand], *at, key);
                held.counted[strand] += 1;
                let applied = held.stores.all()[strand].live().applied();
                assert_eq!(
                    applied.sequence, held.counted[strand] as u64,
                    "records of all nodes are alike"
                );
            }
        }
    }

    fn round(&self, node: usize) {
        if let Some(telling) = self.nodes[node].telling.lock().as_mut() {
            let _ = telling.round();
        }
    }

    /// A node starts again, and takes strand 0 over. The other one hears nothing of that.
    fn take_over(self: &Arc<Self>, node: usize) {
        let epoch = |node: &Node| {
            let held = node.held.lock();
            let epoch = |held: &Held| held.stores.first().intake().epoch().unwrap();
            held.as_ref().map_or(0, epoch)
        };
        let newest = self.nodes.iter().map(epoch).max();
        let of = &self.nodes[node];
        let mut telling = of.telling.lock();
        *telling = None;
        loop {
            let counted = of.held.lock().take().map(|held| held.counted);
            let strands = (0..STRANDS)
                .map(|strand| open(&of.directory.path().join(strand.to_string()), &self.clock));
            let stores = Arc::new(Stores::new(strands.collect()));
            *of.held.lock() = Some(Held {
                stores: Arc::clone(&stores),
                counted: counted.unwrap_or_default(),
            });
            if stores.first().intake().epoch() > newest {
                let outside = Arc::clone(self);
                let open = move || {
                    let outside = Arc::clone(&outside);
                    Ok(Handle {
                        outside,
                        node,
                        read: 0,
                    })
                };
                let config = config("from = \"2012-03-10T00:00:00Z\"");
                *telling = Some(Telling::new(stores, config, Box::new(open)));
                return;
            }
        }
    }

    /// The brokers forget what a teller kept before its newest progress.
    fn compact(&self) {
        let mut progress = self.progress.lock();
        let border = self.below(progress.len() + 1);
        let newest = [0, 1].map(|of| progress.iter().rposition(|kept| kept.teller == of));
        let mut at = 0..;
        progress.retain(|_| {
            let at = at.next();
            at >= Some(border) || newest.contains(&at)
        });
    }

    fn arrive(&self) {
        self.messages.lock().append(&mut self.late.lock());
    }

    /// A node hangs at a call, and meanwhile the other one goes on.
    fn hang(self: &Arc<Self>, node: usize) {
        if self.is_calm.load(Ordering::Relaxed) || self.hangs.swap(true, Ordering::Relaxed) {
            return;
        }
        if self.below(3) == 0 {
            self.append();
            self.deliver(node);
            self.deliver(1 - node);
            if self.below(8) == 0 {
                self.take_over(1 - node);
            }
            self.round(1 - node);
        }
        self.hangs.store(false, Ordering::Relaxed);
    }

    /// One of twelve ways in which a call goes; only the first four fail.
    fn way(&self) -> usize {
        match self.is_calm.load(Ordering::Relaxed) {
            true => 7,
            false => self.below(12),
        }
    }

    /// Checks what a reader of the topic knows when all was told.
    fn check(self: &Arc<Self>, seed: u64) {
        self.is_calm.store(true, Ordering::Relaxed);
        self.take_over(1);
        self.count(1, [usize::MAX; STRANDS]);
        self.clock.0.fetch_add(SETTLES * HOUR, Ordering::Relaxed);
        if let Some(telling) = self.nodes[1].telling.lock().as_mut() {
            while telling.round().expect("it is the last one") {}
        }
        self.round(0);
        self.arrive();
        let mut expected = BTreeMap::new();
        for (at, key) in self.logs.lock().iter().flatten() {
            let start = tallyring_api::calendar::rfc3339_utc(at - at.rem_euclid(HOUR));
            *expected.entry((key.clone(), start)).or_insert(0) += 1;
        }
        let told = counts(&self.messages.lock());
        assert_eq!(told, expected, "seed {seed}");
        for node in &self.nodes {
            *node.telling.lock() = None;
        }
    }
}

impl Handle {
    fn next(&mut self) -> Option<Vec<u8>> {
        let progress = self.outside.progress.lock();
        let next = progress.iter().find(|kept| kept.offset >= self.read)?;
        self.read = next.offset + 1;
        Some(next.progress.clone())
    }
}

impl Out for Handle {
    fn next_kept(&mut self) -> io::Result<Option<Vec<u8>>> {
        let next = self.next();
        if next.is_some() {
            return Ok(next);
        }
        self.outside.hang(self.node);
        match self.outside.way() {
            0 => Err(lost()),
            _ => Ok(self.next()),
        }
    }

    fn send(&mut self, messages: &[OutMessage]) -> io::Result<()> {
        self.outside.hang(self.node);
        let way = self.outside.way();
        let (come, late) = messages.split_at(match way {
            0 => 0,
            1 | 2 => messages.len() / 2,
            _ => messages.len(),
        });
        self.outside.messages.lock().extend(come.iter().cloned());
        if way == 2 {
            self.outside.late.lock().extend(late.iter().cloned());
        }
        if way < 4 { Err(lost()) } else { Ok(()) }
    }

    fn keep(&mut self, progress: &[u8]) -> io::Result<()> {
        self.outside.hang(self.node);
        let way = self.outside.way();
        if way > 0 {
            let mut kept = self.outside.progress.lock();
            let offset = kept.last().map_or(0, |kept| kept.offset + 1);
            kept.push(Kept {
                offset,
                teller: self.node,
                progress: progress.to_vec(),
            });
        }
        if way < 2 { Err(lost()) } else { Ok(()) }
    }
}
