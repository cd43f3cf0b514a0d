//! Which threads run first where more of them are ready than there are processors.
//!
//! Who answers a request or commits a group has little to do each time; who reads a large body has much, and would let
//! all others wait until its slice of time is over: some milliseconds, many times what they need.

use std::io;

/// The shortest slice that Linux takes, nanoseconds.
const SHORT_SLICE_NS: u64 = 100_000;

/// What makes a thread wait for the others: their turn comes three times as often.
const NICE: i32 = 5;

/// Lets the calling thread run soon after it wakes up, and not for long while others wait. Who asks for shorter slices of
/// time gets them earlier (EEVDF, Linux 6.12 and later; nothing changes on older ones).
pub fn run_soon() {
    told("slice", set_slice(SHORT_SLICE_NS));
}

/// Lets the calling thread run behind others from here on, for as long at once as is usual.
pub fn run_behind() {
    run_as_usual();
    let nice = rustix::process::nice(NICE);
    told("priority", nice.map(drop).map_err(io::Error::from));
}

/// Lets the calling thread run as long at once as is usual: for one that a thread which runs soon has started, as it, and
/// every process it starts, inherits the short slice.
pub fn run_as_usual() {
    told("slice", set_slice(0));
}

/// Whether the thread that commits interrupts others when it wakes up.
///
/// While groups are small it does, and answers come soon. When many come in the time of one sync, the processors have
/// enough to do: whoever was interrupted would stand behind the thread that commits, though the other processor has
/// nothing to do, so that more is counted, and answered sooner, when it lets others finish first (by a quarter on two
/// processors; at half that rate, tails would be twice as long).
#[derive(Debug, Default)]
pub struct Courtesy {
    /// Batches of a group, on average, times [`GROUPS`].
    sum: usize,
    gives_way: bool,
}

/// Groups that count for the average, about.
const GROUPS: usize = 8;
/// Batches of a group, on average, from which on it gives way.
const LARGE_GROUP: usize = 16;

impl Courtesy {
    /// After each group of so many batches, by the thread that commits them.
    pub fn note_group(&mut self, batches: usize) {
        if let Some(gives_way) = self.changed(batches) {
            let policy = if gives_way {
                libc::SCHED_BATCH
            } else {
                libc::SCHED_OTHER
            };
            told("policy", set_policy(policy));
        }
    }

    /// Whether it gives way from here on, if that is not as before.
    fn changed(&mut self, batches: usize) -> Option<bool> {
        self.sum = self.sum - self.sum / GROUPS + batches;
        let gives_way = self.sum >= LARGE_GROUP * GROUPS;
        (std::mem::replace(&mut self.gives_way, gives_way) != gives_way).then_some(gives_way)
    }
}

/// All works without, only later.
fn told(what: &str, outcome: io::Result<()>) {
    if let Err(error) = outcome {
        tracing::debug!(%error, "cannot set the {what} of a thread");
    }
}

/// Asks for slices of so many nanoseconds; 0 is what all others get.
fn set_slice(nanoseconds: u64) -> io::Result<()> {
    let attributes = libc::sched_attr {
        size: u32::try_from(size_of::<libc::sched_attr>()).expect("BUG: a small struct"),
        sched_policy: 0,
        sched_flags: libc::SCHED_FLAG_KEEP_POLICY as u64,
        // Of the calling thread, to stay as it is.
        sched_nice: rustix::process::getpriority_process(None)?,
        sched_priority: 0,
        sched_runtime: nanoseconds,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel reads `size` bytes at the pointer, which are all of `attributes`, during the call.
    let outcome = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    match outcome {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether the calling thread interrupts others when it wakes up (`SCHED_OTHER`) or lets them finish first
/// (`SCHED_BATCH`); its slice and its priority stay.
fn set_policy(policy: libc::c_int) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads the parameters during the call.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_commits_gives_way_while_groups_are_large() {
        let mut courtesy = Courtesy::default();
        let mut changes = |batches, groups| -> Vec<bool> {
            let each = 0..groups;
            each.filter_map(|_| courtesy.changed(batches)).collect()
        };
        assert!(changes(LARGE_GROUP - 1, 1_000).is_empty());
        assert_eq!(changes(2 * LARGE_GROUP, 100), [true]);
        assert_eq!(changes(1, 100), [false]);
        assert_eq!(changes(usize::MAX / 2, 1), [true]);
    }

    #[test]
    fn a_changed_policy_is_that_of_the_thread() {
        let thread = std::thread::spawn(|| {
            // SAFETY: asks for a number only.
            let policy = || unsafe { libc::sched_getscheduler(0) };
            let mut courtesy = Courtesy::default();
            courtesy.note_group(LARGE_GROUP * GROUPS);
            assert_eq!(policy(), libc::SCHED_BATCH);
            (0..10 * GROUPS).for_each(|_| courtesy.note_group(1));
            assert_eq!(policy(), libc::SCHED_OTHER);
        });
        thread.join().unwrap();
    }

    fn nice() -> i32 {
        rustix::process::getpriority_process(None).unwrap()
    }

    #[test]
    fn who_runs_behind_stays_there_whatever_slices_it_asks_for() {
        let thread = std::thread::spawn(|| {
            run_soon();
            let before = nice();
            run_behind();
            assert_eq!(nice(), (before + NICE).min(19));
            run_soon();
            assert_eq!(nice(), (before + NICE).min(19));
        });
        thread.join().unwrap();
    }
}
