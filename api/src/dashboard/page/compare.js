// Several keys side by side: a line for each, and what each has of all together.

import { address, ask, get, query, Refused } from "./api.js";
import { chart } from "./chart.js";
import { boxOf, findAsTyped, wanted } from "./find.js";
import { changeOf, count, el, hint, keyHref, percent, scroll, switcher } from "./format.js";
import { edgesOf, partOf, rangeOfKey, UNITS, zoomTo } from "./key.js";
import { listen, seldom } from "./live.js";
import { comparisonOf, comparisons, isShown, named, picker, rangeOf } from "./range.js";
import { ofKeys } from "./touch.js";

const KEYS_MAX = 8;
// So many, with the period before, never have more buckets than the API answers at once.
const ASKED_AT_ONCE = 4;
const COLUMNS = ["Key", "Total", "Share", "Change"];

const namespaceOf = (text) => text.split("/")[0];

export async function comparePage({ main, declared, zone, parameters, title, go }) {
  title("Compare");
  const keys = parameters.getAll("key");
  const { asked, times } = rangeOf(parameters, zone);
  const unranged = rangeOfKey(parameters, times);
  const { unit } = unranged;
  const range = { ...unranged, timezone: zone };
  const compared = named(parameters, ["compare"]);
  const lengthOf = parameters.get("units") ? { units: unranged.units } : {};
  const beside = { timezone: zone, ...compared };
  const here = (others, chosen = keys) => query({ key: chosen, unit, ...beside, ...others });
  const whole = (chosen) => here({ ...lengthOf, ...asked }, chosen);
  const hasMinutes = keys.every((text) => declared.namespaces.find(({ name }) => name === namespaceOf(text))?.minutes);
  const choices = UNITS.filter(([known]) => (known !== "minute" || hasMinutes) && isShown(known, times));
  const [compare, comparison] = Number(range.units) === -1 ? [] : comparisonOf(parameters, unit);
  const ranges = picker(asked, times, { key: keys, ...beside },
    comparisons(compare ?? "none", (value) => here({ ...lengthOf, ...asked, compare: value })));
  // Starts and ends of the buckets that are shown.
  let edges = [];
  const series = chart((width) => address(["compare.svg"], { key: keys, ...range, width }), "chart",
    (low, high) => zoomTo(here(partOf(edges, unit, zone, low, high)), go));
  const rows = el("tbody");
  const note = el("p", { class: "muted" });
  const add = adder(declared, keys, (chosen) => go(whole([...new Set([...keys, chosen])])));
  const removers = keys.map((text) => el("a", { href: whole(keys.filter((other) => other !== text)), title: "Take this key away" },
    `${text} `, el("span", { "aria-hidden": "true" }, "✕")));
  const isEnough = keys.length > 1;
  // Where a key was added or taken away, the next one may be added at once.
  const isChanging = document.activeElement?.closest(".adds, .chips");
  main.replaceChildren(
    el("h1", {}, "Compare"),
    isEnough ? el("div", { class: "head" },
      switcher("Unit", choices.map(([value, text]) => [value, text, here({ unit: value, ...asked })]), unit),
      ranges.element) : "",
    el("div", { class: "head" },
      keys.length ? el("nav", { class: "chips", "aria-label": "Keys" }, ...removers) : "",
      keys.length < KEYS_MAX ? add.element : el("p", { class: "muted" }, `No more than ${KEYS_MAX} keys stand side by side.`)),
    ...(isEnough ? [
      series.element,
      el("section", { class: "card" },
        scroll("Keys in numbers",
          el("table", {}, el("thead", {}, el("tr", {}, ...COLUMNS.map((text) => el("th", { scope: "col" }, text)))), rows)),
        note),
      el("p", { class: "links" }, "As a file:", ...[["SVG", ".svg"], ["CSV", ".csv"], ["JSON", ""]].map(([text, end]) =>
        el("a", { href: address([`compare${end}`], { key: keys, ...range }) }, text))),
    ] : [hint(`Add ${keys.length ? "another key" : "two keys or more"}`, "Their lines stand in one picture, and their numbers in one table.")]));
  if (isChanging || !isEnough) add.focus();
  if (!isEnough) {
    listen(undefined);
    return undefined;
  }

  async function refresh() {
    const found = await get(["compare"], { key: keys, ...range });
    ranges.show(found);
    edges = edgesOf(found);
    series.tell(ofKeys(found));
    const [before] = await Promise.all([beforeOf(found, compare, zone), series.refresh()]);
    const all = found.keys.reduce((sum, { total }) => sum + total, 0);
    rows.replaceChildren(...found.keys.map(({ namespace, key, total }, index) => el("tr", {},
      el("td", {}, el("a", { href: keyHref(namespace, key, query({ unit, ...beside, ...lengthOf, ...asked })) }, keys[index])),
      el("td", {}, count(total)),
      el("td", {}, all ? percent(total / all) : "–"),
      el("td", {}, before[index] ? changeOf(before[index], "") : ""))));
    const isCompared = before.some((answer) => answer.before.covered);
    note.textContent = `Shares are of these keys together${isCompared ? `; changes are of settled counts, against ${comparison}` : ""}.`;
  }
  const again = seldom(refresh);
  listen("/v1/live", ({ applied }) => again(applied).catch(() => {}));
  await refresh();
  return { nextUnit() {
    const index = choices.findIndex(([value]) => value === unit);
    return here({ unit: choices[(index + 1) % choices.length][0], ...asked });
  } };
}

// A box to add a key to these, which finds keys while one types. A text that is typed whole names a namespace as `l/abc`
// does, or is a key of the last one's.
function adder(declared, keys, take) {
  const known = declared.namespaces.map(({ name }) => name);
  const usual = [...keys.map(namespaceOf).reverse(), ...known].find((name) => known.includes(name));
  const list = el("ul", { id: "others", class: "card", role: "listbox", "aria-label": "Keys that begin so", hidden: true });
  const box = el("input", { ...boxOf("others"), placeholder: "Add a key", "aria-label": "Add a key", oninput() {
    box.setCustomValidity(typed() ? "" : "Type a namespace and a key, such as l/abc.");
  } });
  function typed() {
    const [names, key] = wanted(declared, box.value.trim());
    const name = names.length === 1 ? names[0] : usual;
    return key && name ? `${name}/${key}` : undefined;
  }
  const element = el("form", { class: "search adds", onsubmit(event) {
    event.preventDefault();
    take(typed());
  } }, box, list);
  findAsTyped(box, list, () => declared, (name, key) => take(`${name}/${key}`));
  return { element, focus: () => box.focus() };
}

// Each key's counts in the range and in the period before; none where nothing can be before it.
async function beforeOf({ keys, unit, from, to: end }, compare, zone) {
  if (!compare) return [];
  const to = new Date(Date.parse(end) - 1_000).toISOString();
  const queries = keys.map(({ namespace, key }) => ({ namespace, key, unit, from, to, timezone: zone, compare }));
  const parts = [queries.slice(0, ASKED_AT_ONCE), queries.slice(ASKED_AT_ONCE)].filter((part) => part.length);
  return Promise.all(parts.map((part) => ask(part))).then((told) => told.flatMap(({ answers }) => answers), (error) => {
    if (error instanceof Refused && error.status === 422) return [];
    throw error;
  });
}
