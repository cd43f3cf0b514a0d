//! `tallyring cluster status`: the nodes, as one of them tells of all.

use serde_json::Value;
use tallyring_records::how_many;

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
    nodes_of(&server, &status)?;
    if json {
        return say!("{}", status["cluster"]);
    }
    let strands = strands_of(&status);
    say!("{}", table(&strands))?;
    let untrusted = status["cluster"]["untrusted"].as_array();
    for sentence in untrusted.into_iter().flatten().filter_map(Value::as_str) {
        note!("{sentence}");
    }
    let may_write = |node: &Value| node["may_write"] == true;
    let is_without = |nodes: &&[Value]| !nodes.iter().any(|node| node["writes"] == true);
    match (
        strands.iter().filter(|nodes| is_without(nodes)).count(),
        strands.len(),
    ) {
        (0, _) => {}
        _ if !strands.iter().any(|nodes| nodes.iter().any(may_write)) => note!(
            "no node writes now, and none of them may: set `writes = true` in [cluster] of one, and start it again"
        ),
        (_, 1) => note!("no node writes now; one of them takes the log over within seconds"),
        (without, _) => note!(
            "no node writes {} now; one of them takes each over within seconds",
            how_many(without as u64, "strand")
        ),
    }
    Ok(())
}

/// The nodes as each strand of the store hears them, by the numbers of the strands. The only strand has no number.
pub(super) fn strands_of(status: &Value) -> Vec<&[Value]> {
    let cluster = &status["cluster"];
    let strands = match cluster["strands"].as_array() {
        None => std::slice::from_ref(cluster),
        Some(strands) => strands,
    };
    let nodes = strands.iter().map(|strand| strand["nodes"].as_array());
    let nodes = nodes.map(|nodes| nodes.map_or(&[][..], Vec::as_slice));
    nodes.collect()
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

/// A line for each node of each strand under one of headings.
fn table(strands: &[&[Value]]) -> String {
    const HEADINGS: [&str; 8] = [
        "strand", "node", "address", "version", "part", "position", "lag", "heard",
    ];
    let all = strands.iter().enumerate();
    let cells = all.flat_map(|(strand, nodes)| nodes.iter().map(move |node| cells(strand, node)));
    let headings = HEADINGS.map(str::to_owned);
    let lines: Vec<[String; 8]> = [headings].into_iter().chain(cells).collect();
    let first = usize::from(strands.len() == 1);
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: [usize; 8] = std::array::from_fn(|column| width(column).unwrap_or_default());
    let padded = lines.iter().map(|line| {
        let cells = line.iter().zip(widths).skip(first);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        cells.join("  ").trim_end().to_owned()
    });
    padded.collect::<Vec<_>>().join("\n")
}

/// Whether a node takes its turn to write; builds before did not say, and do.
pub(super) fn may_write(node: &Value) -> bool {
    node["may_write"] != false
}

fn cells(strand: usize, node: &Value) -> [String; 8] {
    let text = |name: &str| node[name].as_str().unwrap_or("-").to_owned();
    let mut part = match node["epoch"].as_u64() {
        Some(epoch) => format!("writes in epoch {epoch}"),
        None if !may_write(node) => "only follows".to_owned(),
        None => "follows".to_owned(),
    };
    if node["rebuilds"] == true {
        part.push_str(", rebuilds");
    }
    let lag = node["lag_records"].as_u64();
    [
        strand.to_string(),
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
            json!({"node": "c", "address": "http://c:1", "version": "0.1.0", "writes": false, "epoch": null,
                "position": "3:4700", "lag_records": 11, "may_write": false, "rebuilds": true, "heard_seconds": 0.2}),
        ];
        let expected = "\
node    address                version  part                    position  lag  heard
a       http://10.0.0.11:7117  0.1.0    writes in epoch 3       3:4711    0    0.5 s ago
second  http://b:1             0.1.0    follows                 -         -    1.0 s ago
c       http://c:1             0.1.0    only follows, rebuilds  3:4700    11   0.2 s ago";
        assert_eq!(table(&[&nodes]), expected);
        let status = json!({"cluster": {"nodes": nodes}});
        assert_eq!(table(&strands_of(&status)), expected);
    }

    #[test]
    fn each_strand_has_its_lines() {
        let node = |name: &str, epoch: Option<u32>| {
            json!({"node": name, "address": "http://a:1", "version": "0.1.0", "writes": epoch.is_some(),
                "epoch": epoch, "position": "3:7", "lag_records": 0, "heard_seconds": 0.5})
        };
        let strands = [
            json!({"nodes": [node("a", Some(3)), node("b", None)]}),
            json!({"nodes": [node("b", Some(5))]}),
        ];
        let status = json!({"cluster": {"nodes": [], "strands": strands}});
        let expected = "\
strand  node  address     version  part               position  lag  heard
0       a     http://a:1  0.1.0    writes in epoch 3  3:7       0    0.5 s ago
0       b     http://a:1  0.1.0    follows            3:7       0    0.5 s ago
1       b     http://a:1  0.1.0    writes in epoch 5  3:7       0    0.5 s ago";
        assert_eq!(table(&strands_of(&status)), expected);
    }
}
