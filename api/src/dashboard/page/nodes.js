// The nodes of a cluster, for operators, as the one that answers hears them.

import { count, el } from "./format.js";

const HEADS = ["Node", "Address", "Version", "Part", "Position", "Behind", "Heard"];

// A card that stays hidden where the server is no node.
export function nodesCard() {
  const heading = el("h2", { id: "nodes" }, "Nodes");
  const element = el("section", { class: "card stack", "aria-labelledby": "nodes", hidden: true }, heading);
  return { element, show(cluster) {
    element.hidden = !cluster;
    if (!cluster) return;
    const { nodes } = cluster;
    element.replaceChildren(heading, summary(nodes), ...(nodes.length ? [table(nodes)] : []));
  } };
}

function summary(nodes) {
  const writer = nodes.find(({ writes }) => writes);
  if (!writer && nodes.length && nodes.every((node) => node.may_write === false)) return el("p", { class: "wrong" }, "No node is heard that writes, and none that may. Increments are refused until one is started that may.");
  if (!writer) return el("p", { class: "wrong" }, "No node is heard that writes. Increments are refused until one takes the log over, which is a matter of seconds.");
  return el("p", { class: "muted" }, `${nodes.length === 1 ? "One node is" : `${count(nodes.length)} nodes are`} heard. ${writer.node} writes, and the others count what it wrote.`);
}

function table(nodes) {
  const rows = nodes.map((node) => [
    node.node,
    node.address,
    node.version,
    part(node),
    node.position ?? "–",
    node.lag_records === null ? "–" : `${count(node.lag_records)} ${node.lag_records === 1 ? "record" : "records"}`,
    `${node.heard_seconds.toFixed(1)} s ago`,
  ]);
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Nodes that are heard" },
    el("table", {}, el("thead", {}, el("tr", {}, ...HEADS.map((head) => el("th", { scope: "col" }, head)))),
      el("tbody", {}, ...rows.map((cells) => el("tr", {}, ...cells.map((cell) => el("td", {}, cell)))))));
}

function part(node) {
  const inLog = node.writes ? `writes in epoch ${node.epoch}` : node.may_write === false ? "only follows" : "follows";
  return node.rebuilds ? `${inLog}, rebuilds` : inLog;
}
