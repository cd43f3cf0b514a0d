// The range that the address of a page names by `from` and `to`: days of the page's zone, or times as the API takes them.

import { el } from "./format.js";

const DAY_MS = 86_400_000;

export const isZone = (zone) => {
  try { return Boolean(new Intl.DateTimeFormat("en", { timeZone: zone })); } catch { return false; }
};

// The days or times that the address names. The API takes them as they are, and says what is wrong with them.
export const rangeOf = (parameters) =>
  Object.fromEntries(["from", "to"].map((name) => [name, parameters.get(name)]).filter(([, value]) => value));

// Two days to choose; `others` is what else the address of the page names. `show` fills them with the range that an
// answer says.
export function dayChooser(others) {
  const input = (name, label) =>
    el("input", { type: "date", name, required: true, min: "2000-01-01", max: "2999-12-31", "aria-label": label });
  const from = input("from", "First day");
  const to = input("to", "Last day");
  const check = () => to.setCustomValidity(to.value && to.value < from.value ? "The last day lies before the first." : "");
  const element = el("form", { class: "range", "aria-label": "Range", "data-goes": "", oninput: check },
    from, el("span", { class: "muted" }, "to"), to,
    ...Object.entries(others).map(([name, value]) => el("input", { type: "hidden", name, value })),
    el("button", { type: "submit", class: "quiet" }, "Show"));
  return { element, show(answer) {
    // Once only: afterwards the reader chooses.
    if (from.value || to.value) return;
    from.value = answer.from.slice(0, 10);
    const [end, time] = answer.to.split("T");
    const isMidnight = time.startsWith("00:00:00");
    to.value = new Date(Date.parse(`${end}T00:00Z`) - (isMidnight ? DAY_MS : 0)).toISOString().slice(0, 10);
  } };
}
