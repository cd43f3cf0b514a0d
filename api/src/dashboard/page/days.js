// The calendar: how final each UTC day is, two months at a time. A day of it opens as a page of its own.

import { address, get, Refused } from "./api.js";
import { dayPage } from "./day.js";
import { el, mark, monthName, start, STATES, stateOf, switcher, utc } from "./format.js";
import { listen } from "./live.js";

const WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MOVES = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -7, ArrowDown: 7 };
const DAY_MS = 86_400_000;

const dayOf = (ms) => new Date(ms).toISOString().slice(0, 10);
const firstOf = (month, ahead = 0) => {
  const [year, number] = month.split("-").map(Number);
  return Date.UTC(year, number - 1 + ahead, 1);
};
const monthOf = (month, ahead) => dayOf(firstOf(month, ahead)).slice(0, 7);

// The day that was open last: the way back leads to it.
let left;

export async function daysPage(of) {
  const { main, declared, parameters, path, title } = of;
  listen(undefined);
  if (!declared.days) {
    title("Days");
    main.replaceChildren(el("h1", {}, "Days"), el("p", {}, "How final days are needs an API key that is not limited to namespaces."));
    return undefined;
  }
  if (path[0]) {
    left = path[0];
    return dayPage(of);
  }
  title("Days");
  const asked = parameters.get("month");
  if (asked && !/^2\d{3}-(0[1-9]|1[0-2])$/.test(asked)) {
    throw new Refused(400, { detail: `\`month\` must be a month such as 2026-03; got \`${asked}\`.` });
  }
  // Without a month the server's clock says which days are the newest: all of this month and of the one before.
  const range = asked ? { from: dayOf(Math.max(firstOf(asked, -1), firstOf("2000-01"))), to: dayOf(firstOf(asked, 1) - DAY_MS) } : {};
  const found = await get(["finals", "days"], range);
  const month = asked ?? found.today.slice(0, 7);
  const known = new Map(found.days.map((day) => [day.day, day]));
  const here = (ahead) => `/days?${new URLSearchParams({ ...Object.fromEntries(parameters), month: monthOf(month, ahead) })}`;
  const isNewest = month >= found.today.slice(0, 7);
  const months = el("div", { class: "pair", onkeydown: move },
    ...[0, -1].map((ahead) => grid(monthOf(month, ahead), known, found.today)));
  main.replaceChildren(
    el("div", { class: "head" },
      el("h1", {}, "Days"),
      switcher("Months", [["earlier", "Earlier", here(-2)], ...(isNewest ? [] : [["later", "Later", here(2)]])])),
    el("p", { class: "muted" }, ...becoming(found)),
    el("ul", { class: "legend", "aria-label": "States" }, ...Object.entries(STATES).map(([state, [, name, words]]) =>
      el("li", {}, mark(state), el("span", {}, el("strong", {}, name), ` ${words}`)))),
    months,
    el("p", { class: "links" }, "As a file:", ...[["CSV", "days.csv"], ["JSON", "days"]].map(([text, file]) =>
      el("a", { href: address(["finals", file], { from: found.days[0].day, to: found.days.at(-1).day }) }, text))));
  months.querySelector(`[data-day="${left}"]`)?.focus();
  left = undefined;
  return undefined;
}

// How days become final here, and until when they are.
function becoming({ final_until: until, after_hours: hours }) {
  const how = hours === null
    ? ["No day becomes final by itself: set ", el("code", {}, "[final]"), " in the configuration, or run ", el("code", {}, "tallyring reconcile DAY"), "."]
    : [`A day becomes final ${hours} hours after its end.`];
  const since = until ? `Every day is final until ${utc(until)}, from the first final one on. ` : "No day is final yet. ";
  return ["Days are those of UTC. ", since, ...how];
}

function grid(month, known, today) {
  const first = firstOf(month);
  const days = Math.round((firstOf(month, 1) - first) / DAY_MS);
  const cells = Array.from({ length: (new Date(first).getUTCDay() + 6) % 7 }, () => el("td"));
  for (let index = 0; index < days; index += 1) {
    const day = dayOf(first + index * DAY_MS);
    cells.push(el("td", {}, day <= today && known.has(day) ? link(known.get(day), today) : el("span", { class: "day" }, `${index + 1}`)));
  }
  const weeks = Array.from({ length: Math.ceil(cells.length / 7) }, (_, week) => el("tr", {}, ...cells.slice(7 * week, 7 * week + 7)));
  return el("section", { class: "card", "aria-labelledby": month },
    el("h2", { id: month }, monthName(month)),
    el("table", { class: "month", "aria-labelledby": month },
      el("thead", {}, el("tr", {}, ...WEEKDAYS.map((name) => el("th", { scope: "col", abbr: name }, name.slice(0, 2))))),
      el("tbody", {}, ...weeks)));
}

function link(day, today) {
  const state = stateOf(day);
  const version = day.versions.length ? `, version ${day.versions.at(-1)}` : "";
  const words = `${start(day.day, "day")}: ${STATES[state][1]}${version}`;
  return el("a", { class: "day", href: `/days/${day.day}`, "data-day": day.day, "data-state": state, title: words,
    "aria-current": day.day === today ? "date" : undefined }, `${Number(day.day.slice(8))}`, mark(state), el("span", { class: "hidden" }, `, ${words}`));
}

// The arrows of the keyboard lead from day to day.
function move(event) {
  const from = event.target.dataset?.day;
  if (!from || !MOVES[event.key] || event.altKey || event.ctrlKey || event.metaKey) return;
  const to = dayOf(Date.parse(from) + MOVES[event.key] * DAY_MS);
  event.preventDefault();
  event.currentTarget.querySelector(`[data-day="${to}"]`)?.focus();
}
