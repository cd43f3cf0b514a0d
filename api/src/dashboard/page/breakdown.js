// All values of a breakdown of a key: their counts, shares and changes, to be searched and sorted.

import { address, get, query, Refused } from "./api.js";
import { change, count, el, keyHref, percent, settledOf, switcher } from "./format.js";
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
  // Several values of one site stand together unless the address says otherwise.
  const hasSites = bySite(rows).length < rows.length;
  const isFolded = hasSites && parameters.get("fold") !== "none";
  const unfolded = new Set(parameters.getAll("open"));

  // Another range is of a unit and a length of its own.
  const beside = { ...named(parameters, ["basis", "compare", "fold"]), timezone: zone };
  const kept = { ...named(parameters, ["unit", "units"]), ...beside };
  const here = (others) => query({ ...kept, ...asked, ...others });
  let sort = COLUMNS.some(([column]) => column === parameters.get("sort")) ? parameters.get("sort") : "count";
  const search = el("input", { type: "search", value: parameters.get("q") ?? "", placeholder: "Search a value", "aria-label": "Search a value", oninput: draw });
  const ranges = picker(asked, times, { ...beside, ...only }, alone ? undefined : comparisons(compare ?? "none", (value) => here({ ...only, compare: value })));
  ranges.show(found);
  const folds = hasSites ? switcher("List", [["", "Sites"], ["none", "Values"]], isFolded ? "" : "none") : undefined;
  const heads = COLUMNS.map(([column, text]) =>
    el("th", { scope: "col" }, el("button", { type: "button", onclick() { sort = column; draw(); } }, text)));
  const body = el("tbody");
  const note = el("p", { class: "muted", role: "status" });
  main.replaceChildren(
    el("div", {},
      el("p", { class: "crumbs" }, el("a", { href: keyHref(name, key, here(only)) }, key)),
      el("h1", {}, `By ${by}`)),
    el("div", { class: "head" }, search, folds, ranges.element),
    chips(titles, only, here),
    el("section", { class: "card" },
      el("div", { class: "scroll values", tabindex: "0", role: "region", "aria-label": `By ${by}` },
        el("table", {}, el("thead", {}, el("tr", {}, ...heads)), body)),
      note),
    el("p", { class: "links" }, "As a file:", ...[["SVG", ".svg"], ["CSV", ".csv"], ["JSON", ""]].map(([text, end]) =>
      el("a", { href: address(of("by", `${subtotal}${end}`), range) }, text))));

  function draw() {
    const text = search.value.trim().toLowerCase();
    const seen = { ...only, q: search.value.trim(), sort: sort === "count" ? "" : sort, open: [...unfolded] };
    history.replaceState(history.state, "", here(seen));
    for (const link of folds?.children ?? []) link.href = here({ ...seen, fold: link.dataset.value });
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
    const cells = (row, first) => el("tr", { class: row.within ? "within" : undefined }, el("td", {}, first),
      el("td", {}, count(row.count)), el("td", {}, percent(row.count / found.total)), el("td", {}, changeIn(row)));
    const line = (row) => cells(row, el("a", { href: keyHref(name, key, here({ ...only, ...row.only })), title: row.value }, row.name));
    body.replaceChildren(...(isFolded ? bySite(shown).sort(order) : shown).flatMap((row) => {
      if (!row.values) return line(row);
      const isOpen = unfolded.has(row.name);
      const fold = el("button", { type: "button", "aria-expanded": `${isOpen}`, onclick() {
        unfolded[isOpen ? "delete" : "add"](row.name);
        draw();
        [...body.querySelectorAll("button")].find((other) => other.textContent === fold.textContent).focus();
      } }, `${row.name} (${count(row.values.length)})`);
      return [cells(row, fold), ...(isOpen ? row.values.map((value) => line({ ...value, within: true })) : [])];
    }));
    note.textContent = [
      shown.length === 1 ? "1 value" : `${count(shown.length)} values`,
      found.other && `the ${count(LISTED)} largest are listed here, all others have ${count(found.other)} together`,
      rows.some(({ gain }) => gain) && `changes of settled counts, against ${comparison}`,
    ].filter(Boolean).join("; ");
  }
  draw();
  return undefined;
}

// Rows of which those of one site are folded into one, with its `values`.
function bySite(rows) {
  return [...Map.groupBy(rows, (row) => row.site ?? row)].map(([name, values]) => {
    if (values.length === 1) return values[0];
    const sum = (of) => values.reduce((total, row) => total + of(row), 0);
    const gain = values.every((row) => row.gain) ? { now: sum((row) => row.gain.now), before: sum((row) => row.gain.before) } : undefined;
    return { name, value: name, count: sum((row) => row.count), gain, values };
  });
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
