// The page of a key: its series, what it is broken down by, its users, and the period before.

import { address, get, Refused } from "./api.js";
import { chart, spark } from "./chart.js";
import { change, count, el, hint, percent, rounded, start, switcher, tile, tiles } from "./format.js";
import { listen, seldom } from "./live.js";

// Units with the numbers of them that can be chosen; the first is the usual one.
export const UNITS = [
  ["minute", "Minute", [60, 180, 720]],
  ["hour", "Hour", [48, 24, 168]],
  ["day", "Day", [30, 7, 90, 365]],
  ["mweek", "Week", [26, 12, 52]],
  ["month", "Month", [12, 24, 60]],
  ["quarter", "Quarter", [8, 20]],
  ["year", "Year", [5, 10]],
];
const LIVE_REFRESH_MS = 3_000;

export async function keyPage({ main, declared, zone, parameters, title, path }) {
  const [name, key] = path;
  const namespace = declared.namespaces.find((known) => known.name === name);
  title(`${key} · ${namespace?.title || name}`);
  if (!namespace) {
    const known = declared.namespaces.map((other) => other.name).join(", ");
    main.replaceChildren(el("h1", {}, "No such namespace"), el("p", {}, `The namespace ${name} is not declared, or your API key may not read it. You can see ${known}.`));
    return undefined;
  }
  const units = UNITS.filter(([unit]) => unit !== "minute" || namespace.minutes);
  // Weeks that begin on Sunday have no switch, but an address.
  const asked = parameters.get("unit") === "week" ? "week" : undefined;
  const [unit, , lengths] = units.find(([value]) => value === parameters.get("unit")) ?? units.find(([value]) => value === (asked ? "mweek" : "day"));
  const length = Number.parseInt(parameters.get("units") ?? "", 10) || lengths[0];
  const range = { unit: asked ?? unit, units: length, timezone: zone };
  const here = (changes) => `?${new URLSearchParams({ ...range, ...changes })}`;

  const total = tile(`${count(length)} ${plural(unit, length)}`);
  const today = tile("Today so far");
  const busiest = tile(`Busiest ${unit === "mweek" ? "week" : unit}`);
  const always = tile("All time");
  const shownTiles = [total.element, today.element, busiest.element, always.element];
  const minute = namespace.minutes ? tile("Last minute") : undefined;
  const bars = minute && spark();
  if (minute) {
    minute.element.append(bars.element);
    shownTiles.push(minute.element);
  }
  const users = namespace.uniques ? tile("Distinct users") : undefined;
  if (users) shownTiles.push(users.element);
  const ratios = ratiosOf(declared, name).map((ratio) => ({ ...ratio, tile: tile(ratio.name.toUpperCase()) }));
  shownTiles.push(...ratios.map((ratio) => ratio.tile.element));

  const of = (...rest) => [name, key, ...rest];
  // Only totals have minutes: breakdowns and users are told by the hours that hold them. They are kept by hours of UTC,
  // of which each counts in the local hour that it begins in: where zones differ by half an hour, another than its minutes.
  const hourOf = (ms) => new Date(ms - (ms % 3_600_000)).toISOString().slice(0, 19) + "Z";
  // The server's minutes that are shown: its clock may be another one than the browser's.
  let minutes;
  const whole = () => (unit === "minute" && minutes
    ? { unit: "hour", from: hourOf(minutes.from), to: hourOf(minutes.to - 60_000), timezone: zone } : range);
  let compare = "before";
  const series = chart((width) => address(of("counts.svg"), { ...range, compare, width }));
  const breakdowns = namespace.subtotals.map((subtotal) =>
    chart((width) => address(of("by", `${subtotal}.svg`), { ...whole(), limit: 8, width }), "chart short"));
  const uniques = namespace.uniques && unit !== "minute"
    ? chart((width) => address(of("uniques.svg"), { ...range, width })) : undefined;
  const divided = ratios.map((ratio) => chart((width) => address(["ratios", ratio.name, ratio.entity, `${key}.svg`], { ...range, width })));
  const nothing = hint("Nothing was counted for this key yet", "New counts appear here without reloading. Count something:",
    `curl '${location.origin}${address(["incr"], { [`key.${name}`]: key })}'`);
  nothing.hidden = true;
  const rows = el("tbody");
  const table = el("details", { class: "card" },
    el("summary", {}, "Numbers"),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Numbers" },
      el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "From"), el("th", { scope: "col" }, "Count"), el("th", { scope: "col" }, "Before"))), rows)));
  const files = [["SVG", "counts.svg"], ["CSV", "counts.csv"], ["JSON", "counts"], ["Badge", "badge"]];
  const counted = el("div", { class: "stack" },
    series.element,
    ...(unit === "minute" && (breakdowns.length || users) ? [el("p", { class: "muted" }, "Breakdowns and distinct users are kept by the hour: they are those of the whole hours that hold these minutes.")] : []),
    ...(breakdowns.length ? [el("h2", { class: "hidden" }, "Broken down"), el("div", { class: breakdowns.length % 3 ? "pair" : "trio" }, ...breakdowns.map(({ element }) => element))] : []),
    ...(uniques ? [uniques.element] : []),
    ...divided.map(({ element }) => element),
    table);
  main.replaceChildren(
    el("div", {},
      el("p", { class: "crumbs" }, el("a", { href: `/?namespace=${name}` }, namespace.title || name)),
      el("h1", {}, key)),
    el("div", { class: "head" },
      switcher("Unit", units.map(([value, text]) => [value, text, `?${new URLSearchParams({ unit: value, timezone: zone })}`]), asked ?? unit),
      switcher("Length", [...new Set([...lengths, length])].sort((a, b) => a - b).map((n) => [`${n}`, count(n), here({ units: n })]), `${length}`)),
    tiles(...shownTiles),
    nothing,
    counted,
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

  const shown = { today: undefined };
  async function refresh() {
    const found = await counts();
    minutes = { from: Date.parse(found.from), to: Date.parse(found.to) };
    await Promise.all([
      series.refresh(),
      get(of("summary"), { unit: "year", units: -1, timezone: zone })
        .then((found) => {
          always.set(rounded(found.total), found.total ? `since ${start(found.from, "year")}` : "");
          nothing.hidden = found.total > 0;
          counted.hidden = found.total === 0;
        }),
      ...breakdowns.map((breakdown) => breakdown.refresh()),
      uniques?.refresh(),
      ...divided.map((ratio) => ratio.refresh()),
      users && get(of("uniques"), whole())
        .then((found) => users.set(rounded(found.estimate),
          `±${(found.relative_error * 100).toFixed(1)}%, ${unit === "minute" ? "of whole hours" : "each once"}`)),
      ...ratios.map(async (ratio) => {
        const found = await get(["ratios", ratio.name, ratio.entity, key], range);
        ratio.tile.set(found.ratio === null ? "–" : percent(found.ratio), `${rounded(found.numerator)} of ${rounded(found.denominator)}`);
      }),
    ]);
    // What may still grow would look like a fall: only buckets that are settled are compared.
    const settled = Date.parse(found.settled_until);
    const ends = [...found.counts.slice(1).map((row) => row.start), found.to];
    const part = (counts) => counts.reduce((sum, n, index) => (Date.parse(ends[index]) <= settled ? sum + n : sum), 0);
    const isSettled = Date.parse(found.to) <= settled;
    const before = found.before ?? { covered: false, counts: [] };
    total.set(rounded(found.total), change(part(found.counts.map((row) => row.count)), part(before.counts), before.covered,
      isSettled ? "against the period before" : "where settled, against the period before"));
    const peak = found.counts.reduce((most, row) => (row.count > most.count ? row : most), found.counts[0]);
    busiest.set(rounded(peak.count), peak.count ? start(peak.start, found.unit) : "");
    rows.replaceChildren(...found.counts.map((row, index) =>
      el("tr", {}, el("td", {}, start(row.start, found.unit)), el("td", {}, count(row.count)), el("td", {}, compare ? count(before.counts[index]) : "–"))).reverse());
  }

  const again = seldom(refresh, LIVE_REFRESH_MS);
  listen(address(["live"], { namespace: name, key, timezone: zone }), (tick) => {
    if (shown.today !== tick.today) {
      shown.today = tick.today;
      today.set(rounded(tick.today), `in ${zone}`);
    }
    again(tick.today).catch(() => {});
    if (minute) {
      get(of("counts"), { unit: "second" }).then((found) => {
        minute.set(count(found.total), found.complete ? "second by second" : "incomplete so far");
        bars.set(found.counts.map((row) => row.count));
      }).catch(() => {});
    }
  });
  await refresh();
  return { nextUnit() {
    const index = units.findIndex(([value]) => value === unit);
    return `?${new URLSearchParams({ unit: units[(index + 1) % units.length][0], timezone: zone })}`;
  } };
}

// Ratios of the entity that this namespace counts an event of.
function ratiosOf(declared, name) {
  return declared.ratios.flatMap((ratio) => [ratio.numerator, ratio.denominator]
    .filter((type) => name.endsWith(`_${type}`))
    .map((type) => ({ name: ratio.name, entity: name.slice(0, -type.length - 1) })));
}

function plural(unit, length) {
  const name = unit === "mweek" ? "week" : unit;
  return length === 1 ? name : `${name}s`;
}
