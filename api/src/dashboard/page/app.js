// Which page the address names, what the reader has chosen, and the keyboard.

import { get, Refused } from "./api.js";
import { breakdownPage } from "./breakdown.js";
import { comparePage } from "./compare.js";
import { daysPage } from "./days.js";
import { findAsTyped } from "./find.js";
import { el, keyHref } from "./format.js";
import { keyPage } from "./key.js";
import { listen } from "./live.js";
import { namespacesPage } from "./namespaces.js";
import { overview } from "./overview.js";
import { peoplePage } from "./people.js";
import { isZone, keepRange } from "./range.js";
import { reachPage } from "./reach.js";
import { search } from "./search.js";
import { back, Gone, gone, whenBack } from "./server.js";
import { statePage } from "./state.js";

const main = document.getElementById("main");
const zoneSelect = document.getElementById("zone");
const themeButton = document.getElementById("theme");
// By the first part of the address; every other one is the overview.
const PAGES = { days: daysPage, keys: keyPage, reach: reachPage, search, people: peoplePage, namespaces: namespacesPage, compare: comparePage,
  state: statePage };
const THEMES = [["auto", "◐", "as the system"], ["light", "☀", "light"], ["dark", "☾", "dark"]];

// Choices of the reader, kept by the browser where it allows that.
const remember = {
  get(name) {
    try { return localStorage.getItem(`tallyring.${name}`); } catch { return null; }
  },
  set(name, value) {
    try { localStorage.setItem(`tallyring.${name}`, value); } catch { /* not kept, then */ }
  },
};

let current;
let known;
let turn = 0;

async function show() {
  const url = new URL(location.href);
  const zone = url.searchParams.get("timezone") || remember.get("zone") || ownZone();
  // A zone that is none is not offered again.
  chooseZone(isZone(zone) ? zone : ownZone());
  turn += 1;
  const mine = turn;
  main.setAttribute("aria-busy", "true");
  try {
    const declared = await get(["namespaces"]);
    if (mine !== turn) return;
    known = declared;
    document.getElementById("sign-out").hidden = !declared.with_key;
    const path = url.pathname.split("/").slice(1).map(decodeURIComponent);
    document.getElementById("people").hidden = !declared.people;
    const days = document.getElementById("to-days");
    days.parentElement.hidden = !declared.days;
    if (path[0] === "days") days.setAttribute("aria-current", "page");
    else days.removeAttribute("aria-current");
    const page = path[0] === "keys" && path[3] ? breakdownPage : PAGES[path[0]] ?? overview;
    const shown = await page({
      main,
      declared,
      zone,
      parameters: url.searchParams,
      path: path.slice(1),
      remember,
      go,
      title: (text) => { document.title = `${text} · Tallyring`; },
    });
    if (mine !== turn) return;
    current = shown;
    back();
  } catch (error) {
    if (mine !== turn || error instanceof Gone) return;
    if (!(error instanceof Refused)) throw error;
    if (error.status === 503) {
      // The store is being opened, or the server is busy: both pass.
      gone(error.message);
    } else {
      back();
      listen(undefined);
      // With another key it may.
      if (error.status === 403) document.getElementById("sign-out").hidden = false;
      main.replaceChildren(el("section", { class: "card hint" },
        el("h1", {}, "This cannot be shown"),
        el("p", { class: "muted" }, error.message),
        el("p", {}, el("a", { href: url.search ? url.pathname : "/" }, url.search ? "Show this page as usual" : "Go to the overview"))));
    }
  } finally {
    if (mine === turn) main.setAttribute("aria-busy", "false");
  }
}

// Goes to another address of ours without loading the page again.
function go(href, focus = false, state = null) {
  const isSame = new URL(href, location.href).pathname === location.pathname;
  const hasPicker = document.activeElement?.closest(".picker");
  history.pushState(state ?? (isSame ? history.state : null), "", href);
  // A page may have chosen what has the focus.
  show().then(() => {
    if (isSame && hasPicker) main.querySelector(".picker summary")?.focus();
    else if (focus && !main.contains(document.activeElement)) main.focus({ preventScroll: true });
  });
  if (focus) window.scrollTo(0, 0);
}

// Browsers list some zones by the names that their cities had.
const NOW_CALLED = {
  "Africa/Asmera": "Africa/Asmara",
  "America/Buenos_Aires": "America/Argentina/Buenos_Aires",
  "America/Godthab": "America/Nuuk",
  "Asia/Calcutta": "Asia/Kolkata",
  "Asia/Katmandu": "Asia/Kathmandu",
  "Asia/Rangoon": "Asia/Yangon",
  "Asia/Saigon": "Asia/Ho_Chi_Minh",
  "Atlantic/Faeroe": "Atlantic/Faroe",
  "Europe/Kiev": "Europe/Kyiv",
  "Pacific/Enderbury": "Pacific/Kanton",
  "Pacific/Ponape": "Pacific/Pohnpei",
  "Pacific/Truk": "Pacific/Chuuk",
};
const ownZone = () => {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone ?? "UTC";
  return NOW_CALLED[zone] ?? zone;
};

function chooseZone(zone) {
  if (!zoneSelect.options.length) {
    const listed = (Intl.supportedValuesOf?.("timeZone") ?? []).map((name) => NOW_CALLED[name] ?? name).sort();
    const zones = new Set(["UTC", ownZone(), ...listed]);
    zoneSelect.append(...[...zones].map((name) => el("option", { value: name }, name.replaceAll("_", " "))));
  }
  if (![...zoneSelect.options].some(({ value }) => value === zone)) zoneSelect.append(el("option", { value: zone }, zone));
  zoneSelect.value = zone;
}

main.addEventListener("change", (event) => {
  if (event.target.matches("select[data-goes]")) go(event.target.value);
});

main.addEventListener("submit", (event) => {
  if (!event.target.matches("form[data-goes]")) return;
  event.preventDefault();
  const named = [...new FormData(event.target)].filter(([, value]) => value);
  go(`${location.pathname}?${new URLSearchParams(named)}`);
});

zoneSelect.addEventListener("change", () => {
  remember.set("zone", zoneSelect.value);
  const url = new URL(location.href);
  url.searchParams.set("timezone", zoneSelect.value);
  go(url.pathname + url.search);
});

function chooseTheme(theme) {
  const [name, sign, text] = THEMES.find(([known]) => known === theme) ?? THEMES[0];
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  themeButton.textContent = sign;
  themeButton.setAttribute("aria-label", `Theme: ${text}`);
  themeButton.title = `Theme: ${text}`;
  themeButton.value = name;
  remember.set("theme", name);
}

const nextTheme = () => {
  const index = THEMES.findIndex(([name]) => name === themeButton.value);
  chooseTheme(THEMES[(index + 1) % THEMES.length][0]);
};
themeButton.addEventListener("click", nextTheme);

function follow(event) {
  const link = event.target.closest?.("a");
  // A link of the header is used again and again: its own address stays the one to begin with.
  const own = link?.dataset.href ?? link?.getAttribute("href");
  const url = new URL(own ?? "about:blank", location.href);
  const isPage = url.origin === location.origin && (["/", "/search", "/people", "/days", "/namespaces", "/compare", "/state"].includes(url.pathname) || /^\/(keys|reach|days)\//.test(url.pathname));
  if (!isPage || own.startsWith("#")) return;
  if (url.pathname !== location.pathname) keepRange(new URLSearchParams(location.search), url.searchParams);
  if (event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) {
    link.dataset.href = own;
    link.search = url.search;
    return;
  }
  event.preventDefault();
  go(url.pathname + url.search, url.pathname !== location.pathname);
}
document.addEventListener("click", follow);
document.addEventListener("auxclick", follow);
document.addEventListener("pointerdown", ({ target }) => {
  const open = document.querySelector(".picker[open]");
  if (open && !open.contains(target)) open.open = false;
});

document.querySelector(".search").addEventListener("submit", (event) => {
  event.preventDefault();
  const named = new URLSearchParams({ q: document.getElementById("q").value });
  keepRange(new URLSearchParams(location.search), named);
  go(`/search?${named}`, true);
});

findAsTyped(document.getElementById("q"), document.getElementById("found"), () => known, (namespace, key) => {
  const url = new URL(keyHref(namespace, key), location.href);
  keepRange(new URLSearchParams(location.search), url.searchParams);
  go(url.pathname + url.search, true);
});

document.addEventListener("keydown", (event) => {
  if (event.metaKey || event.ctrlKey || event.altKey || event.target.matches("input, select, textarea")) return;
  const actions = {
    "/": () => document.getElementById("q").focus(),
    g: () => document.querySelector(".brand").click(),
    d: () => document.getElementById("to-days").click(),
    ...(history.state?.zoomed && { Escape: () => history.back() }),
    r: () => {
      const summary = document.querySelector(".picker summary");
      summary?.focus();
      summary?.click();
    },
    t: nextTheme,
    u: () => { if (current?.nextUnit) go(location.pathname + current.nextUnit()); },
  };
  if (!actions[event.key]) return;
  event.preventDefault();
  actions[event.key]();
});

window.addEventListener("popstate", show);
chooseTheme(remember.get("theme") ?? "auto");
whenBack(show);
show();
