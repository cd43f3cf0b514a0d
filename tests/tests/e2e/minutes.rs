//! Minutes that have expired are refused by name, never answered as zeros; their hours stay.

use serde_json::json;
use tallyring_tests::server::Server;

#[test]
fn expired_minutes_are_refused_and_their_hours_stay() {
    let data = tempfile::tempdir().expect("a directory");
    let start = |clock: &str| Server::start(data.path(), &["--clock", clock]);
    let send = |server: &Server, id: &str, at: &str| {
        let event = json!({"id": id, "type": "click", "at": at, "entities": {"ad": "42"}});
        assert_eq!(server.post("/v1/events", event.to_string()).status, 200);
    };
    let server = start("2026-03-16T13:00:03Z@0");
    for (id, at) in [("a", "12:58:59"), ("b", "12:59:00"), ("c", "12:59:59")] {
        send(&server, id, &format!("2026-03-16T{at}Z"));
    }
    server.terminate();
    let range = "from=2026-03-16T12:58:00Z&to=2026-03-16T12:59:59Z";
    let minutes = format!("/v1/ad_click/42/counts?unit=minute&{range}");
    let hours = format!("/v1/ad_click/42/counts?unit=hour&{range}");
    let server = start("2026-03-18T00:10:00Z@0");
    let generation = server.rebuild();
    let counted = server.get_json(&minutes)["counts"].clone();
    assert_eq!(
        (&counted[0]["count"], &counted[1]["count"]),
        (&json!(1), &json!(2))
    );
    assert_eq!(
        server.get_json("/v1/admin/status")["archive"]["minutes_from"],
        "2026-02-01T00:00:00Z"
    );
    server.terminate();
    let server = start("2026-05-01T00:10:00Z@0");
    send(&server, "d", "2026-05-01T00:09:00Z");
    server.rebuild();
    let ratio = format!("/v1/ratios/ctr/ad/42?unit=minute&{range}");
    for path in [&minutes, &ratio] {
        let refused = server.get(path);
        let problem = refused.json();
        assert_eq!(
            (refused.status, &problem["field"]),
            (422, &json!("from")),
            "{problem}"
        );
        let detail = problem["detail"].as_str().expect("a detail");
        assert!(
            detail.contains("2026-04-01T00:00:00Z") && detail.contains("unit=hour"),
            "{detail}"
        );
    }
    assert_eq!(server.get_json(&hours)["total"], 3);
    let days =
        "/v1/ad_click/42/counts?unit=day&units=2&to=2026-03-16T20:00:00Z&timezone=Asia/Kolkata";
    assert_eq!(server.get_json(days)["total"], 3);
    let recent = server.get_json("/v1/ad_click/42/counts?unit=minute&units=5");
    assert_eq!(recent["total"], 1);
    let before = server.get_json(&format!("{minutes}&as_of={generation}"));
    assert_eq!(
        before["counts"], counted,
        "a kept generation is read as it was"
    );
    let metrics = server.get("/metrics").text;
    assert!(
        metrics.contains("tallyring_minutes_from_seconds 1775001600"),
        "{metrics}"
    );
}
