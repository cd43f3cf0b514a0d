// A UTC day: what is missing until it is final, and for each version and event type the way from all that came to all
// that counts.

import { address, get, Refused } from "./api.js";
import { chart } from "./chart.js";
import { chooser, count, el, mark, percent, start, stateOf, switcher, utc } from "./format.js";

const DAY_MS = 86_400_000;
const MISSING = {
  live: "Events of this day are expected, so it is not over.",
  settled: "No event is expected any more. A rebuild closes the day in the second night after it.",
  provisional: "The day is closed, and nothing of it was judged again.",
  closed: "The log no longer has this day, and it was not made final in time. Its counts stay as they are.",
  before: "The store began later, and has nothing of this day.",
  corrected: "Something was counted since the newest version, which stays as it is. Another version will hold it, too.",
};
const CAUSES = {
  duplicate_beyond_window: "duplicates of the day",
  duplicate_other_day: "duplicates of other days",
  voided: "voided by hand",
};

const signed = (n) => (n < 0 ? `−${count(-n)}` : `+${count(n)}`);
const typeName = (type) => (type === "increment" ? "plain increments" : type);

function causeName(cause) {
  const [kind, ...rest] = cause.split(":");
  const of = rest.join(":");
  if (kind === "restored") return `brought back: ${CAUSES[of] ?? `rule ${of}`}`;
  if (kind === "moved") return `from one reason to another: ${CAUSES[of] ?? `rule ${of}`}`;
  return CAUSES[cause] ?? `rule ${of}`;
}

export async function dayPage({ main, parameters, path, title }) {
  const [day] = path;
  title(day);
  const { days: [found] } = await get(["finals", "days"], { from: day, to: day });
  const { versions, by_rules: ofDay } = found.versions.length ? await get(["finals", day]) : { versions: [] };
  const state = stateOf(found);
  const beside = (ahead) => new Date(Date.parse(day) + ahead * DAY_MS).toISOString().slice(0, 10);
  main.replaceChildren(
    el("div", {},
      el("p", { class: "crumbs" }, el("a", { href: `/days?month=${day.slice(0, 7)}` }, "Days")),
      el("div", { class: "head" },
        el("h1", {}, `${start(day, "day")} `),
        el("span", { class: "state" }, mark(state), state === "overdue" ? `${found.state}, overdue` : state),
        switcher("Days", [-1, 1].map((ahead) => [beside(ahead), start(beside(ahead), "day"), `/days/${beside(ahead)}`])))),
    ...(found.state === "final" && !found.reason ? [] : [missing(found)]));
  if (!versions.length) return undefined;

  const version = chosen("version", parameters, versions.map((of) => `${of.version}`), `${versions.at(-1).version}`);
  const index = versions.findIndex((of) => `${of.version}` === version);
  const types = Object.entries(versions[index].types).sort(([, a], [, b]) => b.gross - a.gross);
  if (!types.length) {
    main.append(el("p", { class: "card empty" }, "Nothing came on this day."));
    return undefined;
  }
  const type = chosen("type", parameters, types.map(([name]) => name), types[0][0]);
  const here = (named) => `/days/${day}?${new URLSearchParams({ type, version, ...named })}`;
  const picture = chart((width) => address(["finals", `${day}.svg`], { type, version, width }), "chart short");
  const before = versions[index - 1];
  const facts = [
    ["Published", utc(versions[index].at)],
    ["Judged", `records of the log before number ${versions[index].upto}`],
    ["Rules", versions[index].rules.slice(0, 12)],
    ...repeated(versions[index]),
  ];
  const sums = versions[index].types[type];
  main.append(
    el("div", { class: "head" },
      chooser("Event type", types.map(([name]) => [name, typeName(name), here({ type: name })]), type),
      switcher("Version", versions.map(({ version: number }) => [`${number}`, `Version ${number}`, here({ version: number })]), version)),
    picture.element,
    el("div", { class: "pair" },
      numbers("steps", "From all that came to what is final", sums.steps.map(({ step, title: name, n }) => [name, step === "gross" || step === "net" ? count(n) : signed(n)]),
        el("p", { class: "muted" }, decided(sums), filtered(sums), index === versions.length - 1 ? byRules(ofDay[type], "Rules") : "", " Duplicates that the server refused as they came are in none of these sums.")),
      numbers("changes", before ? `From version ${before.version} to ${version}` : `From what was counted as it came to version ${version}`,
        changes(sums, before && (before.types[type] ?? { after: 0 }), version),
        before && el("p", { class: "muted" }, byRules(sums.by_rules, `Since version ${before.version}, rules`)),
        el("dl", { class: "facts" }, ...facts.flatMap(([name, fact]) => [el("dt", {}, name), el("dd", {}, fact)])))),
    el("p", { class: "links" }, "As a file:",
      el("a", { href: address(["finals", `${day}.svg`], { type, version }) }, "SVG"),
      el("a", { href: address(["finals", `${day}.csv`]) }, "CSV"),
      el("a", { href: address(["finals", day]) }, "JSON")));
  await picture.refresh();
  return undefined;
}

// What the address names, where the day has it.
function chosen(name, parameters, known, usual) {
  const value = parameters.get(name) || usual;
  if (!known.includes(value)) throw new Refused(404, { detail: `\`${name}\` must be one of ${known.join(", ")}; got \`${value}\`.` });
  return value;
}

function missing({ day, state, reason, final_at: at }) {
  const byHand = at === null || reason;
  return el("section", { class: "card hint", "aria-labelledby": "missing" },
    el("h2", { id: "missing" }, state === "corrected" ? "Counted since" : state === "final" ? "Final" : "Not final yet"),
    el("p", {}, MISSING[state]),
    reason && el("p", { class: "wrong" }, reason),
    at && !reason ? el("p", {}, `It becomes final about ${utc(at)}.`) : undefined,
    byHand && el("p", { class: "muted" }, state === "live" || state === "settled" ? "By hand, once it is closed:" : "By hand:"),
    byHand && el("pre", { tabindex: "0" }, `tallyring reconcile ${day}`));
}

function decided({ gross, undecided }) {
  const rate = gross ? `, decision rate ${percent((gross - undecided) / gross)}.` : ".";
  return undecided ? `Of these, ${count(undecided)} lack the evidence that some rule needs${rate}` : `Every rule could judge all of it${rate}`;
}

// Absent where an older build made the version.
function filtered({ filtered: classes = {} }) {
  const parts = Object.entries(classes).map(([name, { n }]) => `${count(n)} ${name}`);
  return Object.values(classes).some(({ n }) => n) ? ` Rules filter, by their class, ${parts.join(" and ")}.` : "";
}

// A sender may repeat what it sends for one key alone.
function repeated({ repeated: { keys, most: [first] } = { most: [] } }) {
  const others = keys > 1 ? `, and ${count(keys - 1)} more keys` : "";
  return first ? [["Repeated", `${count(first.n)} of ${count(first.before)} of ${first.key} (${first.namespace}) had counted twice${others}`]] : [];
}

// Rules took out some as it came, and reconciles took out others and gave some back: over all versions, or in one.
function byRules({ live, filtered, restored }, whose) {
  const since = restored ? `filtered ${count(-filtered)} and gave back ${count(restored)}` : `filtered ${count(-filtered)}`;
  return live || filtered || restored ? ` ${whose} filtered ${count(-live)} as they came, and the reconcile ${since}.` : "";
}

// The sums before, what differs by cause, and the sums after.
function changes({ before, causes, after }, previous, version) {
  const since = previous ? before - previous.after : 0;
  return [
    previous ? ["counted before", count(previous.after)] : ["counted as it came", count(before)],
    ...(since ? [["came since", signed(since)]] : []),
    ...Object.entries(causes).map(([cause, n]) => [causeName(cause), signed(n)]),
    [`version ${version}`, count(after)],
  ];
}

function numbers(id, heading, rows, below) {
  return el("section", { class: "card", "aria-labelledby": id },
    el("h2", { id }, heading),
    el("table", { "aria-labelledby": id },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Step"), el("th", { scope: "col" }, "Count"))),
      el("tbody", {}, ...rows.map(([name, n]) => el("tr", {}, el("td", {}, name), el("td", {}, n))))),
    below);
}
