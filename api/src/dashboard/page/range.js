// The range that the address of a page names: a period up to today, or days of the page's zone or times as the API takes
// them.

import { pairs, query, Refused } from "./api.js";
import { el, start, switcher } from "./format.js";

const DAY_MS = 86_400_000;
const PERIODS = [
  ["today", "Today"], ["yesterday", "Yesterday"], ["7d", "7 days"], ["28d", "28 days"], ["90d", "90 days"],
  ["week", "This week"], ["lastweek", "Last week"], ["month", "This month"], ["lastmonth", "Last month"],
  ["quarter", "This quarter"], ["year", "This year"], ["all", "All time"],
];

export const isZone = (zone) => {
  try { return Boolean(new Intl.DateTimeFormat("en", { timeZone: zone })); } catch { return false; }
};

// The day of a moment in a zone: Swedish writes dates as ISO 8601 does.
export const dayOf = (zone, ms) => new Intl.DateTimeFormat("sv", { timeZone: zone }).format(ms);

// The first and the last day of a period; without a last one it goes on until now.
function daysOf(period, zone) {
  const today = new Date(`${dayOf(zone, Date.now())}T00:00Z`);
  const [year, month, date] = [today.getUTCFullYear(), today.getUTCMonth(), today.getUTCDate()];
  const monday = date - ((today.getUTCDay() + 6) % 7);
  const [from, to] = {
    today: [[month, date]],
    yesterday: [[month, date - 1], [month, date - 1]],
    "7d": [[month, date - 6]],
    "28d": [[month, date - 27]],
    "90d": [[month, date - 89]],
    week: [[month, monday]],
    lastweek: [[month, monday - 7], [month, monday - 1]],
    month: [[month, 1]],
    lastmonth: [[month - 1, 1], [month, 0]],
    quarter: [[month - (month % 3), 1]],
    year: [[0, 1]],
  }[period].map((day) => new Date(Date.UTC(year, ...day)).toISOString().slice(0, 10));
  return { from, to };
}

// What the address says of these.
export const named = (parameters, names) =>
  Object.fromEntries(names.map((name) => [name, parameters.get(name)]).filter(([, value]) => value));

// A page hands its range, its zone and its comparison on to the next one, unless that names others.
export function keepRange(here, there) {
  if (!["period", "from", "to"].some((name) => there.has(name))) {
    for (const [name, value] of Object.entries(named(here, ["period", "from", "to"]))) there.set(name, value);
  }
  for (const name of ["timezone", "compare"]) {
    if (here.get(name) && !there.has(name)) there.set(name, here.get(name));
  }
}

// `asked` is for addresses of pages. `times` are parameters of the API, which says what is wrong with days and times.
export function rangeOf(parameters, zone) {
  const asked = named(parameters, ["period", "from", "to"]);
  const { period, ...times } = asked;
  if (!period) return { asked, times };
  const refuse = (must) => { throw new Refused(400, { detail: `\`period\` must be ${must}; got \`${period}\`.` }); };
  if (!PERIODS.some(([known]) => known === period)) refuse(`one of ${PERIODS.map(([known]) => known).join(", ")}`);
  if (times.from || times.to || parameters.get("units")) refuse("left out beside `from`, `to` and `units`");
  if (period === "all") return { asked, times: { units: -1 } };
  return { asked, times: isZone(zone) ? daysOf(period, zone) : {} };
}

const lengthOf = ({ from, to }) => ((to ? Date.parse(to) : Date.now()) - Date.parse(from)) / DAY_MS;

// The unit of a range for which the address names none: longer ones would widen it.
export function unitOf(times) {
  const days = lengthOf(times);
  if (days < 2) return "hour";
  return times.units || days > 366 ? "month" : "day";
}

// Whether an answer has room for a range in a unit: it has at most 10,000 buckets.
export function isShown(unit, times) {
  const most = { minute: 6, hour: 415 }[unit] ?? Infinity;
  return !times.units ? !(lengthOf(times) > most) : most === Infinity;
}

const COMPARISONS = [
  ["before", "Period before", "the period before"], ["weekdays", "Same weekdays", "the same weekdays before"],
  ["year", "Year before", "a year before"], ["none", "Nothing"],
];

// With what the address compares, as the API names it and in words; weeks and longer units have all weekdays.
export function comparisonOf(parameters, unit) {
  const asked = parameters.get("compare") || "before";
  if (asked === "none") return [];
  const hasWeekdays = ["minute", "hour", "day"].includes(unit);
  const known = asked === "weekdays" && !hasWeekdays ? "before" : asked;
  return [known, COMPARISONS.find(([value]) => value === known)?.[2]];
}

export const comparisons = (current, here) => el("div", {}, el("p", { class: "muted" }, "Against"),
  switcher("Compare with", COMPARISONS.map(([value, text]) => [value, text, here(value)]), current));

// The periods, two days to choose, and `more`; `others` is what else the address of the page names. `show` tells of the
// range that an answer has.
export function picker(asked, times, others, more) {
  const input = (name, label) =>
    el("input", { type: "date", name, required: true, min: "2000-01-01", max: "2999-12-31", "aria-label": label });
  const from = input("from", "First day");
  const to = input("to", "Last day");
  const check = () => to.setCustomValidity(to.value && to.value < from.value ? "The last day lies before the first." : "");
  const shown = el("span", {}, PERIODS.find(([period]) => period === asked.period)?.[1] ?? "…");
  const summary = el("summary", {}, el("span", { class: "hidden" }, "Range: "), shown);
  const element = el("details", { class: "picker", onkeydown(event) {
    if (event.key !== "Escape" || !element.open) return;
    event.stopPropagation();
    element.open = false;
    summary.focus();
  } }, summary, el("div", { class: "card" },
    switcher("Period", PERIODS.map(([period, text]) => [period, text, query({ ...others, period })]), asked.period),
    el("form", { class: "range", "aria-label": "Range", "data-goes": "", oninput: check },
      from, el("span", { class: "muted" }, "to"), to,
      ...pairs(others).map(([name, value]) => el("input", { type: "hidden", name, value })),
      el("button", { type: "submit", class: "quiet" }, "Show")),
    more));
  return { element, show(answer) {
    // Long buckets reach beyond the days that were asked for.
    const [first, last] = [times.from ?? answer.from, times.to ?? dayOf(others.timezone, Date.parse(answer.to) - 1)]
      .map((moment) => moment.slice(0, 10));
    if (!asked.period) shown.textContent = first === last ? start(first) : `${start(first)} – ${start(last)}`;
    // Once only: afterwards the reader chooses.
    if (from.value || to.value) return;
    from.value = first;
    to.value = last;
  } };
}
