// The overview: now, today against yesterday, and the heaviest keys.

import { address, ask, get, Refused } from "./api.js";
import { chart, spark, trend } from "./chart.js";
import { change, changeOf, chooser, count, el, fill, hint, keyHref, rounded, switcher, tile, tiles } from "./format.js";
import { listen, seldom } from "./live.js";
import { picker, rangeOf } from "./range.js";
import { stateLink } from "./state.js";
import { ofCounts } from "./touch.js";

const LISTED = 10;
const LISTED_MAX = 1_000;
// Of one question for many keys; a month has four weeks at least.
const BUCKETS_MAX = 100_000;
const BUCKET_MS = { day: 86_400_000, month: 28 * 86_400_000 };

export async function overview({ main, declared, zone, parameters, title, remember }) {
  const named = (wanted) => declared.namespaces.find(({ name }) => name === wanted);
  const wanted = parameters.get("namespace");
  const namespace = wanted ? named(wanted) : named(remember.get("namespace")) ?? declared.namespaces[0];
  if (wanted && !namespace) {
    const known = declared.namespaces.map(({ name }) => name).join(", ");
    throw new Refused(404, { detail: `\`namespace\` must be one of ${known}; got \`${wanted}\`.` });
  }
  if (!namespace) {
    main.replaceChildren(el("p", { class: "card empty" }, "Your API key may read no namespace."));
    return undefined;
  }
  const { asked, times } = rangeOf(parameters, zone);
  const isRange = Object.keys(asked).length > 0;
  remember.set("namespace", namespace.name);
  title(`${namespace.title || namespace.name}: overview`);
  const here = (changes) => `/?${new URLSearchParams({ namespace: namespace.name, timezone: zone, ...changes })}`;
  // All time has nothing before it against which a key could rise.
  const order = parameters.get("sort") === "rising" && !times.units ? { sort: "rising" } : {};
  const shown = Math.min(Math.max(Number.parseInt(parameters.get("top"), 10) || LISTED, 1), LISTED_MAX);
  const listed = shown === LISTED ? {} : { top: shown };
  // The days that are ranked and drawn: those of the address, or else so many up to today.
  const daysOr = (units) => ({ unit: times.units ? "month" : "day", units: times.from ? undefined : units, ...times, timezone: zone });

  const ranges = picker(isRange ? asked : { period: "7d" }, times, { namespace: namespace.name, timezone: zone, ...order, ...listed });
  const minute = tile("Last minute");
  const bars = spark();
  minute.element.append(bars.element);
  const today = tile("Today so far");
  const yesterday = tile("Yesterday");
  const month = tile("Last 30 days");
  const of = [namespace.name, "counts.svg"];
  const day = { from: undefined };
  const hours = chart((width) => address(of, { unit: "hour", from: day.from, to: day.to, timezone: zone, compare: "before", width }));
  const days = chart((width) => address(of, { ...daysOr(30), width }));
  const keys = el("ol", { class: "ranking trends" });
  const more = el("a", { href: here({ ...asked, ...order, top: Math.min(4 * shown, LISTED_MAX) }) }, "Show more");
  const state = stateLink();
  const first = hint("Nothing was counted here yet", "New counts appear here without reloading. Count something:",
    `curl '${location.origin}${address(["incr"], { [`key.${namespace.name}`]: "abc" })}'`);
  first.hidden = true;
  const byHour = el("section", { class: "stack", "aria-labelledby": "hours" }, el("h2", { id: "hours" }, "Today by the hour"), hours.element);
  const byDay = el("section", { class: "stack", "aria-labelledby": "days" }, el("h2", { id: "days" }, !isRange ? "The last 30 days" : times.units ? "By the month" : "By the day"), days.element);
  main.replaceChildren(
    el("div", { class: "head" },
      el("h1", {}, "Overview"),
      el("a", { href: "/namespaces" }, "All namespaces"),
      state.element,
      chooser("Namespace", declared.namespaces.map(({ name, title: text }) =>
        [name, text || name, here({ namespace: name, ...asked })]), namespace.name)),
    tiles(minute.element, today.element, yesterday.element, month.element),
    first,
    byHour,
    el("section", { class: "card", "aria-labelledby": "top" },
      el("div", { class: "head" },
        el("h2", { id: "top" }, "Top keys"),
        ranges.element),
      times.units ? "" : switcher("Order", [["", "Heaviest", here({ ...asked, ...listed })],
        ["rising", "Rising", here({ ...asked, ...listed, sort: "rising" })]], order.sort ?? ""),
      keys, more),
    byDay,
  );

  async function refresh() {
    const read = (parameters) => get([namespace.name, "counts"], { timezone: zone, ...parameters });
    const ends = await read({ unit: "day", units: 30 });
    const [before, now] = ends.counts.slice(-2);
    day.from = now.start;
    day.to = new Date(Date.parse(ends.to) - 1000).toISOString();
    const [series, top, drawn] = await Promise.all([
      read({ unit: "hour", from: before.start, to: day.to }),
      get([namespace.name, order.sort ? "keys" : "top"], { ...daysOr(7), ...order, limit: shown }),
      isRange ? read(daysOr(30)) : ends,
      hours.refresh(),
      days.refresh(),
    ]);
    ranges.show(top);
    const from = series.counts.findIndex(({ start }) => Date.parse(start) >= Date.parse(now.start));
    const clock = Date.now() + skew;
    const done = series.counts.filter(({ start }) => Date.parse(start) >= Date.parse(now.start) && Date.parse(start) + 3_600_000 <= clock).length;
    const sum = (rows) => rows.reduce((total, row) => total + row.count, 0);
    const sofar = sum(series.counts.slice(from, from + done));
    const same = sum(series.counts.slice(0, done));
    // Counting had begun when a day did: something was counted on an earlier one.
    const isCovered = (day) => sum(ends.counts.slice(0, day)) > 0;
    today.set(rounded(now.count), done ? change(sofar, same, isCovered(-2), `against yesterday, by ${String(done).padStart(2, "0")}:00`) : "the day has just begun");
    yesterday.set(rounded(before.count), change(before.count, ends.counts.at(-3).count, isCovered(-3), "against the day before"));
    month.set(rounded(ends.total), `${rounded(Math.round(ends.total / 30))} a day`);
    days.tell(ofCounts(drawn));
    // As many hours before today as today has, which may be those of a longer or a shorter day.
    const past = series.counts.slice(from).map((_, hour) => series.counts[2 * from - series.counts.length + hour]?.count ?? 0);
    hours.tell(ofCounts({ ...series, counts: series.counts.slice(from), before: { counts: past, covered: isCovered(-2) } }, "the day before"));
    rank(keys, namespace, top, await trendsOf(top, zone));
    more.hidden = top.keys.length < shown || shown === LISTED_MAX;
    first.hidden = ends.total > 0;
    byHour.hidden = ends.total === 0;
    byDay.hidden = ends.total === 0 && !isRange;
  }

  let skew = 0;
  const again = seldom(refresh);
  listen("/v1/live", (tick) => {
    skew = Date.parse(tick.now) - Date.now();
    if (tick.seconds) {
      const sum = tick.seconds.reduce((total, second) => total + second, 0);
      minute.set(count(sum), `${(sum / 60).toFixed(sum < 600 ? 1 : 0)} a second, all namespaces`);
      bars.set(tick.seconds);
    } else {
      minute.set("–", "not told to a key of some namespaces, nor by a read-only server");
    }
    again(tick.applied).catch(() => {});
    state.tick();
  });
  await Promise.all([refresh(), state.ask()]);
  return undefined;
}

// How the listed keys went, in their order, and the period before. Of too many, those behind are left out.
async function trendsOf({ namespace, keys, unit, from, to: end }, zone) {
  const to = new Date(Date.parse(end) - 1_000).toISOString();
  const compare = unit === "day" ? "before" : undefined;
  const buckets = Math.ceil((Date.parse(end) - Date.parse(from)) / BUCKET_MS[unit]);
  const queries = keys.slice(0, BUCKETS_MAX / 2 / buckets).map(({ key }) => ({ namespace, key, unit, from, to, timezone: zone, compare }));
  if (!queries.length) return [];
  return ask(queries).then(({ answers }) => answers, (error) => {
    // Without them the keys are listed all the same.
    if (error instanceof Refused) return [];
    throw error;
  });
}

function rank(list, namespace, top, trends) {
  if (!top.keys.length) {
    list.replaceChildren(el("li", { class: "empty" }, top.sort ? "No key gained against the period before." : "Nothing was counted in this period."));
    return;
  }
  // The rise of a key, or its count.
  const size = ({ count: n, before = 0 }) => n - before;
  const most = size(top.keys[0]);
  list.replaceChildren(...top.keys.map((of, index) =>
    el("li", {},
      fill(size(of) / most),
      el("a", { href: keyHref(namespace.name, of.key), title: of.key }, of.key),
      trends[index] && trend(trends[index], of.key),
      trends[index] && changeOf(trends[index], ""),
      el("span", { class: "count" }, top.sort ? `+${count(size(of))}` : count(of.count)))));
}
