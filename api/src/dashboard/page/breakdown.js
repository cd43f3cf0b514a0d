// All values of a breakdown of a key: their counts, shares and changes, to be searched and sorted.

import { address, get, query, Refused } from "./api.js";
import { change, count, el, keyHref, percent, settledOf } from "./format.js";
import { rangeOfKey } from "./key.js";
import { listen } from "./live.js";
import { comparisonOf, comparisons, named, picker, rangeOf } from "./range.js";
import { chips, onlyOf, rowOf, titlesOf } from "./values.js";

const LISTED = 1_000;
// As many as the API tells: a value that is not among them has no change here.
const COMPARED = 10_000;
const COLUMNS = [["value", "Value"], ["count", "Count"], ["share", "Share"], ["change", "Change"]];

export async function breakdownPage({ main, declared, zone, parameters, title, path }) {
  const [name, key, , subtotal] = path;
  listen(undefined);
  const titles = titlesOf(declared.namespaces.find((known) => known.name === name) ?? { subtotals: [] });
  const { asked, times } = rangeOf(parameters, zone);
  const only = onlyOf(parameters);
  const basis = parameters.get("basis") || undefined;
  const range = { ...rangeOfKey(parameters, times), timezone: zone, basis, ...only };
  const of = (...rest) => [name, key, ...rest];
  const found = await get(of("by", subtotal), { ...range, limit: LISTED });
  const by = titles[subtotal];
  title(`${key} by ${by}`);
  const alone = basis || +range.units === -1;
  const [compare, comparison] = alone ? [] : comparisonOf(parameters, range.unit);
  const gainOf = compare ? await gains(of, subtotal, range, compare) : () => undefined;
  const rows = found.values.map((value) => ({ ...rowOf(titles, subtotal, value), gain: gainOf(value.value) }));

  // Another range is of a unit and a length of its own.
  const beside = { ...named(parameters, ["basis", "compare"]), timezone: zone };
  const kept = { ...named(parameters, ["unit", "units"]), ...beside };
  const here = (others) => query({ ...kept, ...asked, ...others });
  let sort = COLUMNS.some(([column]) => column === parameters.get("sort")) ? parameters.get("sort") : "count";
  const search = el("input", { type: "search", value: parameters.get("q") ?? "", placeholder: "Search a value", "aria-label": "Search a value", oninput: draw });
  const ranges = picker(asked, times, { ...beside, ...only }, alone ? undefined : comparisons(compare ?? "none", (value) => here({ ...only, compare: value })));
  ranges.show(found);
  const heads = COLUMNS.map(([column, text]) =>
    el("th", { scope: "col" }, el("button", { type: "button", onclick() { sort = column; draw(); } }, text)));
  const body = el("tbody");
  const note = el("p", { class: "muted", role: "status" });
  main.replaceChildren(
    el("div", {},
      el("p", { class: "crumbs" }, el("a", { href: keyHref(name, key, here(only)) }, key)),
      el("h1", {}, `By ${by}`)),
    el("div", { class: "head" }, search, ranges.element),
    chips(titles, only, here),
    el("section", { class: "card" },
      el("div", { class: "scroll values", tabindex: "0", role: "region", "aria-label": `By ${by}` },
        el("table", {}, el("thead", {}, el("tr", {}, ...heads)), body)),
      note),
    el("p", { class: "links" }, "As a file:", ...[["SVG", ".svg"], ["CSV", ".csv"], ["JSON", ""]].map(([text, end]) =>
      el("a", { href: address(of("by", `${subtotal}${end}`), range) }, text))));

  function draw() {
    const text = search.value.trim().toLowerCase();
    history.replaceState(history.state, "", here({ ...only, q: search.value.trim(), sort: sort === "count" ? "" : sort }));
    heads.forEach((head, index) => {
      const column = COLUMNS[index][0];
      if (column === sort) head.setAttribute("aria-sort", column === "value" ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
    const size = ({ gain }) => (gain ? gain.now - gain.before : -Infinity);
    const order = {
      value: (a, b) => a.name.localeCompare(b.name, "en"),
      change: (a, b) => size(b) - size(a) || b.count - a.count,
    }[sort] ?? ((a, b) => b.count - a.count);
    const shown = rows.filter((row) => `${row.name} ${row.value}`.toLowerCase().includes(text)).sort(order);
    body.replaceChildren(...shown.map((row) => el("tr", {},
      el("td", {}, el("a", { href: keyHref(name, key, here({ ...only, ...row.only })), title: row.value }, row.name)),
      el("td", {}, count(row.count)), el("td", {}, percent(row.count / found.total)), el("td", {}, changeIn(row)))));
    note.textContent = [
      shown.length === 1 ? "1 value" : `${count(shown.length)} values`,
      found.other && `the ${count(LISTED)} largest are listed here, all others have ${count(found.other)} together`,
      rows.some(({ gain }) => gain) && `changes of settled counts, against ${comparison}`,
    ].filter(Boolean).join("; ");
  }
  draw();
  return undefined;
}

function changeIn({ gain }) {
  if (!gain) return "";
  const size = gain.now - gain.before;
  return el("span", {}, `${size < 0 ? "−" : "+"}${count(Math.abs(size))} `, change(gain.now, gain.before, true, ""));
}

// The counts of each value in the settled part of a range, and in the period that it is compared with, where that is
// covered.
async function gains(of, subtotal, range, compare) {
  try {
    const { counts, to, settled_until: until } = await get(of("counts"), range);
    const settled = settledOf(counts, to, until);
    if (!settled) return () => undefined;
    const within = (from, end) => ({ ...range, units: undefined, from, to: new Date(Date.parse(end) - 1_000).toISOString() });
    const now = within(counts[0].start, counts[settled]?.start ?? to);
    const { before } = await get(of("counts"), { ...now, compare });
    if (!before.covered) return () => undefined;
    const both = await Promise.all([now, within(before.from, before.to)].map((part) => get(of("by", subtotal), { ...part, limit: COMPARED })));
    const [present, past] = both.map(({ values, other }) => [new Map(values.map(({ value, count: n }) => [value, n])), other]);
    return (value) => {
      const [n, m] = [present, past].map(([values, other]) => values.get(value) ?? (other ? undefined : 0));
      return n === undefined || m === undefined ? undefined : { now: n, before: m };
    };
  } catch (error) {
    // Nothing may be before the range.
    if (!(error instanceof Refused) || error.status !== 422) throw error;
    return () => undefined;
  }
}
