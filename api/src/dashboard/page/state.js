// How the server is, for operators: the ring, the archive, its jobs, the nodes beside it, and its rules.

import { get, Refused } from "./api.js";
import { bytes, count, el, utc } from "./format.js";
import { listen } from "./live.js";
import { nodesCard } from "./nodes.js";
import { rulesCard } from "./rules.js";

// Between two looks at the status.
const AGAIN_MS = 5_000;

// Calls `show` with the status now, and with each tick so long after it was told. `show` gets nothing where the API key
// of the page may not read it, and is not called again.
function followStatus(show) {
  let notBefore = 0;
  async function ask() {
    notBefore = performance.now() + AGAIN_MS;
    try {
      show(await get(["admin", "status"]));
    } catch (error) {
      if (!(error instanceof Refused) || error.status !== 403) throw error;
      notBefore = Infinity;
      show(undefined);
    }
  }
  return { ask, tick() { if (performance.now() > notBefore) ask().catch(() => {}); } };
}

// The state in a word, which leads to the page that says more. It stays hidden where it may not be read.
export function stateLink() {
  const element = el("a", { class: "badge", href: "/state", hidden: true });
  return { element, ...followStatus((status) => {
    element.hidden = !status;
    if (!status) return;
    element.className = badgeOf(status);
    element.textContent = `Server: ${status.state}`;
    element.title = status.reasons.join(" ");
  }) };
}

const badgeOf = ({ state }) => `badge ${state === "ok" ? "good" : "bad"}`;

export async function statePage({ main, title }) {
  title("Server");
  const [nodes, rules] = [nodesCard(), rulesCard()];
  const card = el("section", { class: "card", "aria-labelledby": "state" });
  main.replaceChildren(el("h1", {}, "Server"), card, nodes.element, rules.element);
  const status = followStatus((told) => {
    if (!told) {
      card.replaceChildren(el("h2", { id: "state" }, "Ring and archive"),
        el("p", { class: "muted" }, "The state of the server needs an API key with the scope admin."));
      return;
    }
    nodes.show(told.cluster);
    rules.show(told.rules);
    card.replaceChildren(...ringAndArchive(told));
  });
  listen("/v1/live", status.tick);
  await status.ask();
  return undefined;
}

function ringAndArchive(status) {
  const slots = status.ring.slots.map((slot) =>
    el("li", { class: slot.position === "today" ? "now" : "" },
      el("strong", {}, slot.position), slot.id.replace(/^day-/, ""), el("br"),
      `${count(slot.counters)} counters`, el("br"), `${runs(slot.runs)}, ${bytes(slot.run_bytes + slot.memory_bytes)}`));
  const facts = [
    ["Archive", `generation ${status.generation}, ${bytes(status.archive.file_bytes)}, ${runs(status.archive.pending_runs)} to merge`],
    ["Rebuild", rebuiltAs(status.last_rebuild)],
    ["Backup", backedUp(status.backup_path, status.last_backup)],
    ["Log", `${bytes(status.oplog.bytes)}, ${count(status.oplog.unflushed_records)} records to replay after a crash`],
    ...(status.strands ?? [status]).flatMap(({ strand, log_copy: copy }) =>
      copy ? [[["Log copy", strand].join(" ").trim(), copiedLog(copy)]] : []),
    ["Ids", `${count(status.ids.in_memory)} in memory, remembered ${status.ids.window_hours} h`],
    ["Disk", `${bytes(status.disk.free_bytes)} free${roomFor(status)}`],
  ];
  return [
    el("div", { class: "head" }, el("h2", { id: "state" }, "Ring and archive"),
      el("span", { class: badgeOf(status) }, status.state)),
    ...status.reasons.map((reason) => el("p", { class: "wrong" }, reason)),
    el("ul", { class: "ring" }, ...slots),
    el("dl", { class: "facts" }, ...facts.flatMap(([name, fact]) => [el("dt", {}, name), el("dd", {}, fact)])),
  ];
}

const runs = (number) => `${count(number)} ${number === 1 ? "run" : "runs"}`;

// How far the job is, where that is known.
function progressOf({ progress }) {
  return progress?.total_bytes ? `, ${Math.floor((100 * progress.done_bytes) / progress.total_bytes)} % of ${bytes(progress.total_bytes)}` : "";
}

function rebuiltAs(job) {
  if (!job) return "none yet";
  const by = job.node ? ` on node ${job.node}` : "";
  if (job.state === "running") return `running${by} since ${utc(job.started_at)}${progressOf(job)}`;
  const ended = `${by}${job.ended_at ? ` ${utc(job.ended_at)}` : ""}`;
  return job.state === "failed" ? el("span", { class: "wrong" }, `failed${ended}: ${job.error}`) : `${job.state}${ended}`;
}

function backedUp(path, backup) {
  if (backup?.running) return `running${progressOf(backup)}`;
  if (!path) return el("span", {}, "not configured (", el("code", {}, "path"), " in ", el("code", {}, "[backup]"), ")");
  if (!backup?.ended_at) return "none is known here";
  const ended = utc(backup.ended_at);
  return backup.error ? el("span", { class: "wrong" }, `failed ${ended}: ${backup.error}`) : `generation ${backup.generation}, ${ended}`;
}

function copiedLog(copy) {
  if (copy.failure) return el("span", { class: "wrong" }, `${count(copy.behind_records)} records behind: ${copy.failure}`);
  return copy.behind_bytes ? `${count(copy.behind_records)} records behind` : "up to date";
}

function roomFor(status) {
  const days = status.disk.full_in_days;
  return days === null ? "" : `, which the log fills in ${count(days)} ${days === 1 ? "day" : "days"}`;
}
