// How numbers and times are written, and small pieces of a page. Nothing here asks the server.

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

const share = new Intl.NumberFormat("en", { style: "percent", maximumSignificantDigits: 3 });

// A count that reached the largest one may be more.
const sign = (number) => (number === Number.MAX_SAFE_INTEGER ? "≥" : "");

export const count = (number) => sign(number) + whole.format(number);
export const rounded = (number) =>
  number < 100_000 ? whole.format(number) : sign(number) + short.format(number).replace("K", "k");

export const percent = (part) => share.format(part);

export function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let index = 0;
  let rest = number ?? 0;
  for (; rest >= 1024 && index < units.length - 1; index += 1) rest /= 1024;
  return `${rest >= 100 || index === 0 ? Math.round(rest) : rest.toFixed(1)} ${units[index]}`;
}

// The change from one count to another, as a piece of text with its colour. Nothing can be said against a period of
// which nothing was counted, or not all.
export function change(now, before, isCovered, against) {
  if (!before || !isCovered) return el("span");
  const percent = (now / before - 1) * 100;
  const sign = percent >= 0 ? "+" : "−";
  const size = Math.abs(percent);
  const text = `${sign}${size >= 1000 ? count(Math.round(size)) : size.toFixed(1)}%`;
  return el("span", {}, el("span", { class: percent >= 0 ? "good" : "bad" }, text), ` ${against}`);
}

// The change of an answer with counts against the period before. Counts that may still grow would look like a fall: only
// buckets that are settled are compared.
export function changeOf({ counts, to, settled_until: until, before }, against) {
  const settled = settledOf(counts, to, until);
  const part = (values) => values.slice(0, settled).reduce((sum, n) => sum + n, 0);
  return change(part(counts.map((row) => row.count)), part(before?.counts ?? []), before?.covered, against);
}

// How many buckets, from the first one on, are settled.
export const settledOf = (counts, to, until) =>
  [...counts.slice(1).map((row) => row.start), to].filter((end) => Date.parse(end) <= Date.parse(until)).length;

const MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
  "December"];

// A month such as 2026-03 in words.
export const monthName = (month) => `${MONTHS[Number(month.slice(5)) - 1]} ${month.slice(0, 4)}`;

// A moment of UTC, to the minute.
export const utc = (moment) => `${moment.slice(0, 16).replace("T", " ")} UTC`;

// A local start with its offset, as the API labels buckets, in words.
export function start(label, unit) {
  const [date, time = ""] = label.split("T");
  const [year, month, day] = date.split("-").map(Number);
  const name = MONTHS[month - 1]?.slice(0, 3);
  if (unit === "year") return `${year}`;
  if (unit === "quarter") return `Q${Math.floor((month - 1) / 3) + 1} ${year}`;
  if (unit === "month") return `${name} ${year}`;
  const shown = `${name} ${day}, ${year}`;
  return unit === "hour" || unit === "minute" ? `${shown}, ${time.slice(0, 5)}` : shown;
}

// An element with attributes and children; text is text, never markup.
export function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

// A bar behind a row.
export function fill(part) {
  const bar = el("span", { class: "fill" });
  bar.style.width = `${100 * part}%`;
  return bar;
}

// Words for one who sees nothing yet: a heading, what to do, and perhaps a command.
export function hint(heading, text, command) {
  return el("section", { class: "card hint" }, el("h2", {}, heading), el("p", { class: "muted" }, text),
    command && el("pre", { tabindex: "0" }, command));
}

// A tile: a number under a heading, and a note below it.
export function tile(heading) {
  const number = el("p", { class: "number" }, "…");
  const note = el("p", { class: "note" });
  const name = el("h2", {}, heading);
  const element = el("section", { class: "card tile" }, name, number, note);
  return {
    element,
    name(text) { name.textContent = text; },
    set(text, below) {
      number.textContent = text;
      if (below !== undefined) note.replaceChildren(below);
    },
  };
}

// Tiles in rows of nearly as many: none is left alone in its row where it can be helped.
export function tiles(...elements) {
  const place = el("div", { class: "tiles" }, ...elements);
  place.style.setProperty("--tiles", elements.length);
  return place;
}

// Links of which one is where we are.
export function switcher(label, choices, current) {
  const links = choices.map(([value, text, href]) =>
    el("a", { href, "aria-current": value === current ? "true" : undefined, "data-value": value }, text));
  return el("nav", { class: "switch", "aria-label": label }, ...links);
}

// The same for many: a list to choose from.
export function chooser(label, choices, current) {
  if (choices.length <= 4) return switcher(label, choices, current);
  const options = choices.map(([value, text, href]) =>
    el("option", { value: href, selected: value === current, "data-value": value }, text));
  return el("select", { "aria-label": label, "data-goes": "" }, ...options);
}

export const keyHref = (namespace, key, query = "") =>
  `/keys/${encodeURIComponent(namespace)}/${encodeURIComponent(key)}${query}`;

// A letter, a name and words for each state of a day; colour and shape follow from the name.
export const STATES = {
  live: ["L", "live", "events are expected"],
  settled: ["S", "settled", "no event is expected any more"],
  provisional: ["P", "provisional", "closed, and not final"],
  final: ["F", "final", "judged again, and never changed"],
  corrected: ["C", "corrected", "final, and something was counted since"],
  closed: ["X", "closed without final", "left the log before it was final, and never becomes so"],
  before: ["–", "before", "before this store began"],
  overdue: ["!", "overdue", "not final in time, or its reconcile failed"],
};

export const stateOf = (day) => (day.reason ? "overdue" : day.state);
export const mark = (state) => el("span", { class: "mark", "data-state": state, "aria-hidden": "true" }, STATES[state][0]);

// A part that scrolls by itself, also by the keyboard.
export const scroll = (name, ...children) => el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, ...children);
