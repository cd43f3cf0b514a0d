//! Which threads run first where more of them are ready than there are processors.
//!
//! Who answers a request or commits a group has little to do each time; who reads a large body has much, and would let
//! all others wait until its slice of time is over: some milliseconds, many times what they need.

use std::io;

use libc::{SCHED_BATCH, SCHED_OTHER, sched_attr};

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

/// Whether the calling thread, which runs soon, interrupts others when it wakes up, as is usual, or lets one that runs go on
/// until it waits for something or its slice is over (`SCHED_BATCH`). Its priority stays.
pub(crate) fn interrupt_others(does: bool) {
    told(
        "policy",
        set_policy(if does { SCHED_OTHER } else { SCHED_BATCH }),
    );
}

/// True when the calling thread interrupts others when it wakes up, as is usual; an operator may have had it otherwise.
pub(crate) fn interrupts_others() -> bool {
    // SAFETY: asks for a number only.
    unsafe { libc::sched_getscheduler(0) == SCHED_OTHER }
}

/// All works without, only later.
fn told(what: &str, outcome: io::Result<()>) {
    if let Err(error) = outcome {
        tracing::debug!(%error, "cannot set the {what} of a thread");
    }
}

/// Asks for slices of so many nanoseconds; 0 is what all others get.
fn set_slice(nanoseconds: u64) -> io::Result<()> {
    set(&with_slice(nanoseconds)?)
}

/// The calling thread as it is, but for its slice.
fn with_slice(nanoseconds: u64) -> io::Result<sched_attr> {
    Ok(sched_attr {
        size: u32::try_from(size_of::<sched_attr>()).expect("BUG: a small struct"),
        sched_policy: 0,
        sched_flags: libc::SCHED_FLAG_KEEP_POLICY as u64,
        sched_nice: rustix::process::getpriority_process(None)?,
        sched_priority: 0,
        sched_runtime: nanoseconds,
        sched_deadline: 0,
        sched_period: 0,
    })
}

/// Of the calling thread, which runs soon.
fn set_policy(policy: libc::c_int) -> io::Result<()> {
    set(&sched_attr {
        sched_policy: policy.unsigned_abs(),
        sched_flags: 0,
        ..with_slice(SHORT_SLICE_NS)?
    })
}

/// Of the calling thread.
fn set(attributes: &sched_attr) -> io::Result<()> {
    let attributes: *const sched_attr = attributes;
    // SAFETY: the kernel reads `size` bytes at the pointer, which are all of `attributes`, during the call.
    let outcome = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, attributes, 0) };
    match outcome {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_interrupts_nobody_keeps_its_nice_value_and_may_interrupt_again() {
        let thread = std::thread::spawn(|| {
            let before = nice();
            // Some systems, such as sandboxes, let no thread choose.
            let is_denied = set_policy(SCHED_BATCH).is_err();
            assert_eq!((interrupts_others(), nice()), (is_denied, before));
            interrupt_others(true);
            assert_eq!((interrupts_others(), nice()), (true, before));
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
