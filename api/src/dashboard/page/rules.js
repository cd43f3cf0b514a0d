// The rules that judge events, for operators: what each caught since the server started, and the lists behind them.

import { count, el, percent, scroll, utc } from "./format.js";

const EXAMPLE = 'filters.bots = { events = ["click"], field = "by.device", values = ["bot"] }';

// A card that stays hidden until it is told of rules: other keys than operators' are not.
export function rulesCard() {
  const heading = el("h2", { id: "rules" }, "Rules");
  const element = el("section", { class: "card stack", "aria-labelledby": "rules", hidden: true }, heading);
  let shown;
  return { element, show(rules) {
    const told = JSON.stringify(rules);
    if (told === shown) return;
    shown = told;
    element.hidden = false;
    element.replaceChildren(heading, ...(rules.filters.length || rules.lists.length ? judged(rules) : nothing()));
  } };
}

function nothing() {
  return [el("p", { class: "muted" }, "No rule judges events, so all of them count. A line of the configuration declares one:"),
    el("pre", { tabindex: "0" }, EXAMPLE)];
}

function judged({ events, undecided, decision_rate: rate, filters, lists }) {
  const sum = events
    ? `${count(events)} events were judged since the server started. Rules could decide ${percent(rate)} of them; ${count(undecided)} lack the evidence that some rule needs.`
    : "No event was judged since the server started.";
  return [
    el("p", { class: "muted" }, sum),
    table("What rules caught", ["Rule", "Class", "Caught", "Of the judged"], filters.map(({ rule, class: kind, filtered }) =>
      [rule, kind, count(filtered), events ? percent(filtered / events) : "–"])),
    ...(lists.length ? [table("Lists", ["List", "Of", "Entries", "Content", "Changed"], lists.map((list) =>
      [list.name, list.match, list.entries === null ? "–" : count(list.entries), list.sha256.slice(0, 12),
        list.changed_at ? utc(list.changed_at) : "before the start"]))] : []),
    ...lists.filter(({ failure }) => failure).map(({ name, failure }) => el("p", { class: "wrong" }, `${name}: ${failure}`)),
  ];
}

function table(name, heads, rows) {
  return scroll(name,
    el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
      el("tbody", {}, ...rows.map((cells) => el("tr", {}, ...cells.map((cell) => el("td", {}, cell)))))));
}
