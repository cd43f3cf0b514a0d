//! Memory that this process may use: the machine's, or less where a control group bounds this process.

use std::fs;
use std::path::Path;

/// Memory that is assumed where the system reports none, bytes.
const UNKNOWN: u64 = 1 << 30;

/// Memory that this process may use together with all others of its control group, bytes; never 0.
///
/// The result is the least of the machine's memory, of the limits of the control group (version 2 or 1), and of the
/// limits of the groups above. Where none of them can be read, the result is 1 GiB. Limits may change, so a caller asks
/// once, at the start.
pub fn available() -> u64 {
    least(&|path| fs::read_to_string(path).ok())
}

/// The least limit that the files state. `read` returns the text of a file.
fn least(read: &dyn Fn(&Path) -> Option<String>) -> u64 {
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| machine(&text));
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().filter_map(|line| {
        // `4:memory:/a/b` in version 1, `0::/a/b` in version 2.
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        let (mount, files): (_, &[&str]) = if controllers.is_empty() {
            ("/sys/fs/cgroup", &["memory.max", "memory.high"])
        } else if controllers.split(',').any(|name| name == "memory") {
            ("/sys/fs/cgroup/memory", &["memory.limit_in_bytes"])
        } else {
            return None;
        };
        // Within a container the path may be the host's, which does not exist here; the mount itself is then the group.
        let path = Path::new(mount).join(group.trim_start_matches('/'));
        let above = path.ancestors().take_while(|path| path.starts_with(mount));
        let limits = above.flat_map(|directory| files.iter().map(|file| directory.join(file)));
        limits
            .filter_map(|file| read(&file)?.trim().parse().ok())
            .min()
    });
    machine
        .into_iter()
        .chain(limits)
        .filter(|&bytes| bytes > 0)
        .min()
        .unwrap_or(UNKNOWN)
}

fn machine(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: (&str, &str) = (
        "/proc/meminfo",
        "MemTotal:       8388608 kB\nMemFree: 1 kB\n",
    );

    #[test]
    fn memory_is_the_least_of_the_machine_and_of_every_group_above() {
        let v2 = ("/proc/self/cgroup", "0::/system.slice/tallyring.service\n");
        let v1 = (
            "/proc/self/cgroup",
            "5:cpu,memory:/docker/abc\n1:name=systemd:/x\n0::/\n",
        );
        let unlimited = (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "9223372036854771712\n",
        );
        let own = "/sys/fs/cgroup/system.slice/tallyring.service/memory.max";
        let high = "/sys/fs/cgroup/system.slice/tallyring.service/memory.high";
        let above = "/sys/fs/cgroup/system.slice/memory.max";
        let docker = "/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes";
        check(&[], UNKNOWN);
        check(&[MACHINE], 8 << 30);
        check(&[MACHINE, v2, (own, "max\n")], 8 << 30);
        check(
            &[MACHINE, v2, (own, "536870912\n"), (above, "max\n")],
            512 << 20,
        );
        check(
            &[MACHINE, v2, (own, "536870912\n"), (above, "134217728\n")],
            128 << 20,
        );
        check(
            &[MACHINE, v2, (own, "536870912\n"), (high, "268435456\n")],
            256 << 20,
        );
        check(&[MACHINE, v1, unlimited], 8 << 30);
        check(
            &[MACHINE, v1, unlimited, (docker, "268435456\n")],
            256 << 20,
        );
        // In a container that shows a path of the host, the mount itself is the group.
        let mount = "/sys/fs/cgroup/memory.max";
        check(&[MACHINE, v2, (mount, "134217728\n")], 128 << 20);
        check(&[MACHINE, v2, (own, "nonsense"), (above, "0")], 8 << 30);
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(available() > 16 << 20);
    }

    fn check(files: &[(&str, &str)], expected: u64) {
        let read = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        };
        assert_eq!(least(&read), expected, "{files:?}");
    }
}
