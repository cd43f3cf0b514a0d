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

#[cfg(test)]
mod tests {
    use super::*;

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
