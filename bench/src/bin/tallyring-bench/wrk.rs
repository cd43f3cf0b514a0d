//! The load generator `wrk`, where it is installed: another program's figures beside those of [`crate::load`].

use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::server::ServerProcess;

/// The figures of a run.
pub(crate) struct Outcome {
    /// Good answers a second.
    pub per_second: f64,
    /// Processor time of the server for one answer, microseconds.
    pub processor_us: f64,
}

/// True when `wrk` can be started; says so otherwise.
pub(crate) fn is_installed() -> bool {
    let missing = match Command::new("wrk").arg("--version").output() {
        Err(error) => error.kind() == ErrorKind::NotFound,
        Ok(_) => false,
    };
    if missing {
        let _ = writeln!(std::io::stderr(), "skipped: wrk (not installed)");
    }
    !missing
}

/// Sends whole requests in turn on `connections` connections of one thread, as fast as answers come. Fails when wrk
/// fails, an answer is an error, or a connection fails.
pub(crate) fn run(
    server: &ServerProcess,
    connections: usize,
    requests: &[Vec<u8>],
    duration: Duration,
) -> Result<Outcome> {
    let script = tempfile::Builder::new().suffix(".lua").tempfile()?;
    std::fs::write(&script, script_of(requests)?).context("cannot write a script for wrk")?;
    let before = server.processor_seconds();
    let mut wrk = Command::new("wrk");
    wrk.args(["-t1", &format!("-c{connections}")]);
    // It takes whole seconds.
    wrk.arg(format!("-d{}", duration.as_secs_f64().ceil()));
    wrk.arg("-s").arg(script.path());
    wrk.arg(format!("http://{}/", server.address));
    let output = wrk.output().context("cannot start wrk")?;
    let taken = server.processor_seconds() - before;
    let said = String::from_utf8_lossy(&output.stdout);
    let Some((answers, per_second)) = figures(&said).filter(|_| output.status.success()) else {
        bail!("wrk says {said}{}", String::from_utf8_lossy(&output.stderr));
    };
    Ok(Outcome {
        per_second,
        processor_us: taken * 1e6 / answers,
    })
}

fn script_of(requests: &[Vec<u8>]) -> Result<String> {
    let mut script = String::from("local requests = {\n");
    for request in requests {
        // Rust and Lua escape the line ends of a request alike, and it has nothing else to escape.
        writeln!(script, "{:?},", str::from_utf8(request)?)?;
    }
    script.push_str(
        "}\nlocal at = 0\nfunction request()\n at = at % #requests + 1\n return requests[at]\nend\n",
    );
    Ok(script)
}

/// The number of answers and how many came in a second, when all were good.
fn figures(said: &str) -> Option<(f64, f64)> {
    if ["Non-2xx", "Socket errors"]
        .iter()
        .any(|bad| said.contains(bad))
    {
        return None;
    }
    let lines = || said.lines().map(str::trim);
    let answers = lines().find_map(|line| line.split_once(" requests in ")?.0.parse().ok())?;
    let rate = lines().find_map(|line| line.strip_prefix("Requests/sec:")?.trim().parse().ok())?;
    Some((answers, rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_where_all_answers_are_good() {
        let said = "Running 1s test @ http://127.0.0.1:1/\n  1 threads and 64 connections\n  \
                    130000 requests in 1.10s, 10.00MB read\nRequests/sec: 118181.82\nTransfer/sec: 9.09MB\n";
        assert_eq!(figures(said), Some((130_000.0, 118_181.82)));
        assert_eq!(
            figures(&format!("{said}  Non-2xx or 3xx responses: 1\n")),
            None
        );
        assert_eq!(
            figures(&format!("  Socket errors: connect 1\n{said}")),
            None
        );
        assert_eq!(figures("unable to connect"), None);
    }

    #[test]
    fn a_request_stands_in_a_script_as_lua_reads_it() {
        let script = script_of(&[b"GET / HTTP/1.1\r\n\r\n".to_vec()]).expect("text");
        assert!(
            script.contains("\n\"GET / HTTP/1.1\\r\\n\\r\\n\",\n"),
            "{script}"
        );
    }
}
