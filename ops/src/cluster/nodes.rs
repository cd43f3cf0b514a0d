//! `tallyring cluster status`: the nodes, as one of them tells of all.

use serde_json::Value;

use crate::base_url::ServerArgs;
use crate::error::{CommandError, Result};
use crate::http_client::Server;
use crate::out::{note, say};

/// Prints the nodes that a node hears. Fails when no node answers, or the server that does is none.
pub(super) fn show(args: &ServerArgs, json: bool) -> Result<()> {
    let server = Server::asked(args)?.ok_or_else(|| {
        CommandError::Failed(format!(
            "no server holds {}; name a node with --to",
            args.data.display()
        ))
    })?;
    let status = server.get("/v1/admin/status")?;
    let nodes = nodes_of(&server, &status)?;
    if json {
        return say!("{}", status["cluster"]);
    }
    say!("{}", table(nodes))?;
    if !nodes.iter().any(|node| node["writes"] == true) {
        note!("no node writes now; one of them takes the log over within seconds");
    }
    Ok(())
}

/// The nodes that the status of a server tells of. Fails when the server is none.
pub(super) fn nodes_of<'s>(server: &Server, status: &'s Value) -> Result<&'s [Value]> {
    let nodes = status["cluster"]["nodes"].as_array().map(Vec::as_slice);
    nodes.ok_or_else(|| {
        CommandError::Failed(format!(
            "{} is no node of a cluster; `tallyring status` shows it",
            server.url()
        ))
    })
}

/// A line for each node under one of headings.
fn table(nodes: &[Value]) -> String {
    const HEADINGS: [&str; 7] = [
        "node", "address", "version", "part", "position", "lag", "heard",
    ];
    let cells = nodes.iter().map(|node| {
        let text = |name: &str| node[name].as_str().unwrap_or("-").to_owned();
        let part = match node["epoch"].as_u64() {
            Some(epoch) => format!("writes in epoch {epoch}"),
            None => "follows".to_owned(),
        };
        let lag = node["lag_records"].as_u64();
        [
            text("node"),
            text("address"),
            text("version"),
            part,
            text("position"),
            lag.map_or("-".to_owned(), |lag| lag.to_string()),
            format!(
                "{:.1} s ago",
                node["heard_seconds"].as_f64().unwrap_or_default()
            ),
        ]
    });
    let headings = HEADINGS.map(str::to_owned);
    let lines: Vec<[String; 7]> = [headings].into_iter().chain(cells).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: [usize; 7] = std::array::from_fn(|column| width(column).unwrap_or_default());
    let padded = lines.iter().map(|line| {
        let cells = line.iter().zip(widths);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        cells.join("  ").trim_end().to_owned()
    });
    padded.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_node_has_a_line_and_columns_are_as_wide_as_they_need() {
        let nodes = [
            json!({"node": "a", "address": "http://10.0.0.11:7117", "version": "0.1.0", "writes": true, "epoch": 3,
                "position": "3:4711", "lag_records": 0, "heard_seconds": 0.5}),
            json!({"node": "second", "address": "http://b:1", "version": "0.1.0", "writes": false, "epoch": null,
                "position": null, "lag_records": null, "heard_seconds": 1.0}),
        ];
        let expected = "\
node    address                version  part               position  lag  heard
a       http://10.0.0.11:7117  0.1.0    writes in epoch 3  3:4711    0    0.5 s ago
second  http://b:1             0.1.0    follows            -         -    1.0 s ago";
        assert_eq!(table(&nodes), expected);
    }
}
