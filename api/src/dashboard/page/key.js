// The page of a key: its series, what it is broken down by, its users, and the period before.

import { address, get, query, Refused } from "./api.js";
import { chart, spark } from "./chart.js";
import { changeOf, count, el, fill, hint, keyHref, percent, rounded, scroll, start, switcher, tile, tiles, utc } from "./format.js";
import { listen, seldom } from "./live.js";
import { comparisonOf, comparisons, dayOf, isShown, picker, rangeOf, unitOf } from "./range.js";
import { reachHref } from "./reach.js";
import { ofCounts, ofRatios, ofUsers, WEEK } from "./touch.js";
import { chips, onlyOf, rowOf, titlesOf } from "./values.js";

// Units, and how many of them are shown unless the address names a range.
export const UNITS = [
  ["minute", "Minute", 60],
  ["hour", "Hour", 48],
  ["day", "Day", 30],
  ["mweek", "Week", 26],
  ["month", "Month", 12],
  ["quarter", "Quarter", 8],
  ["year", "Year", 5],
];
const LIVE_REFRESH_MS = 3_000;
// Hours are summed by weekday for as many days: whole weeks, and no more hours than an answer has room for.
const WEEK_DAYS = [7, 416];
const VALUES = 8;

const place = (unit) => UNITS.findIndex(([known]) => known === (unit === "week" ? "mweek" : unit));

// The unit of a range and its length, where the range has no other ends.
export function rangeOfKey(parameters, times) {
  // What the address names goes to the API as it is, which says what is wrong with it. Weeks that begin on Sunday have
  // no switch, but an address.
  const isLimited = times.from || times.units;
  const unit = parameters.get("unit") || (isLimited ? unitOf(times) : "day");
  const [, , usual] = UNITS.find(([value]) => value === unit) ?? UNITS.find(([value]) => value === "mweek");
  return { unit, units: parameters.get("units") || (isLimited ? undefined : `${usual}`), ...times };
}

// The part of a range from `low` to `high`, of 0 to 1, whose buckets have these edges: parameters of an address.
export function partOf(edges, unit, zone, low, high) {
  const last = edges.length - 1;
  const [first, end] = [Math.floor(low * last), Math.min(last, Math.ceil(high * last))];
  // Days stay days where the zone is changed.
  const isByTime = unit === "hour" || unit === "minute";
  const at = (ms) => (isByTime ? new Date(ms).toISOString() : dayOf(zone, ms));
  const named = { from: at(Date.parse(edges[first])), to: at(Date.parse(edges[end]) - 1_000) };
  return { unit: [unit, unitOf(named)].sort((a, b) => place(a) - place(b))[0], ...named };
}

// Goes to a part of what is shown, from which Escape leads back.
export function zoomTo(search, go) {
  if (search !== location.search) go(search, false, { zoomed: true });
}

// The edges of an answer's buckets.
export const edgesOf = ({ counts, to }) => [...counts.map((row) => row.start), to];

export async function keyPage({ main, declared, zone, parameters, title, path, go }) {
  const [name, key] = path;
  const namespace = declared.namespaces.find((known) => known.name === name);
  title(`${key} · ${namespace?.title || name}`);
  if (!namespace) {
    const known = declared.namespaces.map((other) => other.name).join(", ");
    main.replaceChildren(el("h1", {}, "No such namespace"), el("p", {}, `The namespace ${name} is not declared, or your API key may not read it. You can see ${known}.`));
    return undefined;
  }
  const { asked, times } = rangeOf(parameters, zone);
  const choices = UNITS.filter(([unit]) => (unit !== "minute" || namespace.minutes) && isShown(unit, times));
  const unranged = rangeOfKey(parameters, times);
  const { unit } = unranged;
  const only = onlyOf(parameters);
  const isAll = !Object.keys(only).length;
  const titles = titlesOf(namespace);
  // Which numbers: those that are counted, or the final ones.
  const basis = [null, "", "counted"].includes(parameters.get("basis")) ? undefined : parameters.get("basis");
  const numbers = basis ? { basis } : {};
  const range = { ...unranged, timezone: zone, ...numbers, ...only };
  const compared = parameters.get("compare") ? { compare: parameters.get("compare") } : {};
  const here = (named, values = only) => `?${new URLSearchParams({ unit, timezone: zone, ...numbers, ...compared, ...values, ...named })}`;
  let notFinal;
  if (basis === "final" && !times.to) {
    // The newest of them; a range that ends is taken as it is.
    const newest = await newestFinal([name, key, "counts"], { ...range, basis: undefined });
    notFinal = newest.notFinal;
    Object.assign(range, newest.times);
  }
  const lengthOf = parameters.get("units") ? { units: unranged.units } : {};
  const bases = declared.finals ? switcher("Numbers", [["counted", "Counted"], ["final", "Final"]]
    .map(([value, text]) => [value, text, here({ basis: value, ...lengthOf, ...asked })]), basis ?? "counted") : undefined;
  const finality = el("p", { class: "muted" });
  finality.hidden = true;

  // Nothing is before all time, and no day before the first final one is final.
  let [compare, comparison] = basis || Number(range.units) === -1 ? [] : comparisonOf(parameters, unit);
  const ranges = picker(asked, times, { timezone: zone, ...numbers, ...compared, ...only },
    basis ? undefined : comparisons(compare ?? "none", (value) => here({ ...lengthOf, ...asked, compare: value })));
  const total = tile("The range");
  const today = tile("Today so far");
  const busiest = tile(`Busiest ${nameOf(unit)}`);
  const always = tile("All time");
  // Live counts, users and ratios are not told apart by values.
  const shownTiles = [total.element, ...(isAll ? [today.element] : []), busiest.element, always.element];
  const minute = isAll && namespace.minutes ? tile("Last minute") : undefined;
  const bars = minute && spark();
  if (minute) {
    minute.element.append(bars.element);
    shownTiles.push(minute.element);
  }
  const users = isAll && namespace.uniques ? tile("Distinct users") : undefined;
  if (users) shownTiles.push(users.element);
  const ratios = (isAll ? ratiosOf(declared, name) : []).map((ratio) => ({ ...ratio, tile: tile(ratio.name.toUpperCase()) }));
  shownTiles.push(...ratios.map((ratio) => ratio.tile.element));

  const of = (...rest) => [name, key, ...rest];
  // Only totals have minutes: breakdowns and users are told by the hours that hold them. They are kept by hours of UTC,
  // of which each counts in the local hour that it begins in: where zones differ by half an hour, another than its minutes.
  const hourOf = (ms) => new Date(ms - (ms % 3_600_000)).toISOString().slice(0, 19) + "Z";
  // The server's minutes that are shown: its clock may be another one than the browser's.
  let minutes;
  const whole = () => (unit === "minute" && minutes
    ? { unit: "hour", from: hourOf(minutes.from), to: hourOf(minutes.to - 60_000), timezone: zone, ...numbers, ...only } : range);
  // The buckets of the series: their starts, and the end of the last one.
  let edges = [];
  const zoom = (low, high) => zoomTo(here(partOf(edges, unit, zone, low, high)), go);
  const series = chart((width) => address(of("counts.svg"), { ...range, compare, width }), "chart", zoom);
  const breakdowns = namespace.subtotals.map((subtotal) => ranking(titles, subtotal, {
    read: () => get(of("by", subtotal), { ...whole(), limit: VALUES }),
    hrefOf: (values) => here({ ...lengthOf, ...asked }, { ...only, ...values }),
    // The hours that hold minutes, and the newest final days, go along as they are.
    all: () => keyHref(name, key, `/by/${subtotal}${unit === "minute" || basis ? query(whole()) : here({ ...lengthOf, ...asked })}`),
  }));
  const uniques = users && unit !== "minute"
    ? chart((width) => address(of("uniques.svg"), { ...range, width })) : undefined;
  // All time has no ends but those that are shown.
  const week = chart((width) => address(of("week.svg"), { unit: "hour", from: edges[0], to: new Date(minutes.to - 1_000).toISOString(),
    timezone: zone, ...numbers, width }));
  week.tell(WEEK);
  const weekly = el("section", { class: "stack", "aria-labelledby": "week", hidden: true }, el("h2", { id: "week" }, "Hours of the week"), week.element);
  const divided = ratios.map((ratio) => chart((width) => address(["ratios", ratio.name, ratio.entity, `${key}.svg`], { ...range, width })));
  const nothing = hint("Nothing was counted for this key yet", "New counts appear here without reloading. Count something:",
    `curl '${location.origin}${address(["incr"], { [`key.${name}`]: key })}'`);
  nothing.hidden = true;
  const rows = el("tbody");
  const table = el("details", { class: "card" },
    el("summary", {}, "Numbers"),
    scroll("Numbers",
      el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "From"), el("th", { scope: "col" }, "Count"), el("th", { scope: "col" }, "Before"))), rows)));
  const files = [["SVG", "counts.svg"], ["CSV", "counts.csv"], ["JSON", "counts"], ["Badge", "badge"]];
  const counted = el("div", { class: "stack" },
    series.element,
    ...(unit === "minute" && (breakdowns.length || users) ? [el("p", { class: "muted" }, "Breakdowns and distinct users are kept by the hour: they are those of the whole hours that hold these minutes.")] : []),
    ...(breakdowns.length ? [el("div", { class: breakdowns.length % 3 ? "pair" : "trio" }, ...breakdowns.map(({ element }) => element))] : []),
    ...(uniques ? [uniques.element] : []),
    ...divided.map(({ element }) => element),
    weekly,
    table);
  const shown = tiles(...shownTiles);
  main.replaceChildren(
    el("div", {},
      el("p", { class: "crumbs" }, el("a", { href: `/?namespace=${name}` }, namespace.title || name)),
      el("h1", {}, key)),
    el("div", { class: "head" },
      switcher("Unit", choices.map(([value, text]) => [value, text, here({ unit: value, ...asked })]), unit),
      el("div", { class: "head" },
        isAll && !basis ? el("a", { href: `/compare${here({ key: `${name}/${key}`, ...lengthOf, ...asked })}` }, "Compare with other keys…") : undefined,
        ranges.element,
        bases)),
    finality,
    chips(titles, only, (values) => here({ ...lengthOf, ...asked }, values)),
    shown,
    nothing,
    counted,
    ...(isAll && declared.actions && namespace.actions ? [el("p", { class: "links" },
      el("a", { href: reachHref(name, key, `?${new URLSearchParams({ timezone: zone })}`) }, "Reach and frequency"))] : []),
    el("p", { class: "links" }, "As a file:", ...files.map(([text, file]) => el("a", { href: address(of(file), range) }, text))),
  );

  async function counts() {
    try {
      return await get(of("counts"), { ...range, compare });
    } catch (error) {
      if (!compare || !(error instanceof Refused) || error.status !== 422) throw error;
      // The range itself may be one before which nothing can be read.
      compare = undefined;
      return counts();
    }
  }

  let soFar;
  async function refresh() {
    const found = await counts();
    ranges.show(found);
    sayFinality(finality, declared, found);
    minutes = { from: Date.parse(found.from), to: Date.parse(found.to) };
    edges = edgesOf(found);
    series.tell(ofCounts(found, comparison));
    const many = found.counts.length;
    total.name(`${count(many)} ${nameOf(unit)}${many === 1 ? "" : "s"}`);
    const isSettled = Date.parse(found.to) <= Date.parse(found.settled_until);
    total.set(rounded(found.total), changeOf(found, `${isSettled ? "" : "where settled, "}against ${comparison}`));
    const peak = found.counts.reduce((most, row) => (row.count > most.count ? row : most), found.counts[0]);
    busiest.set(rounded(peak.count), peak.count ? start(peak.start, found.unit) : "");
    rows.replaceChildren(...found.counts.map((row, index) =>
      el("tr", {}, el("td", {}, start(row.start, found.unit)), el("td", {}, count(row.count)), el("td", {}, compare ? count(found.before.counts[index]) : "–"))).reverse());
    const days = Math.round((minutes.to - minutes.from) / 86_400_000);
    weekly.hidden = !isAll || days < WEEK_DAYS[0] || days > WEEK_DAYS[1];
    await Promise.all([
      series.refresh(),
      weekly.hidden || week.refresh(),
      get(of("summary"), { unit: "year", units: -1, timezone: zone, ...only })
        .then((found) => {
          always.set(rounded(found.total), found.total ? `since ${start(found.from, "year")}` : "");
          nothing.hidden = found.total > 0 || !isAll;
          counted.hidden = !nothing.hidden;
        }),
      ...breakdowns.map((breakdown) => breakdown.refresh()),
      uniques?.refresh(),
      ...divided.map((ratio) => ratio.refresh()),
      users && get(of("uniques"), whole()).then((found) => {
        users.set(rounded(found.estimate),
          `±${(found.relative_error * 100).toFixed(1)}%, ${unit === "minute" ? "of whole hours" : "each once"}`);
        uniques?.tell(ofUsers(found));
      }),
      ...ratios.map(async (ratio, index) => {
        const found = await get(["ratios", ratio.name, ratio.entity, key], range);
        divided[index].tell(ofRatios(found));
        ratio.tile.set(found.ratio === null ? "–" : percent(found.ratio), `${rounded(found.numerator)} of ${rounded(found.denominator)}`);
      }),
    ]);
  }

  const again = seldom(refresh, LIVE_REFRESH_MS);
  listen(address(["live"], { namespace: name, key, timezone: zone }), (tick) => {
    if (soFar !== tick.today) {
      soFar = tick.today;
      today.set(rounded(tick.today), `in ${zone}`);
    }
    // Final numbers do not change.
    if (!basis) again(tick.today).catch(() => {});
    if (minute) {
      get(of("counts"), { unit: "second" }).then((found) => {
        minute.set(count(found.total), found.complete ? "second by second" : "incomplete so far");
        bars.set(found.counts.map((row) => row.count));
      }).catch(() => {});
    }
  });
  try {
    if (notFinal) throw new Refused(422, { detail: notFinal });
    await refresh();
  } catch (error) {
    if (!basis || !(error instanceof Refused) || error.status !== 422) throw error;
    shown.hidden = true;
    counted.replaceChildren(hint("Not wholly final", error.message));
  }
  return { nextUnit() {
    const index = choices.findIndex(([value]) => value === unit);
    return here({ unit: choices[(index + 1) % choices.length][0], ...asked });
  } };
}

// The largest values of a breakdown, each of which leads to the page about it alone. `read` asks for them, `hrefOf` makes
// the address of a page about some values, and `all` that of the page with all values.
function ranking(titles, subtotal, { read, hrefOf, all }) {
  const list = el("ol", { class: "ranking" });
  const more = el("a", {}, "Show all");
  const element = el("section", { class: "card" }, el("div", { class: "head" }, el("h2", {}, `By ${titles[subtotal]}`), more), list);
  return { element, async refresh() {
    const found = await read().catch((error) => {
      if (error instanceof Refused && error.status === 422) return error;
      throw error;
    });
    more.href = all();
    more.hidden = found instanceof Refused;
    if (more.hidden) {
      list.replaceChildren(el("li", { class: "muted" }, found.message));
      return;
    }
    const most = Math.max(1, found.other, ...found.values.map((value) => value.count));
    const rows = found.values.map((value) => rowOf(titles, subtotal, value));
    if (found.other) rows.push({ name: "all others", count: found.other });
    list.replaceChildren(...rows.map((row) => el("li", {},
      fill(row.count / most),
      row.only ? el("a", { href: hrefOf(row.only), title: row.value }, row.name) : el("span", { class: "name muted" }, row.name),
      el("span", { class: "count" }, count(row.count)))));
    if (!rows.length) list.replaceChildren(el("li", { class: "empty" }, "Nothing was counted in this range."));
  } };
}

// The newest buckets of a range without an end that are all final, as times for the API; or why there are none.
async function newestFinal(of, range) {
  const { final_until: until } = await get(of, { ...range, from: undefined, units: 1 });
  if (!until) return { notFinal: "No day is final yet." };
  if (Date.parse(range.from) >= Date.parse(until)) return { notFinal: `Days are final until ${utc(until)}, and the range begins later.` };
  const before = (moment) => new Date(Date.parse(moment) - 1_000).toISOString();
  const { counts, to } = await get(of, { ...range, to: before(until) });
  const are = counts.map(({ state }) => state === "final" || state === "corrected");
  const last = are.lastIndexOf(true);
  if (last < 0) return { notFinal: `Days are final until ${utc(until)}, and no ${nameOf(range.unit)} is wholly final.` };
  const first = are.lastIndexOf(false, last) + 1;
  return { times: { units: undefined, from: counts[first].start, to: before(counts[last + 1]?.start ?? to) } };
}

// How much of what is shown is final, where days become final.
function sayFinality(place, declared, { state, final_until: until }) {
  place.hidden = !declared.finals;
  if (state === "final") place.textContent = "All of this range is final.";
  else place.textContent = until ? `Days are final until ${utc(until)}; other numbers of this range may change.` : "No day is final yet.";
}

// Ratios of the entity that this namespace counts an event of.
function ratiosOf(declared, name) {
  return declared.ratios.flatMap((ratio) => [ratio.numerator, ratio.denominator]
    .filter((type) => name.endsWith(`_${type}`))
    .map((type) => ({ name: ratio.name, entity: name.slice(0, -type.length - 1) })));
}

const nameOf = (unit) => (unit === "mweek" ? "week" : unit);
