//! `tallyring-bench increments`: single durable increments against a plain handler.

use anyhow::Result;

use crate::effort::Effort;
use crate::report::Report;
use crate::request;
use crate::server::ServerProcess;
use crate::wrk;

const CONNECTIONS: usize = 64;
const KEYS: u64 = 200_000;

/// The calls, the first one of the plain handler.
const CALLS: [&str; 4] = [
    "plain handler",
    "/healthz, all layers",
    "increments of 3 counters",
    "increments of 10 counters",
];

/// The figures of one call's runs.
#[derive(Default)]
struct Figures {
    rate: Vec<f64>,
    processor_us: Vec<f64>,
    p99: Vec<f64>,
}

/// Measures plain handler, `/healthz` and both sizes of increments in turn, by each generator.
pub(crate) fn run(effort: &Effort) -> Result<Report> {
    let directory = effort.directory()?;
    let plain = ServerProcess::plain()?;
    let server = effort.serve(directory.path(), &[])?;
    let requests = [
        vec![request::get("/")],
        vec![request::get("/healthz")],
        request::increments(KEYS),
        request::clicks(KEYS),
    ];
    let has_wrk = wrk::is_installed();
    let (mut by_load, mut by_wrk): ([Figures; 4], [Figures; 4]) = Default::default();
    for _ in 0..effort.runs {
        for (call, requests) in requests.iter().enumerate() {
            let server = if call == 0 { &plain } else { &server };
            let outcome = effort.ask(server, CONNECTIONS, requests, None)?;
            by_load[call].rate.push(outcome.per_second);
            by_load[call].processor_us.push(outcome.processor_us);
            by_load[call].p99.push(outcome.milliseconds(99.0));
            if has_wrk {
                let outcome = wrk::run(server, CONNECTIONS, requests, effort.duration())?;
                by_wrk[call].rate.push(outcome.per_second);
                by_wrk[call].processor_us.push(outcome.processor_us);
            }
        }
    }
    let mut report = Report::new("increments");
    show(&mut report, "", &by_load);
    for (call, figures) in CALLS.iter().zip(&by_load).skip(2) {
        report.row(format!("{call}, p99, saturated"), "ms", &figures.p99);
    }
    if has_wrk {
        show(&mut report, "wrk: ", &by_wrk);
    }
    Ok(report)
}

/// Rates, their ratios to the plain handler's, and processor times.
fn show(report: &mut Report, by: &str, figures: &[Figures; 4]) {
    for (call, figures) in CALLS.iter().zip(figures) {
        report.row(format!("{by}{call}"), "req/s", &figures.rate);
    }
    let [plain, others @ ..] = figures;
    for (call, figures) in CALLS.iter().skip(1).zip(others) {
        let what = format!("{by}{call}, to the plain handler");
        report.ratio(what, &figures.rate, &plain.rate);
    }
    for (call, figures) in CALLS.iter().zip(figures) {
        let what = format!("{by}{call}, processor time");
        report.row(what, "µs/req", &figures.processor_us);
    }
}
