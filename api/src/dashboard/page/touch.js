// The words of a picture for each of its parts, beside a pointer, a finger, or a cursor that arrow keys move.

import { change, count, el, percent, settledOf, start } from "./format.js";

// Between a part and its words; pixels.
const APART = 8;

const weekday = new Intl.DateTimeFormat("en", { weekday: "short", timeZone: "UTC" });

// Closes the words that are seen: there are those of one picture at a time.
let closeOpen = () => {};
document.addEventListener("pointerdown", ({ target }) => { if (!target.closest?.("figure")) closeOpen(); });

// Lets the picture in a figure be touched once `tell` is told of its parts: how many `columns` and `rows` they stand in,
// and the lines `at` each, which also gets the tooltips that the picture came with. `drawn` is called with each picture.
export function letTouch(figure) {
  const tip = el("div", { class: "tip", role: "status" });
  const cursor = el("div", { class: "cursor", hidden: true });
  let [parts, titles, at, picture] = [undefined, [], -1, el("span")];
  figure.append(picture, cursor, tip);

  function close() {
    tip.replaceChildren();
    cursor.hidden = true;
  }

  // Where the parts are, in pixels of the figure; nowhere in a picture of nothing.
  function place() {
    const shapes = parts ? picture.querySelectorAll(parts.rows ? "g > rect" : ".g") : [];
    if (!shapes.length) return undefined;
    const own = figure.getBoundingClientRect();
    // They stand in order: the first and the last one lie at the ends.
    const boxes = [shapes[0], shapes[shapes.length - 1]].map((shape) => shape.getBoundingClientRect());
    const [left, right] = [Math.min(...boxes.map((box) => box.left)), Math.max(...boxes.map((box) => box.right))];
    // A grid of one line, where nothing was counted, has no height.
    const top = shapes.length > 1 ? Math.min(...boxes.map((box) => box.top)) : own.top;
    const bottom = Math.max(...boxes.map((box) => box.bottom));
    const { columns, rows = 1 } = parts;
    return { columns, rows, left: left - own.left, top: top - own.top, width: (right - left) / columns, height: (bottom - top) / rows, own };
  }

  function show(index) {
    const of = place();
    if (!of) return;
    if (closeOpen !== close) closeOpen();
    closeOpen = close;
    at = Math.min(index, of.columns * of.rows - 1);
    const [left, top] = [of.left + (at % of.columns) * of.width, of.top + Math.floor(at / of.columns) * of.height];
    Object.assign(cursor.style, { left: `${left}px`, top: `${top}px`, width: `${of.width}px`, height: `${of.height}px` });
    cursor.hidden = false;
    // A screen reader says them again when they are put in place again.
    const words = el("div", {}, ...parts.at(at, titles).map((line) => el("p", {}, line)));
    if (!tip.firstChild?.isEqualNode(words)) tip.replaceChildren(words);
    // It is as wide as its words where it begins at the left.
    tip.style.left = 0;
    const most = of.own.width - tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(most, left + (of.width - tip.offsetWidth) / 2))}px`;
    tip.style.top = `${Math.max(0, top - tip.offsetHeight - APART)}px`;
  }

  function follow(event) {
    const of = place();
    if (!of) return;
    const among = (distance, size, many) => Math.max(0, Math.min(many - 1, Math.floor(distance / size)));
    const row = among(event.clientY - of.own.top - of.top, of.height, of.rows);
    const index = row * of.columns + among(event.clientX - of.own.left - of.left, of.width, of.columns);
    if (index !== at || cursor.hidden) show(index);
  }
  figure.addEventListener("pointerdown", follow);
  figure.addEventListener("pointermove", follow);
  // A finger leaves where it is lifted: its words stay until the next touch.
  figure.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") close(); });
  figure.addEventListener("blur", close);
  figure.addEventListener("focus", () => {
    if (figure.matches(":focus-visible")) show(at < 0 ? Infinity : at);
  });
  figure.addEventListener("keydown", (event) => {
    if (event.metaKey || event.ctrlKey || event.altKey) return;
    const { columns, rows = 1 } = parts;
    if (event.key === "Escape" && !cursor.hidden) close();
    else {
      const upright = rows > 1 ? { ArrowUp: at - columns, ArrowDown: at + columns } : {};
      const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: Infinity, ...upright }[event.key];
      if (next === undefined) return;
      if (next >= 0 && (next === Infinity || next < columns * rows)) show(next);
    }
    event.preventDefault();
    event.stopPropagation();
  });

  // The parts or the picture are new ones. Screen readers leave arrow keys to an application alone.
  function renew() {
    const named = { role: "application", tabindex: 0, "aria-label": `${picture.getAttribute("aria-label")}: arrow keys move from part to part` };
    if (!place()) {
      for (const name of Object.keys(named)) figure.removeAttribute(name);
      close();
      return;
    }
    for (const [name, value] of Object.entries(named)) figure.setAttribute(name, value);
    // The browser would show the tooltips of a picture beside these words.
    for (const title of picture.querySelectorAll("g > title")) {
      titles.push(title.textContent);
      title.remove();
    }
    if (!cursor.hidden) show(at);
  }
  return {
    tell(told) {
      parts = told;
      renew();
    },
    drawn(next) {
      titles = [];
      picture.replaceWith(next);
      picture = next;
      renew();
    },
  };
}

// A bucket's start in words, with its weekday where it has one.
const startOf = (label, unit) =>
  `${["minute", "hour", "day"].includes(unit) ? `${weekday.format(Date.parse(label.slice(0, 10)))}, ` : ""}${start(label, unit)}`;

// The buckets of an answer: the start of each, what `say` says of it, and whether it may still grow.
function buckets({ counts, unit, to, settled_until: until }, say) {
  const settled = settledOf(counts, to, until);
  return { columns: counts.length, at(index) {
    const { start: from, state } = counts[index];
    const isOpen = state && !["final", "corrected"].includes(state);
    const open = index >= settled ? ["not settled yet"] : isOpen ? ["not final yet"] : [];
    return [startOf(from, unit), ...say(counts[index], index, index < settled), ...open];
  } };
}

// Counts, each with the one before.
export const ofCounts = (answer, comparison) => buckets(answer, ({ count: n }, index, isSettled) => {
  const { counts, covered } = answer.before ?? {};
  return [el("strong", {}, count(n)), ...(counts
    ? [el("span", {}, `${comparison}: ${count(counts[index])} `, change(n, counts[index], covered && isSettled, ""))] : [])];
});

export const ofUsers = (answer) => buckets(answer, ({ estimate }) => [el("strong", {}, `${count(estimate)} users`)]);

export const ofRatios = (answer) => buckets(answer, ({ ratio, numerator, denominator }) =>
  [el("strong", {}, ratio === null ? "–" : percent(ratio)), `${count(numerator)} of ${count(denominator)}`]);

// The counts of several keys.
export const ofKeys = (answer) => buckets(answer, ({ counts }) =>
  answer.keys.map(({ namespace, key }, index) => el("span", {}, `${namespace}/${key}: `, el("strong", {}, count(counts[index])))));

// The hours of a week, which the picture names itself.
export const WEEK = { columns: 24, rows: 7, at: (index, titles) => [titles[index]] };
