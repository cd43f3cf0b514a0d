// All namespaces side by side: what each counted in the range, and in the period before.

import { get, Refused } from "./api.js";
import { spark } from "./chart.js";
import { change, count, el } from "./format.js";
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
      const values = answer.counts.map((bucket) => bucket.count);
      const bars = spark(values.length, `Counts of ${text || name} by the ${unit}`);
      bars.set(values);
      const before = answer.before?.counts.reduce((sum, value) => sum + value, 0);
      list.append(el("li", {}, link, kept, bars.element,
        change(answer.total, before, answer.before?.covered, ""), el("span", { class: "count" }, count(answer.total))));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      list.append(el("li", {}, link, el("span", { class: "muted" }, error.message)));
    }
  }
  if (!declared.namespaces.length) list.append(el("li", { class: "empty" }, "Your API key may read no namespace."));
  return undefined;
}
