// Where a key was counted, and the heaviest keys that have the text somewhere.

import { ask, get, Refused } from "./api.js";
import { wanted } from "./find.js";
import { count, el, keyHref } from "./format.js";
import { listen } from "./live.js";

const SHOWN = 20;

export async function search({ main, declared, zone, parameters, title }) {
  const text = (parameters.get("q") ?? "").trim();
  title(text ? `${text} · search` : "Search");
  listen(undefined);
  document.getElementById("q").value = text;
  const exact = el("ol", { class: "ranking found" });
  const like = el("ol", { class: "ranking found" });
  const note = el("p", { class: "muted", role: "status" });
  main.replaceChildren(
    el("h1", {}, text ? `Search: ${text}` : "Search"),
    el("section", { class: "card" }, el("h2", {}, "Exact match"), exact),
    el("section", { class: "card" }, el("h2", {}, "Keys that have this text"), like, note));
  if (!text) {
    exact.replaceChildren(el("li", { class: "empty" }, "Type a key above."));
    return undefined;
  }
  const [names, key] = wanted(declared, text);
  await exactly(exact, declared, names, key, zone);
  // The page is there meanwhile.
  alike({ list: like, note }, declared, names, key).catch(() => {});
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

// One namespace after the other, because the server has few places for such long reads.
async function alike({ list, note }, declared, names, key) {
  const found = [];
  const partly = [];
  for (const name of names) {
    note.textContent = `Searching ${titleOf(declared, name)} …`;
    try {
      const answer = await get([name, "keys"], { contains: key, sort: "count", limit: SHOWN });
      found.push(...answer.keys.map((of) => ({ name, ...of })));
      if (!answer.complete) partly.push(titleOf(declared, name));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      partly.push(titleOf(declared, name));
    }
    if (!list.isConnected) return;
    found.sort((a, b) => b.count - a.count);
    list.replaceChildren(...found.slice(0, SHOWN).map((of) => row(declared, of.name, of.key, of.count)));
  }
  if (!found.length) list.replaceChildren(el("li", { class: "empty" }, "No key was found that has this text."));
  note.textContent = partly.length ? `Not all keys were looked through (${partly.join(", ")}): search a longer text.` : "";
}

const titleOf = (declared, name) => declared.namespaces.find((known) => known.name === name)?.title || name;

function row(declared, name, key, n) {
  return el("li", {},
    el("a", { href: keyHref(name, key) }, key),
    el("span", { class: "muted" }, titleOf(declared, name)),
    el("span", { class: "count" }, count(n)));
}
