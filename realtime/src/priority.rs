//! Priorities and processors of threads: which threads run first where more threads are ready than there are
//! processors.
//!
//! A thread that answers a request or commits a group has little to do each time. A thread that reads a large body has
//! much to do, and would let all others wait until its slice of time is over: some milliseconds, many times their need.
//!
//! On busy processors, Linux 6.0 and later put a waking thread behind another one although a processor is free, because
//! the system no longer looks for one (`SIS_UTIL`). Threads that each stay on a processor of their own cannot stand
//! behind one another.

use std::cell::Cell;
use std::io;
use std::num::NonZero;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use libc::sched_attr;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The shortest slice that Linux takes, nanoseconds.
const SHORT_SLICE_NS: u64 = 100_000;

/// Niceness of threads that run behind the others, whose turns come three times as often.
const NICE: i32 = 5;

/// The lowest priority.
const NICE_MAX: i32 = 19;

/// How long a thread that runs behind others works before it gives way. Readers that give way to each other fetch their
/// memory into the cache again, so less would cost more.
const STRETCH: Duration = Duration::from_micros(200);

thread_local! {
    /// When the thread gave way last; none where it runs behind no others.
    static GAVE_WAY: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Lets the calling thread run soon after it wakes up, and not for long while others wait. Linux 6.12 and later (EEVDF)
/// run a thread earlier that asks for shorter slices; nothing changes on older systems.
pub fn run_soon() {
    log_failure("slice", set_slice(SHORT_SLICE_NS));
}

/// Lets the calling thread run behind others from here on. Its slices are short, too: a thread that gives way
/// ([`give_way`]) goes without the rest of its slice.
pub fn run_behind() {
    run_anywhere();
    step_back(NICE);
    GAVE_WAY.set(Some(Instant::now()));
}

/// Lets the calling thread, and the threads that it starts, run behind all others. Its slices are short: until its
/// slice is over, a thread keeps the processor from others whose slices are as long, such as those of the kernel that a
/// sync waits for.
pub fn run_last() {
    step_back(NICE_MAX);
}

/// Lets the system choose again which thread runs, if the calling one runs behind others ([`run_behind`]) and has not
/// given way for 200 µs. Long work calls this function again and again.
///
/// Linux compares what two threads have had when one of them wakes up, and then not before the next tick of its clock,
/// 1 to 10 ms later. A thread that answers often has had a few nanoseconds more than its share: the long work went on
/// until its end, one to three milliseconds, while short answers waited.
pub fn give_way() {
    if GAVE_WAY.get().is_some_and(|then| then.elapsed() >= STRETCH) {
        thread::yield_now();
        GAVE_WAY.set(Some(Instant::now()));
    }
}

/// Gives the calling thread slices of the usual length on any processor. A thread or process that [`run_soon`] or
/// [`run_on_its_own`] threads start inherits the short slice and the processor, and calls this function first.
pub fn run_as_usual() {
    log_failure("slice", set_slice(0));
    run_anywhere();
}

/// Keeps the calling thread, number `thread` of `threads`, on a processor of its own. Nothing changes where the process
/// may use more or fewer processors than `threads`: the system then moves threads away from processors that others keep
/// busy.
pub fn run_on_its_own(thread: usize, threads: usize) {
    let Some(all) = ALLOWED.get_or_init(|| sched_getaffinity(None).ok()) else {
        return;
    };
    if all.count() as usize != threads {
        return;
    }
    if let Some(own) = numbers(all).nth(thread) {
        log_failure("processor", set_affinity(&set_of([own])));
    }
}

/// Lets the calling thread run on any processor of the process again. A thread that [`run_on_its_own`] threads start
/// inherits their processor, and calls this function first.
pub fn run_anywhere() {
    // A thread that may use several processors has none of its own.
    let is_kept = sched_getaffinity(None).is_ok_and(|now| now.count() == 1);
    if let Some(Some(all)) = ALLOWED.get().filter(|_| is_kept) {
        // These processors may have been taken from the process since. The system reduces all processors to those it
        // may use.
        let every = || set_of(0..CpuSet::MAX_CPU);
        log_failure(
            "processor",
            set_affinity(all).or_else(|_| set_affinity(&every())),
        );
    }
}

/// Asks for short slices, and for a niceness that is higher by so much.
fn step_back(niceness: i32) {
    log_failure("slice", set_slice(SHORT_SLICE_NS));
    let nice = rustix::process::nice(niceness);
    log_failure("priority", nice.map(drop).map_err(io::Error::from));
}

/// The number of processors that the process may use, as found at the first call: a thread that is kept on one
/// processor would find no other.
pub fn processors() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get))
}

/// The processors that the process may use, as found by the first thread that got one of its own.
static ALLOWED: OnceLock<Option<CpuSet>> = OnceLock::new();

fn set_of(processors: impl IntoIterator<Item = usize>) -> CpuSet {
    let mut set = CpuSet::new();
    processors.into_iter().for_each(|number| set.set(number));
    set
}

fn numbers(set: &CpuSet) -> impl Iterator<Item = usize> {
    (0..CpuSet::MAX_CPU).filter(|&number| set.is_set(number))
}

fn set_affinity(processors: &CpuSet) -> io::Result<()> {
    Ok(sched_setaffinity(None, processors)?)
}

/// Logs a failure at level debug: everything works without these settings, only later.
fn log_failure(what: &str, outcome: io::Result<()>) {
    if let Err(error) = outcome {
        tracing::debug!(%error, "cannot set the {what} of a thread");
    }
}

/// Asks for slices of so many nanoseconds; 0 asks for the usual length.
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
    // SAFETY: the kernel reads `size` bytes at the pointer, all within `attributes`, during the call.
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
    fn threads_with_a_processor_each_keep_it_and_their_children_may_leave_it() {
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
            set_affinity(&own).ok()?;
            sched_getaffinity(None).ok().filter(|now| *now == own)
        });
        chosen.join().unwrap().map(|_| all)
    }

    fn nice() -> i32 {
        rustix::process::getpriority_process(None).unwrap()
    }

    #[test]
    fn a_thread_that_runs_behind_stays_there_whatever_slices_it_asks_for() {
        let thread = thread::spawn(|| {
            run_soon();
            let before = nice();
            run_behind();
            assert_eq!(nice(), (before + NICE).min(NICE_MAX));
            run_soon();
            assert_eq!(nice(), (before + NICE).min(NICE_MAX));
        });
        thread.join().unwrap();
    }

    #[test]
    fn a_thread_that_runs_last_starts_threads_that_run_last() {
        let thread = thread::spawn(|| {
            run_last();
            thread::spawn(nice).join().unwrap()
        });
        assert_eq!(thread.join().unwrap(), NICE_MAX);
    }
}
