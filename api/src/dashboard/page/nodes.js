// The nodes of a cluster, for operators, as the one that answers hears them.

import { count, el, scroll } from "./format.js";

const HEADS = ["Node", "Address", "Version", "Part", "Position", "Behind", "Heard"];

// A card that stays hidden where the server is no node.
export function nodesCard() {
  const heading = el("h2", { id: "nodes" }, "Nodes");
  const element = el("section", { class: "card stack", "aria-labelledby": "nodes", hidden: true }, heading);
  return { element, show(cluster) {
    element.hidden = !cluster;
    if (!cluster) return;
    const { strands } = cluster;
    const logs = strands ?? [cluster];
    const rows = logs.flatMap(({ nodes }, strand) => nodes.map((node) => [...(strands ? [strand] : []), ...cells(node)]));
    element.replaceChildren(heading, ...summary(logs), ...(rows.length ? [table(strands ? ["Strand", ...HEADS] : HEADS, rows)] : []));
  } };
}

// The logs that no node writes, or else who does.
function summary(logs) {
  const one = logs.length === 1;
  const writer = ({ nodes }) => nodes.find(({ writes }) => writes);
  const unwritten = logs.flatMap((log, strand) => writer(log) ? [] : [el("p", { class: "wrong" },
    `No node is heard that writes${one ? "" : ` strand ${strand}`}`,
    log.nodes.length && log.nodes.every((node) => node.may_write === false) ? ", and none that may. Increments are refused until one is started that may." : ". Increments are refused until one takes the log over, which is a matter of seconds.")]);
  if (unwritten.length) return unwritten;
  const heard = new Set(logs.flatMap(({ nodes }) => nodes.map(({ node }) => node))).size;
  return [el("p", { class: "muted" }, `${heard === 1 ? "One node is" : `${count(heard)} nodes are`} heard. `,
    one ? `${writer(logs[0]).node} writes` : "Each strand has one that writes it", ", and the others count what it wrote.")];
}

function cells(node) {
  return [
    node.node,
    node.address,
    node.version,
    part(node),
    node.position ?? "–",
    node.lag_records === null ? "–" : `${count(node.lag_records)} ${node.lag_records === 1 ? "record" : "records"}`,
    `${node.heard_seconds.toFixed(1)} s ago`,
  ];
}

function table(heads, rows) {
  return scroll("Nodes that are heard",
    el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((cell) => el("td", {}, cell)))))));
}

function part(node) {
  const inLog = node.writes ? `writes in epoch ${node.epoch}` : node.may_write === false ? "only follows" : "follows";
  return node.rebuilds ? `${inLog}, rebuilds` : inLog;
}
