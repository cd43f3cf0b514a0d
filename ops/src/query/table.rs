//! Answers of the read API as tables for people: local times, counts in groups of three digits, bars.

use jiff::ToSpan;
use jiff::civil::DateTime;
use serde_json::Value;
use tallyring_api::chart::exact;

use crate::escape::line;

/// Cells of the longest bar beside a count.
const BAR_CELLS: u64 = 20;
/// The columns in which times and counts end.
const TIME_CELLS: usize = 24;
const COUNT_CELLS: usize = 15;

/// Draws a series, a ranking or estimates from an answer of the API.
pub(super) fn table(answer: &Value) -> String {
    let mut out = String::new();
    if let Some(rows) = answer["counts"].as_array() {
        series(&mut out, answer, rows);
    }
    for (list, name) in [("values", "value"), ("keys", "key")] {
        match answer[list].as_array() {
            Some(rows) if answer["sort"].is_string() => keys(&mut out, answer, rows),
            Some(rows) => ranking(&mut out, answer, rows, name),
            None => {}
        }
    }
    if answer["overflow"] == Value::Bool(true) {
        line(
            &mut out,
            "note: ≥ stands before what reached 2^53−1, the most that is counted; it may be more",
        );
    }
    if answer["aligned"] == Value::Bool(false) {
        line(
            &mut out,
            "note: hours do not fit this zone's boundaries; each counts where it starts",
        );
    }
    out
}

fn text<'v>(answer: &'v Value, name: &str) -> &'v str {
    answer[name].as_str().unwrap_or_default()
}

/// `l/abc`, or `l` for all of its keys.
fn of(answer: &Value) -> String {
    let namespace = text(answer, "namespace");
    match text(answer, "key") {
        "" => namespace.to_owned(),
        key => format!("{namespace}/{key}"),
    }
}

fn series(out: &mut String, answer: &Value, rows: &[Value]) {
    let is_estimate = !answer["estimate"].is_null();
    let (what, name) = match is_estimate {
        true => ("users of ", "estimate"),
        false => ("", "count"),
    };
    let (unit, zone) = (text(answer, "unit"), text(answer, "timezone"));
    line(out, &format!("{what}{} by {unit} in {zone}", of(answer)));
    let numbers = numbers(rows, name);
    line(out, &sparkline(&numbers));
    let most = numbers.iter().copied().max().unwrap_or(0);
    for (row, &number) in rows.iter().zip(&numbers) {
        let start = start(text(row, "start"), unit, zone);
        let bar = bar(number, most);
        let number = exact(number);
        line(
            out,
            &format!("{start:<TIME_CELLS$}{number:>COUNT_CELLS$}  {bar}"),
        );
    }
    let sum = |name: &str| exact(answer[name].as_u64().unwrap_or(0));
    if is_estimate {
        let error = 100.0 * answer["relative_error"].as_f64().unwrap_or(0.0);
        let estimate = sum("estimate");
        let text = format!(
            "{:<TIME_CELLS$}{estimate:>COUNT_CELLS$}  ±{error:.1}%, each user once",
            "users"
        );
        line(out, &text);
    } else {
        let total = sum("total");
        line(
            out,
            &format!("{:<TIME_CELLS$}{total:>COUNT_CELLS$}", "total"),
        );
    }
}

fn ranking(out: &mut String, answer: &Value, rows: &[Value], name: &str) {
    let title = match text(answer, "subtotal_title") {
        "" => format!("top of {}", of(answer)),
        subtotal => format!("{} by {subtotal}", of(answer)),
    };
    let zone = text(answer, "timezone");
    line(out, &format!("{title}, {} in {zone}", range(answer)));
    let total = answer["total"].as_u64().unwrap_or(0);
    if total == 0 {
        return line(out, "nothing was counted");
    }
    let numbers = numbers(rows, "count");
    let most = numbers.iter().copied().max().unwrap_or(0);
    let mut row = |number: u64, bar: &str, name: &str| {
        let share = 100.0 * number as f64 / total.max(1) as f64;
        let number = exact(number);
        let cells = usize::try_from(BAR_CELLS).unwrap_or(0);
        line(
            out,
            &format!("{number:>COUNT_CELLS$}  {share:>5.1}%  {bar:<cells$}  {name}"),
        );
    };
    for (value, &number) in rows.iter().zip(&numbers) {
        let name = match value["parts"].as_array() {
            Some(parts) => {
                let parts: Vec<&str> = parts.iter().filter_map(Value::as_str).collect();
                parts.join(" × ")
            }
            None => text(value, name).to_owned(),
        };
        row(number, &bar(number, most), &name);
    }
    let other = answer["other"].as_u64().unwrap_or(0);
    if other > 0 {
        row(other, "", "(all others)");
    }
    row(total, "", "(total)");
}

/// Keys that were found, with their counts, and before these what they were before.
fn keys(out: &mut String, answer: &Value, rows: &[Value]) {
    let zone = text(answer, "timezone");
    let title = format!("keys of {}, {} in {zone}", of(answer), range(answer));
    line(out, &title);
    if rows.is_empty() {
        line(out, "no key was found");
    }
    let most = numbers(rows, "count").into_iter().max().unwrap_or(0);
    for (row, number) in rows.iter().zip(numbers(rows, "count")) {
        let (bar, key) = (bar(number, most), text(row, "key"));
        let before = row["before"].as_u64().map_or(String::new(), |before| {
            let before = exact(before);
            format!("{before:>COUNT_CELLS$} →")
        });
        let number = exact(number);
        let cells = usize::try_from(BAR_CELLS).unwrap_or(0);
        line(
            out,
            &format!("{before}{number:>COUNT_CELLS$}  {bar:<cells$}  {key}"),
        );
    }
    let next = answer["next"].as_str();
    match (answer["complete"] == Value::Bool(false), next) {
        (true, Some(_)) => line(
            out,
            "note: the search ended early, and goes on with the next page",
        ),
        (true, None) => line(out, "note: the search ended early; give a longer text"),
        (false, _) => {}
    }
    if let Some(next) = next {
        line(out, &format!("more: --page '{next}'"));
    }
}

fn numbers(rows: &[Value], name: &str) -> Vec<u64> {
    let numbers = rows.iter().map(|row| row[name].as_u64());
    numbers.map(Option::unwrap_or_default).collect()
}

/// The local time of a label such as `2012-03-10T00:00:00-05:00`.
fn local(label: &str) -> Option<DateTime> {
    label.get(..19)?.parse().ok()
}

/// The start of a bucket for people, with its offset where a clock may show one time twice.
fn start(label: &str, unit: &str, zone: &str) -> String {
    let Some(at) = local(label) else {
        return label.to_owned();
    };
    let format = match unit {
        "year" => "%Y",
        "month" => "%Y-%m",
        "minute" | "hour" => "%Y-%m-%d %H:%M",
        "second" => "%Y-%m-%d %H:%M:%S",
        _ => "%Y-%m-%d %a",
    };
    let shown = at.strftime(format).to_string();
    match unit {
        "minute" | "hour" | "second" if zone != "UTC" => format!("{shown} {}", &label[19..]),
        _ => shown,
    }
}

/// The dates of a ranking, or its times where its buckets are shorter than days.
fn range(answer: &Value) -> String {
    let (Some(from), Some(to)) = (local(text(answer, "from")), local(text(answer, "to"))) else {
        return format!("{} to {}", text(answer, "from"), text(answer, "to"));
    };
    let is_short = matches!(text(answer, "unit"), "minute" | "hour");
    let format = if is_short {
        "%Y-%m-%d %H:%M"
    } else {
        "%Y-%m-%d"
    };
    // The end is the first instant behind the range; a range of days shows its last day.
    let last = match is_short {
        true => to,
        false => to.checked_sub(1.second()).unwrap_or(to),
    };
    let (from, last) = (from.strftime(format), last.strftime(format));
    match (from.to_string(), last.to_string()) {
        (from, last) if from == last => from,
        (from, last) => format!("{from} to {last}"),
    }
}

/// A bar in eighths of a cell; a count above 0 has at least one eighth.
fn bar(count: u64, most: u64) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let scaled = u128::from(count) * u128::from(BAR_CELLS) * 8 / u128::from(most.max(1));
    let eighths = usize::try_from(scaled)
        .unwrap_or(0)
        .max(usize::from(count > 0));
    format!("{}{}", "█".repeat(eighths / 8), PARTS[eighths % 8])
}

/// With many numbers each sign shows the largest of several, so that the line fits.
fn sparkline(numbers: &[u64]) -> String {
    const CELLS_MAX: usize = 80;
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = u128::from(numbers.iter().copied().max().unwrap_or(0).max(1));
    let bar = |&number: &u64| {
        let height = (u128::from(number) * 7).div_ceil(most);
        BARS[usize::try_from(height).unwrap_or(7).min(7)]
    };
    let cells = numbers.chunks(numbers.len().div_ceil(CELLS_MAX).max(1));
    cells
        .filter_map(|cell| cell.iter().max())
        .map(bar)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_sparkline_spans_its_numbers() {
        assert_eq!(sparkline(&[0, 1, 7]), "▁▂█");
        assert_eq!(sparkline(&[]), "");
        assert_eq!(sparkline(&[u64::MAX, 0]), "█▁");
        let many: Vec<u64> = (0..10_000).collect();
        let line = sparkline(&many);
        assert_eq!(line.chars().count(), 80);
        assert!(line.starts_with('▂') && line.ends_with('█'), "{line}");
    }

    #[test]
    fn a_bar_shows_what_was_counted_however_little() {
        assert_eq!(bar(0, 10), "");
        assert_eq!(bar(1, 1_000_000), "▏");
        assert_eq!(bar(5, 10), "██████████");
        assert_eq!(bar(u64::MAX, u64::MAX), "█".repeat(20));
    }

    #[test]
    fn a_series_is_a_line_for_each_bucket() {
        let answer = json!({
            "namespace": "l", "key": "a\u{1b}[2J", "unit": "day", "timezone": "Europe/Berlin", "total": 12_345,
            "counts": [
                {"start": "2026-10-25T00:00:00+02:00", "count": 0},
                {"start": "2026-10-26T00:00:00+01:00", "count": 12_345},
            ],
            "aligned": true,
        });
        let expected = "\
l/a\\u{1b}[2J by day in Europe/Berlin
▁█
2026-10-25 Sun                        0
2026-10-26 Mon                   12,345  ████████████████████
total                            12,345
";
        assert_eq!(table(&answer), expected);
    }

    #[test]
    fn a_total_that_may_be_more_than_it_says_has_a_sign_and_a_note() {
        let most = (1_u64 << 53) - 1;
        let answer = json!({
            "namespace": "l", "key": "a", "unit": "day", "timezone": "UTC", "total": most, "overflow": true,
            "counts": [
                {"start": "2026-10-25T00:00:00+00:00", "count": most},
                {"start": "2026-10-26T00:00:00+00:00", "count": most - 1},
            ],
            "aligned": true,
        });
        let expected = "\
l/a by day in UTC
██
2026-10-25 Sun          ≥9,007,199,254,740,991  ████████████████████
2026-10-26 Mon          9,007,199,254,740,990  ███████████████████▉
total                   ≥9,007,199,254,740,991
note: ≥ stands before what reached 2^53−1, the most that is counted; it may be more
";
        assert_eq!(table(&answer), expected);
    }

    #[test]
    fn keys_have_what_they_were_before_and_say_how_to_go_on() {
        let answer = json!({
            "namespace": "l", "unit": "day", "timezone": "UTC", "sort": "rising", "complete": false, "aligned": true,
            "from": "2012-03-10T00:00:00+00:00", "to": "2012-03-17T00:00:00+00:00",
            "keys": [{"key": "a\u{1b}", "count": 1_500, "before": 20}], "next": "a",
        });
        let expected = "\
keys of l, 2012-03-10 to 2012-03-16 in UTC
             20 →          1,500  ████████████████████  a\\u{1b}
note: the search ended early, and goes on with the next page
more: --page 'a'
";
        assert_eq!(table(&answer), expected);
    }

    #[test]
    fn an_hour_that_comes_twice_has_its_offset() {
        for (unit, zone, expected) in [
            ("hour", "Europe/Berlin", "2026-10-25 02:00 +02:00"),
            ("hour", "UTC", "2026-10-25 02:00"),
            ("month", "Europe/Berlin", "2026-10"),
            ("year", "UTC", "2026"),
            ("mweek", "UTC", "2026-10-25 Sun"),
        ] {
            assert_eq!(start("2026-10-25T02:00:00+02:00", unit, zone), expected);
        }
    }

    #[test]
    fn a_ranking_has_shares_and_what_was_left_out_only_where_there_is_some() {
        let mut answer = json!({
            "namespace": "l", "key": "abc", "unit": "day", "timezone": "UTC", "subtotal": "c",
            "subtotal_title": "country", "from": "2012-03-10T00:00:00+00:00", "to": "2012-03-17T00:00:00+00:00",
            "total": 2_000, "values": [{"value": "US", "count": 1_500}, {"value": "-", "count": 250}], "other": 250,
        });
        let expected = "\
l/abc by country, 2012-03-10 to 2012-03-16 in UTC
          1,500   75.0%  ████████████████████  US
            250   12.5%  ███▎                  -
            250   12.5%                        (all others)
          2,000  100.0%                        (total)
";
        assert_eq!(table(&answer), expected);
        answer["other"] = json!(0);
        assert!(!table(&answer).contains("others"));
    }
}
