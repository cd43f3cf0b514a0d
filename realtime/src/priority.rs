//! Which threads run first where more of them are ready than there are processors, and where.
//!
//! Who answers a request or commits a group has little to do each time; who reads a large body has much, and would let
//! all others wait until its slice of time is over: some milliseconds, many times what they need.
//!
//! Where processors are busy, the system lets a thread that wakes up stand behind another one although a processor is free:
//! it no longer looks for one (`SIS_UTIL`, Linux 6.0 and later). Threads that stay on a processor each cannot stand behind
//! one another.

use std::io;
use std::num::NonZero;
use std::sync::OnceLock;
use std::thread;

use libc::sched_attr;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

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

/// Lets the calling thread run as long at once as is usual, on any processor: for one that a thread which runs soon has
/// started, as it, and every process it starts, inherits the short slice and the place.
pub fn run_as_usual() {
    told("slice", set_slice(0));
    run_anywhere();
}

/// Keeps the calling thread, one of so many, on a processor of its own. Nothing changes where the process may use more
/// processors than these threads, or fewer: which ones others keep busy is not known, and the system moves threads then.
pub fn run_on_its_own(thread: usize, threads: usize) {
    let Some(all) = ALLOWED.get_or_init(|| sched_getaffinity(None).ok()) else {
        return;
    };
    if all.count() as usize != threads {
        return;
    }
    if let Some(own) = numbers(all).nth(thread) {
        told("processor", place(&set_of([own])));
    }
}

/// Lets the calling thread run on any processor of the process again: for one that a thread with a processor of its own has
/// started, as it inherits the place.
pub fn run_anywhere() {
    // Who may use several has no processor of its own, and what the process may use by now, perhaps.
    let is_kept = sched_getaffinity(None).is_ok_and(|now| now.count() == 1);
    if let Some(Some(all)) = ALLOWED.get().filter(|_| is_kept) {
        // They may have been taken from the process since: then all that it has now, which the system takes of all.
        let every = || set_of(0..CpuSet::MAX_CPU);
        told("processor", place(all).or_else(|_| place(&every())));
    }
}

/// How many processors the process may use at once, as many as it was found to have at first: a thread that is kept on one
/// would find no other.
pub fn processors() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get))
}

/// What the process may use, as the first thread that got one of its own has found it.
static ALLOWED: OnceLock<Option<CpuSet>> = OnceLock::new();

fn set_of(processors: impl IntoIterator<Item = usize>) -> CpuSet {
    let mut set = CpuSet::new();
    processors.into_iter().for_each(|number| set.set(number));
    set
}

fn numbers(set: &CpuSet) -> impl Iterator<Item = usize> {
    (0..CpuSet::MAX_CPU).filter(|&number| set.is_set(number))
}

fn place(processors: &CpuSet) -> io::Result<()> {
    Ok(sched_setaffinity(None, processors)?)
}

/// All works without, only later.
fn told(what: &str, outcome: io::Result<()>) {
    if let Err(error) = outcome {
        tracing::debug!(%error, "cannot set the {what} of a thread");
    }
}

/// Asks for slices of so many nanoseconds; 0 is what all others get.
fn set_slice(nanoseconds: u64) -> io::Result<()> {
    let attributes = sched_attr {
        size: u32::try_from(size_of::<sched_attr>()).expect("BUG: a small struct"),
        sched_policy: 0,
        sched_flags: libc::SCHED_FLAG_KEEP_POLICY as u64,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_with_a_processor_each_keep_it_and_what_they_start_may_leave_it() {
        let Some(before) = allowed() else { return };
        let threads = before.count() as usize;
        let processors_before = processors();
        let mut used = CpuSet::new();
        for thread in 0..threads {
            let own = thread::spawn(move || {
                run_on_its_own(thread, threads);
                let started = thread::spawn(move || {
                    assert_eq!(processors(), processors_before);
                    run_anywhere();
                    assert_eq!(sched_getaffinity(None).unwrap(), before);
                });
                started.join().unwrap();
                sched_getaffinity(None).unwrap()
            });
            let own = own.join().unwrap();
            assert_eq!(own.count(), 1);
            numbers(&own).for_each(|number| used.set(number));
        }
        assert_eq!(used, before);
    }

    #[test]
    fn threads_that_are_not_one_a_processor_run_anywhere() {
        let Some(before) = allowed() else { return };
        let processors = before.count() as usize;
        for threads in [processors - 1, processors + 1] {
            let thread = thread::spawn(move || {
                run_on_its_own(0, threads);
                sched_getaffinity(None).unwrap()
            });
            assert_eq!(thread.join().unwrap(), before);
        }
    }

    /// The processors of the process; none where a thread cannot choose one, as in some sandboxes.
    fn allowed() -> Option<CpuSet> {
        let all = sched_getaffinity(None).ok()?;
        let own = set_of(numbers(&all).take(1));
        let chosen = thread::spawn(move || {
            place(&own).ok()?;
            sched_getaffinity(None).ok().filter(|now| *now == own)
        });
        chosen.join().unwrap().map(|_| all)
    }

    fn nice() -> i32 {
        rustix::process::getpriority_process(None).unwrap()
    }

    #[test]
    fn who_runs_behind_stays_there_whatever_slices_it_asks_for() {
        let thread = thread::spawn(|| {
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
