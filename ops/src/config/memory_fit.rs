//! Checks that the limits of memory fit the memory of the machine.

use tallyring_realtime::Options;

use crate::error::{CommandError, Result};

/// About how much memory a server takes besides the deltas, bytes: the program, connections, request bodies, a rebuild.
const BESIDES_BYTES: u64 = 64 << 20;

/// Logs the limits of memory and the memory of the machine, with a warning where the limits may not fit. Fails with a
/// usage error when memory would be full before the deltas are flushed.
pub(crate) fn check(options: &Options) -> Result<()> {
    let mib = |bytes: u64| bytes >> 20;
    let (memory, deltas) = (options.memory_bytes, options.delta_bytes_max);
    tracing::info!(
        memory_mib = mib(memory),
        deltas_mib = mib(deltas),
        cache_mib = mib(options.cache_bytes),
        queue_mib = mib(options.queue_bytes_max),
        reads_mib = mib(options.read_bytes_max as u64),
        "limits of memory"
    );
    let fitting = Options::for_memory(memory);
    let fix = format!(
        "set memory.deltas_mib = {} and memory.cache_mib = {} or less, or leave them out; or give this process more memory",
        mib(fitting.delta_bytes_max),
        mib(fitting.cache_bytes)
    );
    if deltas >= memory {
        return Err(CommandError::Usage(format!(
            "memory.deltas_mib = {} cannot be reached with {} MiB of memory, so nothing would be flushed before it ends: {fix}",
            mib(deltas),
            mib(memory)
        )));
    }
    if needed(options) > memory {
        tracing::warn!(
            needed_mib = mib(needed(options)),
            memory_mib = mib(memory),
            "the limits do not fit into the memory there is, and the system may end this process: {fix}"
        );
    }
    Ok(())
}

/// The memory at the worst moment, bytes: twice the deltas, because full deltas stay while they are flushed.
fn needed(options: &Options) -> u64 {
    let limits = [
        2 * options.delta_bytes_max,
        options.cache_bytes,
        options.queue_bytes_max,
        options.read_bytes_max as u64,
    ];
    limits.iter().sum::<u64>() + BESIDES_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_limits_fit_and_what_cannot_is_refused_with_the_fix() {
        for mib in [128, 256, 512, 1_024, 4_096, 65_536] {
            let options = Options::for_memory(mib << 20);
            assert!(needed(&options) <= mib << 20, "{mib} MiB: {options:?}");
            check(&options).expect("they fit");
        }
        let fixed = Options {
            delta_bytes_max: 512 << 20,
            ..Options::for_memory(256 << 20)
        };
        let refused = check(&fixed).expect_err("more than there is").to_string();
        for part in [
            "memory.deltas_mib = 512",
            "256 MiB",
            "memory.deltas_mib = 32",
            "memory.cache_mib = 16",
        ] {
            assert!(refused.contains(part), "{refused}");
        }
    }
}
