// Reach and frequency of a key: how many people something reached, and how many of them how often.

import { post } from "./api.js";
import { count, el, fill, keyHref, percent, rounded, switcher, tile, tiles } from "./format.js";
import { listen } from "./live.js";

const RANGES = [["24h", "24 hours"], ["7d", "7 days"], ["30d", "30 days"]];

export const reachHref = (namespace, key, query = "") =>
  `/reach/${encodeURIComponent(namespace)}/${encodeURIComponent(key)}${query}`;

export async function reachPage({ main, declared, zone, parameters, title, path }) {
  const [name, key] = path;
  listen(undefined);
  const namespace = declared.namespaces.find((known) => known.name === name);
  const of = namespace?.actions;
  title(`${key} · reach and frequency`);
  const crumbs = el("p", { class: "crumbs" }, el("a", { href: keyHref(name, key, `?${new URLSearchParams({ timezone: zone })}`) }, `${namespace?.title || name}: ${key}`));
  const refuse = (text) => main.replaceChildren(crumbs, el("h1", {}, "Reach and frequency"), el("p", {}, text));
  if (!of) {
    refuse(`The namespace ${name} counts no event whose actions are kept, or your API key may not read it.`);
    return undefined;
  }
  if (!declared.actions) {
    refuse("Reach and frequency need an API key with the scope actions, for all namespaces.");
    return undefined;
  }
  const range = parameters.get("range") || "7d";
  const here = (changes) => `?${new URLSearchParams({ timezone: zone, ...changes })}`;
  const reach = tile("Reach");
  const average = tile("Average frequency");
  const events = `${of.type.replaceAll("_", " ")}s`;
  const actions = tile(events[0].toUpperCase() + events.slice(1));
  const bars = el("ol", { class: "ranking often" });
  main.replaceChildren(
    el("div", {}, crumbs, el("h1", {}, "Reach and frequency")),
    el("div", { class: "head" }, switcher("Range", [...RANGES.map(([value, text]) => [value, text, here({ range: value })]),
      ["calendar", "This month", here({ range: `calendar:month@${zone}` })]], range.startsWith("calendar:month") ? "calendar" : range)),
    tiles(reach.element, average.element, actions.element),
    el("section", { class: "card", "aria-labelledby": "often" }, el("h2", { id: "often" }, "People by how often"), bars),
  );
  const found = await post(["actions", "frequency"], { entity: { [of.entity]: key }, action: of.type, range });
  reach.set(rounded(found.reach), "people, each counted once");
  average.set(found.reach ? (found.actions / found.reach).toFixed(2) : "–", `${events} a person`);
  actions.set(rounded(found.actions), found.approximate ? "some known by their hour alone" : "of these people");
  const last = found.frequency.findLastIndex(({ users }) => users > 0);
  const most = Math.max(...found.frequency.map(({ users }) => users));
  bars.replaceChildren(...(last < 0
    ? [el("li", { class: "empty" }, "Nobody was reached in this range.")]
    : found.frequency.slice(0, last + 1).map(({ times, or_more: orMore, users }) => el("li", {},
      fill(users / most),
      el("span", { class: "name" }, often(times, orMore)),
      el("span", { class: "muted" }, percent(users / found.reach)),
      el("span", { class: "count" }, count(users))))));
  return undefined;
}

function often(times, orMore) {
  if (orMore) return `${times} times or more`;
  return ["", "once", "twice"][times] ?? `${times} times`;
}
