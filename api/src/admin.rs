//! The routes of operators.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use tallyring_realtime::{NodeStatus, Options, Part, RingLabel, RulesStatus, Shown, Status, Store};
use tallyring_records::Schema;

use crate::access::off_thread;
use crate::alerts::AlertsState;
use crate::calendar::{ZoneRules, rfc3339_utc};
use crate::enrich::Enrich;
use crate::generations::{backup_json, job_json};
use crate::health::Health;
use crate::problem::Result;
use crate::read_only::{shown_json, shown_together};
use crate::reload::config_json;
use crate::state::{ApiState, Closed, Jobs};
use crate::write::rules::WriteRules;

/// State of the server
///
/// Ring, log, archive, the last rebuild, and the newest backup. `state` is `refusing` while increments are refused, as
/// `/readyz` says too. It is `degraded` where the last rebuild or the newest backup failed, the second copy of the log
/// cannot be written, more than seven days wait to be rebuilt, a file was found damaged, the disk has no room for a log
/// segment, the clock is not plausible, or the ring is more than a day ahead of it. `reasons` says why it is not `ok`,
/// a sentence each. The clock is not plausible (`clock_jumped`) while it is more than a day from `clock_plausible_at`,
/// when it was plausible last, and has not gone evenly for ten minutes: until then nothing is forgotten and the ring
/// does not turn. `progress` is that of the merge or of the backup that runs.
/// `evidence` tells whether the log keeps that of increments and events, and for how many days at least. `enrich` lists
/// the subtotals that are filled, and the file of countries; its `failure` says why a newer file is not in force.
/// `rules` tells what came of the rules for events since the server started: how many events were judged, how many of
/// them some rule could not decide for want of evidence, the share that was decided, and how many each rule filtered.
/// The `failure` of a list says why the newest content of its file is not in force, and `changed_at` when the content
/// in force replaced another one; it is null where that was at the start or before.
/// `config` tells of the configuration file, where there is one: when it was taken, why it is not in force as it is now
/// (`failure`), and which of its settings are in force after a restart only.
/// `read_only` is there for a server that shows files alone (`serve --read-only`): the manifest that it shows, when it
/// was written, until when everything that came is counted in its files, a newer state of the files that cannot be
/// shown (`waiting`: number of its manifest, or null, and why), and the server that writes the store, where that is
/// known. Where the store has several strands, `strands` has all that of each, and `counted_until` is the earliest.
/// `cluster` is there for a node of several; `may_write` of a node is false where it only follows, `rebuilds` is true
/// where it rebuilds for nodes that write, and `backs_up` where it makes backups while it writes. `untrusted` has a
/// sentence for each node that writes and to which TLS failed when this one asked last. A node that follows has no
/// `last_rebuild` and no `last_backup`: these are of the node that writes, which tells of none that was made before it
/// began to.
/// `kafka_in` tells of each topic that is consumed (`[kafka_in]`): why it is not, or not all of it (`error`), the item
/// that was skipped last, and for each partition the offset of the next message and how many wait (`lag`). It is null
/// where the server consumes none.
/// `alerts` has each alert (`[alerts.NAME]`): whether it is on and since when, until when it was judged, the count and
/// the expected one, and why it says nothing (`note`); each receiver with its `waiting` messages; and how many messages
/// were given up. It is null where none is declared, and on a node that does not write.
/// Each report (`[reports.NAME]`) stands there with the end of the last period that was told.
/// `zone_rules` tells the version of the rules of all time zones, and their source: `built in`, or the folder of the
/// system (or of `TZDIR`) that was newer when the server started.
#[utoipa::path(get, path = "/v1/admin/status", tag = "operate", responses(
    (status = 200, description = "The state", body = Object, example = json!({
        "now": "2012-03-16T18:40:47Z", "state": "ok", "reasons": [], "closed_without_final": { "days": 0, "first": null, "last": null },
        "clock_jumped": false, "clock_plausible_at": null,
        "generation": 3, "manifest": 41,
        "ring": {
            "today": "2012-03-16", "days_ahead": 0, "yesterday_store": "day-2012-03-15", "today_store": "day-2012-03-16",
            "tomorrow_store": "day-2012-03-17",
            "slots": [{
                "id": "day-2012-03-16", "position": "today", "counters": 12345, "runs": 2, "run_bytes": 1048576,
                "memory_bytes": 524288, "cut": false,
            }],
            "late": [],
        },
        "oplog": {
            "position": "1:1000000", "durable": "1:1000000", "lag_records": 0, "unflushed_records": 7, "bytes": 67108864,
            "max_bytes": 107374182400_u64, "bytes_a_day": 1048576, "max_full_in_days": null, "held_go_in_days": null,
        },
        "log_copy": {
            "path": "/mnt/second-disk/tallyring-log", "ack": "local", "behind_records": 0, "behind_bytes": 0,
            "behind_seconds": 0.0, "failure": null,
        },
        "ids": { "window_hours": 25, "in_memory": 2, "memory_bytes": 96 },
        "archive": {
            "pending_runs": 1, "file_bytes": 2048, "single_copy_bytes": 0, "damaged_files": [], "aside_files": [],
            "waiting_fixes": [],
            "minutes_from": null,
            "hours_from": null,
        },
        "memory": { "memory_bytes": 8589934592_u64, "deltas_bytes_max": 536870912, "cache_bytes_max": 268435456,
            "reads_bytes_max": 268435456, "reads_bytes": 0 },
        "disk": { "free_bytes": 1073741824, "full_in_days": null },
        "evidence": { "kept": true, "from": ["body"], "keep_days": 7 },
        "enrich": {
            "from_request": false,
            "fill": [{ "subtotal": "country", "source": "country" }],
            "geo": {
                "path": "/etc/tallyring/GeoLite2-City.mmdb", "type": "GeoLite2-City", "built_at": "2012-03-13T00:00:00Z",
                "failure": null,
            },
        },
        "rules": {
            "events": 10000, "undecided": 190, "decision_rate": 0.981,
            "filters": [{ "rule": "crawlers", "class": "general", "filtered": 1397 }],
            "lists": [{
                "name": "crawlers", "match": "user_agent",
                "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "entries": 4,
                "failure": null, "changed_at": null,
            }],
        },
        "config": {
            "path": "/etc/tallyring.toml", "taken_at": "2012-03-16T18:40:00Z", "failure": null, "needs_restart": [],
        },
        "kafka_in": {
            "clicks": {
                "error": null, "last_skipped": null,
                "partitions": [{ "partition": 0, "next": 4711, "lag": 3 }],
            },
        },
        "alerts": {
            "alerts": [{
                "name": "abc-quiet", "of": "l/abc", "kind": "drop", "on": true, "since": "2012-03-16T17:00:00Z",
                "judged_until": "2012-03-16T18:00:00Z", "count": 3, "expected": 40, "note": null,
            }],
            "reports": [{ "name": "links", "of": "l", "told_until": "2012-03-12T00:00:00Z" }],
            "receivers": [{ "name": "ops", "waiting": 0, "since": null, "failure": null }],
            "given_up": 0,
        },
        "zone_rules": { "version": "2026f", "source": "built in" },
        "backup_path": "/mnt/second-disk/tallyring",
        "last_rebuild": {
            "job": 7, "state": "running", "started_at": "2012-03-16T18:40:31Z", "ended_at": null, "generation": null,
            "error": null, "node": null, "progress": { "done_bytes": 524288, "total_bytes": 1048576 }, "files": null,
        },
        "last_backup": {
            "running": false, "progress": null, "ended_at": "2012-03-16T00:05:02Z", "generation": 3, "files_written": 4,
            "bytes_written": 2048, "error": null,
        },
    })),
))]
pub(crate) async fn status(State(state): State<ApiState>) -> Result<Json<Value>> {
    let consumed = state.admin.consuming.topics();
    let options = state.store().options();
    let mut asked = ask_each(&state).await?;
    let strands = (asked.len() > 1).then(|| strands_json(&asked, options));
    let health = Health::together(asked.iter().map(|asked| &asked.health));
    let Asked { status, jobs, .. } = asked.swap_remove(0);
    let (rules, writes) = (ZoneRules::chosen(), state.writes());
    let mut told = json!({
        "now": rfc3339_utc(state.now()),
        "state": health.state(),
        "reasons": health.reasons(),
        "closed_without_final": closed_json(&jobs.closed),
        "clock_jumped": status.clock_jumped,
        "clock_plausible_at": status.clock_plausible_at.map(rfc3339_utc),
        "generation": status.generation,
        "manifest": status.manifest,
        "ring": ring_json(&status),
        "oplog": oplog_json(&status, options.oplog_bytes_max),
        "log_copy": status.log_copy,
        "ids": {
            "window_hours": options.id_hours,
            "in_memory": status.ids_in_memory,
            "memory_bytes": status.ids_bytes,
        },
        "archive": archive_json(&status, state.admin.backup_path.is_some()),
        "memory": {
            "memory_bytes": options.memory_bytes,
            "deltas_bytes_max": options.delta_bytes_max,
            "cache_bytes_max": options.cache_bytes,
            "reads_bytes_max": options.read_bytes_max,
            "reads_bytes": state.store().read_budget().held(),
        },
        "disk": disk_json(&status),
        "evidence": evidence_json(&writes, options.log_days()),
        "enrich": enrich_json(&writes.enrich),
        "rules": rules_json(&status.rules, &state.store().schema()),
        "config": config_json(jobs.config.as_ref()),
        "kafka_in": (!consumed.is_empty()).then_some(consumed),
        "alerts": jobs.alerts.as_ref().map(AlertsState::json),
        "zone_rules": { "version": rules.version(), "source": rules.source() },
        "backup_path": state.admin.backup_path,
        "last_rebuild": jobs.rebuild.as_ref().map(job_json),
        "last_backup": jobs.backup.as_ref().map(backup_json),
    });
    if let Some(strands) = strands {
        told["strands"] = strands;
    }
    let mut told = with_part(state.store(), status.shown.as_ref(), told);
    if told["cluster"].is_object() {
        told["cluster"]["untrusted"] = state.untrusted().into_iter().collect();
    }
    if told["strands"].is_array() {
        let stores = state.stores().all().iter();
        let shown: Vec<Shown> = stores.clone().filter_map(|store| store.shown()).collect();
        if told["cluster"].is_object() {
            told["cluster"]["strands"] = stores.map(|store| cluster_json(store)).collect();
        } else if !shown.is_empty() {
            told["read_only"] = shown_together(&shown);
        }
    }
    Ok(Json(told))
}

/// Asks each strand.
async fn ask_each(state: &ApiState) -> Result<Vec<Asked>> {
    let each = state.each();
    let ask = move || {
        let asked = each.into_iter().map(|(store, admin)| {
            let (status, jobs) = (store.status(), admin.jobs());
            let health = Health::of(&store, &status, &jobs);
            Asked {
                status,
                jobs,
                health,
            }
        });
        Ok(asked.collect())
    };
    off_thread(ask).await
}

fn ring_json(status: &Status) -> Value {
    let day = |label: RingLabel| {
        let mut stores = status.stores.iter();
        let found = stores.find(|store| store.label == label);
        found.map(|store| store.id.to_string())
    };
    let stores = status.stores.iter();
    let (late, mut slots): (Vec<_>, Vec<_>) =
        stores.partition(|store| store.label == RingLabel::Late);
    slots.sort_by_key(|store| store.id.day());
    json!({
        "today": status.today,
        "days_ahead": status.ring_days_ahead,
        "yesterday_store": day(RingLabel::Yesterday),
        "today_store": day(RingLabel::Today),
        "tomorrow_store": day(RingLabel::Tomorrow),
        "slots": slots,
        "late": late,
    })
}

/// A strand as it tells of itself.
struct Asked {
    status: Status,
    jobs: Jobs,
    health: Health,
}

/// The strands of a divided store; all else that the status tells of a log and of files is of the first one.
fn strands_json(asked: &[Asked], options: &Options) -> Value {
    let strands = asked.iter().enumerate().map(|(strand, asked)| {
        let status = &asked.status;
        json!({
            "strand": strand,
            "state": asked.health.state(),
            "reasons": asked.health.reasons(),
            "generation": status.generation,
            "manifest": status.manifest,
            "oplog": oplog_json(status, options.oplog_bytes_max),
            "log_copy": status.log_copy,
            "pending_runs": status.pending_runs,
            "file_bytes": status.file_bytes,
            "last_rebuild": asked.jobs.rebuild.as_ref().map(job_json),
            "last_backup": asked.jobs.backup.as_ref().map(backup_json),
            "closed_without_final": closed_json(&asked.jobs.closed),
        })
    });
    strands.collect()
}

/// Days that have left the log without being final.
fn closed_json(closed: &[Closed]) -> Value {
    let day = |of: Option<&Closed>| of.map(|closed| closed.day);
    json!({ "days": closed.len(), "first": day(closed.first()), "last": day(closed.last()) })
}

/// Adds the part that a node has among those that share its store, or the manifest that a read-only server shows.
fn with_part(store: &Store, shown: Option<&Shown>, mut told: Value) -> Value {
    if let Some(shown) = shown {
        told["read_only"] = shown_json(shown);
    } else if store.world().objects.is_some() {
        told["cluster"] = cluster_json(store);
    }
    told
}

/// The part that a node has in one log, and all nodes that it hears there.
fn cluster_json(store: &Store) -> Value {
    let mut told = match store.part() {
        Part::Writes => json!({ "writes": true }),
        Part::Follows { writer } => json!({ "writes": false, "writer": writer.as_deref() }),
        Part::Reads => json!({ "writes": false }),
    };
    let nodes = store.intake().nodes();
    let own = nodes.iter().find(|node| node.is_own);
    told["node"] = own.map(|own| &*own.node).into();
    told["nodes"] = nodes_json(&nodes);
    told
}

/// The live nodes, each with the number of records that it had yet to count when it told of itself, up to the position
/// that the node that writes told of.
fn nodes_json(nodes: &[NodeStatus]) -> Value {
    let end = nodes.iter().find(|node| node.writes.is_some());
    let end = end.and_then(|writer| writer.applied);
    let told = nodes.iter().map(|node| {
        let lag = end.zip(node.applied);
        let lag = lag.map(|(end, applied)| end.sequence.saturating_sub(applied.sequence));
        json!({
            "node": node.node,
            "address": node.address,
            "version": node.build.map(|part| part.to_string()).join("."),
            "writes": node.writes.is_some(),
            "epoch": node.writes,
            "may_write": node.may_write,
            "rebuilds": node.rebuilds,
            "backs_up": node.backs_up,
            "position": node.applied,
            "lag_records": lag,
            "heard_seconds": node.heard_ms as f64 / 1_000.0,
        })
    });
    told.collect()
}

fn disk_json(status: &Status) -> Value {
    json!({
        "free_bytes": status.disk_free_bytes,
        "full_in_days": status.log_forecast.disk_full_in_days,
    })
}

fn oplog_json(status: &Status, bytes_max: u64) -> Value {
    let durable = status.durable.sequence;
    json!({
        "position": status.applied,
        "durable": status.durable,
        "lag_records": status.applied.sequence.saturating_sub(durable),
        "unflushed_records": status.unflushed,
        "bytes": status.oplog_bytes,
        "max_bytes": (bytes_max < u64::MAX).then_some(bytes_max),
        "bytes_a_day": status.log_forecast.bytes_a_day,
        "max_full_in_days": status.log_forecast.max_full_in_days,
        "held_go_in_days": status.log_forecast.held_go_in_days,
    })
}

/// Evidence goes with its segment of the log, which the first rebuild after so many days removes.
fn evidence_json(rules: &WriteRules, log_days: u32) -> Value {
    let from: &[&str] = match (rules.evidence, rules.enrich.reads_requests()) {
        (false, _) => &[],
        (true, false) => &["body"],
        (true, true) => &["body", "request"],
    };
    json!({
        "kept": rules.evidence,
        "from": from,
        "keep_days": rules.evidence.then_some(log_days),
    })
}

fn enrich_json(enrich: &Enrich) -> Value {
    let fills = enrich.fills();
    let fills = fills.map(|(subtotal, source)| json!({"subtotal": subtotal, "source": source}));
    let geo = enrich.geo().map(|file| {
        let geo = file.geo();
        json!({
            "path": file.path(),
            "type": geo.kind(),
            "built_at": rfc3339_utc(geo.built_at()),
            "failure": file.failure(),
        })
    });
    json!({
        "from_request": enrich.reads_requests(),
        "fill": fills.collect::<Vec<_>>(),
        "geo": geo,
    })
}

fn rules_json(rules: &RulesStatus, schema: &Schema) -> Value {
    let decided = rules.events.saturating_sub(rules.undecided);
    let filters = schema.filters.iter().map(|filter| {
        let filtered = rules.filtered.get(&filter.name);
        json!({ "rule": filter.name, "class": filter.class, "filtered": filtered.unwrap_or(&0) })
    });
    let lists = rules.lists.iter().map(|list| {
        json!({
            "name": list.name,
            "match": list.kind,
            "sha256": list.sha256,
            "entries": list.entries,
            "failure": list.failure,
            "changed_at": list.changed_at.map(rfc3339_utc),
        })
    });
    json!({
        "events": rules.events,
        "undecided": rules.undecided,
        "decision_rate": (rules.events > 0).then(|| decided as f64 / rules.events as f64),
        "filters": filters.collect::<Vec<_>>(),
        "lists": lists.collect::<Vec<_>>(),
    })
}

fn archive_json(status: &Status, has_backup: bool) -> Value {
    json!({
        "pending_runs": status.pending_runs,
        "file_bytes": status.file_bytes,
        // A backup has all of them.
        "single_copy_bytes": if has_backup { 0 } else { status.single_copy_bytes },
        "damaged_files": status.damaged_files,
        "aside_files": status.aside_files,
        "waiting_fixes": status.waiting_fixes,
        "minutes_from": status.minutes_from.map(rfc3339_utc),
        "hours_from": status.hours_from.map(rfc3339_utc),
    })
}
