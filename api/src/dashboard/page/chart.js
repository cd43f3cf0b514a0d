// The API's own pictures, inline: their colours come from charts.css, so their own sheets are left out. Drawn as wide as
// their place, in steps, for caches.

import { text } from "./api.js";
import { el } from "./format.js";
import { Gone } from "./server.js";
import { letTouch } from "./touch.js";

const STEP = 40;
const WIDEST = 1600;
const NARROWEST = 280;
// A shorter one is a click; pixels.
const LEAST_DRAG = 6;

let figures = 0;

// A figure for the picture at `url(width)`; `refresh` draws it again where it changed. `zoom` gets the ends of a part of
// it over which the pointer was dragged, 0 to 1, and `tell` is told of its parts.
export function chart(url, className = "chart", zoom) {
  const figure = el("figure", { class: className });
  if (zoom) letDrag(figure, zoom);
  const touch = letTouch(figure);
  figures += 1;
  const hatch = `hatch-${figures}`;
  let shown = "";
  let drawnWidth = 0;
  let asking;

  async function refresh() {
    const place = Math.floor((figure.clientWidth || 800) / STEP) * STEP;
    drawnWidth = Math.min(WIDEST, Math.max(NARROWEST, place));
    asking?.abort();
    asking = new AbortController();
    figure.setAttribute("aria-busy", "true");
    const svg = await text(url(drawnWidth), asking.signal);
    figure.setAttribute("aria-busy", "false");
    if (svg === shown) return;
    shown = svg;
    // Each figure has a hatching of its own: no two elements of a page may have one id.
    const bare = svg.replace(/<style>[^<]*<\/style>/, "").replaceAll("tallyring-hatch-auto", hatch);
    const picture = new DOMParser().parseFromString(bare, "image/svg+xml").documentElement;
    // The name of the whole is its label; as a tooltip it would cover those of the bars.
    picture.querySelector(":scope > title")?.remove();
    // The tile above tells the change, at times over other buckets: a second one beside it would confuse.
    for (const line of picture.querySelectorAll("text.m, desc")) {
      line.textContent = line.textContent.replace(/ ?\([+−][\d.,]+%\)/, "");
    }
    touch.drawn(document.importNode(picture, true));
  }

  const quietly = () => refresh().catch((error) => {
    if (error.name === "AbortError") return;
    figure.setAttribute("aria-busy", "false");
    // The old picture is better than none.
    if (error instanceof Gone) return;
    touch.drawn(el("p", { class: "empty" }, error.message));
  });
  new ResizeObserver(() => {
    const place = Math.floor(figure.clientWidth / STEP) * STEP;
    if (drawnWidth && place && Math.min(WIDEST, Math.max(NARROWEST, place)) !== drawnWidth) quietly();
  }).observe(figure);
  return { element: figure, refresh: quietly, tell: touch.tell };
}

function letDrag(figure, zoom) {
  const band = el("div", { class: "band" });
  let from;
  let plot;
  const at = ({ clientX }) => Math.min(plot.right, Math.max(plot.left, clientX));
  const end = () => {
    from = undefined;
    band.remove();
    removeEventListener("keydown", cancel, true);
  };
  const cancel = (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    end();
  };
  figure.classList.add("zooms");
  figure.addEventListener("pointerdown", (event) => {
    // A line of the grid is as wide as the plot.
    plot = figure.querySelector("svg .g")?.getBoundingClientRect();
    if (event.button || !event.isPrimary || !plot) return;
    from = at(event);
    addEventListener("keydown", cancel, true);
    figure.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  figure.addEventListener("pointermove", (event) => {
    if (from === undefined) return;
    const { left } = figure.getBoundingClientRect();
    band.style.left = `${Math.min(from, at(event)) - left}px`;
    band.style.width = `${Math.abs(from - at(event))}px`;
    figure.append(band);
  });
  figure.addEventListener("pointerup", (event) => {
    if (from === undefined) return;
    const [low, high] = [from, at(event)].sort((a, b) => a - b);
    end();
    if (high - low > LEAST_DRAG) zoom((low - plot.left) / plot.width, (high - plot.left) / plot.width);
  });
  figure.addEventListener("pointercancel", end);
}

// The counts of an answer as bars without axes.
export function trend({ counts, unit }, name) {
  const bars = spark(counts.length, `Counts of ${name} by the ${unit}`);
  bars.set(counts.map((row) => row.count));
  return bars.element;
}

// Numbers as bars without axes: the last minute by the second, unless it is called otherwise.
export function spark(length = 60, name = "Counts of the last 60 seconds", step = "one") {
  const SVG = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "spark");
  svg.setAttribute("viewBox", `0 0 ${length} 20`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", name);
  const bars = Array.from({ length }, (_, index) => {
    const bar = document.createElementNS(SVG, "rect");
    bar.setAttribute("x", index + 0.1);
    bar.setAttribute("width", 0.8);
    svg.append(bar);
    return bar;
  });
  return { element: svg, set(values) {
    const most = Math.max(1, ...values);
    values.forEach((value, index) => {
      const height = value ? Math.max(0.7, (value / most) * 20) : 0;
      bars[index].setAttribute("y", 20 - height);
      bars[index].setAttribute("height", height);
    });
    svg.setAttribute("aria-label", `${name}; at most ${most} in ${step}`);
  } };
}
