// Where a key was counted, and keys whose text holds what was searched.

import { ask, get } from "./api.js";
import { count, el, keyHref } from "./format.js";
import { listen } from "./live.js";

const TOP = 200;
const SHOWN = 20;

export async function search({ main, declared, zone, parameters, title }) {
  const wanted = (parameters.get("q") ?? "").trim();
  title(wanted ? `${wanted} · search` : "Search");
  listen(undefined);
  document.getElementById("q").value = wanted;
  const exact = el("ol", { class: "ranking found" });
  const like = el("ol", { class: "ranking found" });
  main.replaceChildren(
    el("h1", {}, wanted ? `Search: ${wanted}` : "Search"),
    el("section", { class: "card" }, el("h2", {}, "Exact match"), exact),
    el("section", { class: "card" }, el("h2", {}, "Similar names among the heaviest keys of 30 days"), like));
  if (!wanted) {
    exact.replaceChildren(el("li", { class: "empty" }, "Type a key above."));
    return undefined;
  }
  // `l/abc` names its namespace.
  const [prefix, ...rest] = wanted.split("/");
  const isNamed = rest.length > 0 && declared.namespaces.some(({ name }) => name === prefix);
  const names = declared.namespaces.map(({ name }) => name).filter((name) => !isNamed || name === prefix);
  const key = isNamed ? rest.join("/") : wanted;
  await Promise.all([
    exactly(exact, declared, names, key, zone),
    alike(like, declared, names, key, zone),
  ]);
  return undefined;
}

async function exactly(list, declared, names, key, zone) {
  const queries = names.map((namespace) => ({ namespace, key, unit: "year", units: -1, timezone: zone, summary: true }));
  const answers = (await ask(queries)).answers.filter(({ total }) => total > 0);
  if (!answers.length) {
    list.replaceChildren(el("li", { class: "empty" }, `No count exists for ${key}.`));
    return;
  }
  list.replaceChildren(...answers.map((answer) => row(declared, answer.namespace, answer.key, answer.total)));
}

async function alike(list, declared, names, key, zone) {
  const low = key.toLowerCase();
  const found = await Promise.all(names.map(async (namespace) => {
    const top = await get([namespace, "top"], { unit: "day", units: 30, timezone: zone, limit: TOP });
    return top.keys.filter((candidate) => candidate.key.toLowerCase().includes(low))
      .map((candidate) => ({ namespace, ...candidate }));
  }));
  const rows = found.flat().sort((a, b) => b.count - a.count).slice(0, SHOWN);
  list.replaceChildren(...(rows.length
    ? rows.map((match) => row(declared, match.namespace, match.key, match.count))
    : [el("li", { class: "empty" }, "None of the heaviest keys contains this text. Search finds any other key by its full name.")]));
}

function row(declared, name, key, n) {
  const namespace = declared.namespaces.find((known) => known.name === name);
  return el("li", {},
    el("a", { href: keyHref(name, key) }, key),
    el("span", { class: "muted" }, namespace?.title || name),
    el("span", { class: "count" }, count(n)));
}
