// All namespaces side by side: what each counted in the range, and in the period before.

import { get, Refused } from "./api.js";
import { trend } from "./chart.js";
import { changeOf, count, el } from "./format.js";
import { listen } from "./live.js";
import { picker, rangeOf, unitOf } from "./range.js";

const USUAL = "28d";

export async function namespacesPage({ main, declared, zone, parameters, title }) {
  title("Namespaces");
  listen(undefined);
  const given = new URLSearchParams(parameters);
  if (!["period", "from", "to"].some((name) => given.has(name))) given.set("period", USUAL);
  const { asked, times } = rangeOf(given, zone);
  const ranges = picker(asked, times, { timezone: zone });
  const list = el("ol", { class: "ranking spaces" });
  main.replaceChildren(
    el("div", { class: "head" }, el("h1", {}, "Namespaces"), ranges.element),
    el("section", { class: "card" }, list));
  const unit = unitOf(times);
  const compare = times.units ? undefined : "before";
  for (const { name, title: text, subtotals } of declared.namespaces) {
    const link = el("a", { href: `/?${new URLSearchParams({ namespace: name })}` }, text || name);
    const kept = el("span", { class: "muted" }, `${subtotals.length} ${subtotals.length === 1 ? "breakdown" : "breakdowns"}`);
    try {
      const answer = await get([name, "counts"], { unit, ...times, timezone: zone, compare });
      ranges.show(answer);
      list.append(el("li", {}, link, kept, trend(answer, text || name),
        changeOf(answer, ""), el("span", { class: "count" }, count(answer.total))));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      list.append(el("li", {}, link, el("span", { class: "muted" }, error.message)));
    }
  }
  if (!declared.namespaces.length) list.append(el("li", { class: "empty" }, "Your API key may read no namespace."));
  return undefined;
}
