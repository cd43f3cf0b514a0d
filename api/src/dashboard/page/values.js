// Values of subtotals: how people call them, and those that a page is about alone.

import { el } from "./format.js";

const regions = new Intl.DisplayNames("en", { type: "region" });

const isOnly = (name) => name.startsWith("where.");

// The values that the address names, as parameters of the API.
export const onlyOf = (parameters) => Object.fromEntries([...parameters].filter(([name, value]) => isOnly(name) && value));

const onlyName = (dimension) => `where.${dimension}`;

// The title of a subtotal, or of each dimension of a crossed one.
export function titlesOf({ subtotals, subtotal_titles: titles }) {
  const parts = (text, joint) => text.split(joint);
  return Object.fromEntries(subtotals.flatMap((subtotal, index) => {
    const names = parts(titles[index], " × ");
    return [[subtotal, titles[index]], ...parts(subtotal, "*").map((name, at) => [name, names[at]])];
  }));
}

// A value in words.
export function nameOf(title, value) {
  if (value === "-") return "unknown";
  return title === "country" && /^[A-Z]{2}$/.test(value) ? regions.of(value) : value;
}

// A row of a breakdown: its name, the parameters by which a page is about it alone, and its site where it has one. Crossed
// values have none: each of their countries would be a site of its own.
export function rowOf(titles, subtotal, { value, parts = [value], count }) {
  const dimensions = subtotal.split("*");
  return {
    value,
    count,
    name: dimensions.map((of, at) => nameOf(titles[of], parts[at])).join(" × "),
    only: Object.fromEntries(dimensions.map((of, at) => [onlyName(of), parts[at]])),
    site: dimensions.length > 1 ? undefined : siteOf(value),
  };
}

// The site of a value that is an address or a host; none of any other. Anybody may send such a text: the time for it grows
// as its length does.
function siteOf(value) {
  const [, host] = /^(?:[a-z]+:\/\/)?(?:www\.)?((?:[a-z0-9-]+\.)+(?=[a-z0-9-]*[a-z])[a-z0-9-]+)(?:[:/?#]|$)/i.exec(value) ?? [];
  return host?.toLowerCase();
}

// The values that a page is about, each of which leads to the page without it. `here` makes its address.
export function chips(titles, only, here) {
  const links = Object.entries(only).map(([name, value]) => {
    const title = titles[name.slice(onlyName("").length)];
    const { [name]: _, ...others } = only;
    return el("a", { href: here(others), title: "Take this filter away" }, `${title}: ${nameOf(title, value)} `, el("span", { "aria-hidden": "true" }, "✕"));
  });
  return links.length ? el("nav", { class: "chips", "aria-label": "Filters" }, ...links) : "";
}
