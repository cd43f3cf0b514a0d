// The range that the address of a page names by `from` and `to`: days of the page's zone, or times as the API takes them.

import { Refused } from "./api.js";
import { el } from "./format.js";

const DAY = /^\d{4}-\d{2}-\d{2}$/;
const DAY_MS = 86_400_000;

export const isZone = (zone) => {
  try { return Boolean(new Intl.DateTimeFormat("en", { timeZone: zone })); } catch { return false; }
};

// How far the clocks of a zone are ahead of UTC.
function ahead(zone, ms) {
  const clock = new Intl.DateTimeFormat("en", { timeZone: zone, hourCycle: "h23",
    year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric" });
  const shown = Object.fromEntries(clock.formatToParts(ms).map(({ type, value }) => [type, Number(value)]));
  return Date.UTC(shown.year, shown.month - 1, shown.day, shown.hour, shown.minute, shown.second) - ms;
}

// The moment at which a day begins in a zone, both in milliseconds; `day` as if the zone were UTC.
function beginning(day, zone) {
  const guess = day - ahead(zone, day);
  return day - ahead(zone, guess);
}

// `asked` is for addresses of pages, `times` for the API, which also says what is wrong with anything but days.
export function rangeOf(parameters, zone) {
  const asked = {};
  const times = {};
  for (const name of ["from", "to"]) {
    const value = parameters.get(name);
    if (!value) continue;
    asked[name] = value;
    times[name] = value;
    if (!DAY.test(value) || !isZone(zone)) continue;
    const day = Date.parse(`${value}T00:00Z`);
    if (Number.isNaN(day) || new Date(day).toISOString().slice(0, 10) !== value) {
      throw new Refused(400, { detail: `\`${name}\` must be a day such as 2026-03-01, RFC 3339 or Unix seconds; got \`${value}\`.` });
    }
    // The last day is a part of the range.
    const moment = name === "from" ? beginning(day, zone) : beginning(day + DAY_MS, zone) - 1_000;
    times[name] = new Date(moment).toISOString();
  }
  return { asked, times };
}

// Two days to choose; `others` is what else the address of the page names. `show` fills them with the range that an
// answer says.
export function dayChooser(others) {
  const input = (name, label) =>
    el("input", { type: "date", name, required: true, min: "2000-01-01", max: "2999-12-31", "aria-label": label });
  const from = input("from", "First day");
  const to = input("to", "Last day");
  const check = () => to.setCustomValidity(to.value && to.value < from.value ? "The last day lies before the first." : "");
  const element = el("form", { class: "range", "aria-label": "Range", "data-goes": "", oninput: check },
    from, el("span", { class: "muted" }, "to"), to,
    ...Object.entries(others).map(([name, value]) => el("input", { type: "hidden", name, value })),
    el("button", { type: "submit", class: "quiet" }, "Show"));
  return { element, show(answer) {
    // Once only: afterwards the reader chooses.
    if (from.value || to.value) return;
    from.value = answer.from.slice(0, 10);
    const [end, time] = answer.to.split("T");
    const isMidnight = time.startsWith("00:00:00");
    to.value = new Date(Date.parse(`${end}T00:00Z`) - (isMidnight ? DAY_MS : 0)).toISOString().slice(0, 10);
  } };
}
