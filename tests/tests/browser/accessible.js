// What is obviously wrong with the page for who cannot see it, or not well; a list of sentences.
const wrong = [];
const say = (element, what) => wrong.push(`${what}: ${element.outerHTML.slice(0, 120)}`);
const all = (selector) => [...document.querySelectorAll(selector)];
const isSeen = (element) => element.checkVisibility() && !element.closest(".hidden");

if (!document.documentElement.lang) wrong.push("the page has no language");
if (!document.title) wrong.push("the page has no title");
if (!document.querySelector("main")) wrong.push("the page has no main part");

const name = (element) => [
  element.getAttribute("aria-label"),
  ...(element.getAttribute("aria-labelledby") ?? "").split(" ").map((id) => document.getElementById(id)?.textContent),
  ...[...(element.labels ?? [])].map((label) => label.textContent),
  element.textContent,
  element.title,
].some((text) => text?.trim());
all("a, button, input:not([type=hidden]), select, textarea").filter(isSeen)
  .forEach((element) => name(element) || say(element, "has no name"));
all("img").forEach((image) => image.hasAttribute("alt") || say(image, "has no alternative text"));
all("svg").forEach((picture) => (picture.getAttribute("role") === "img" && picture.getAttribute("aria-label")) || say(picture, "is not named"));
all("figure.chart svg").forEach((picture) => picture.querySelector("desc")?.textContent || say(picture, "is not described"));

const headings = all("h1, h2, h3, h4").filter((heading) => heading.checkVisibility());
if (headings.filter(({ tagName }) => tagName === "H1").length !== 1) wrong.push("the page has not one first heading");
headings.reduce((before, heading) => {
  const level = Number(heading.tagName[1]);
  if (level > before + 1) say(heading, "skips a level");
  return level;
}, 0);

const ids = all("[id]").map(({ id }) => id);
ids.filter((id, index) => ids.indexOf(id) !== index).forEach((id) => wrong.push(`two elements have the id ${id}`));
all("[aria-labelledby], [aria-describedby]").forEach((element) => ["aria-labelledby", "aria-describedby"]
  .flatMap((attribute) => (element.getAttribute(attribute) ?? "").split(" ").filter(Boolean))
  .forEach((id) => document.getElementById(id) || say(element, `names ${id}, which is not there`)));
all("ul > :not(li), ol > :not(li), dl > :not(dt, dd)").forEach((element) => say(element, "is no item of its list"));
all("[tabindex]").forEach((element) => Number(element.getAttribute("tabindex")) > 0 && say(element, "jumps the order of the keyboard"));

// Contrast (WCAG 2, AA), of text on the nearest ground that is not transparent.
const channels = (color) => (color.match(/[\d.]+/g) ?? []).map(Number);
const luminance = ([red, green, blue]) => [red, green, blue]
  .map((value) => value / 255)
  .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
  .reduce((sum, value, index) => sum + value * [0.2126, 0.7152, 0.0722][index], 0);
const ground = (element) => {
  for (let place = element; place; place = place.parentElement) {
    if (place.tagName === "svg") {
      const card = place.querySelector(".k");
      if (card) return channels(getComputedStyle(card).fill);
    }
    const color = channels(getComputedStyle(place).backgroundColor);
    if (color.length === 3 || color[3] === 1) return color;
  }
  return [255, 255, 255];
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  const element = node.parentElement;
  if (!node.textContent.trim() || !isSeen(element) || element.closest("title, desc, script, option, .skip")) continue;
  const style = getComputedStyle(element);
  const color = channels(element.namespaceURI.endsWith("svg") ? style.fill : style.color);
  const [one, other] = [luminance(color) + 0.05, luminance(ground(element)) + 0.05];
  const contrast = Math.max(one, other) / Math.min(one, other);
  const size = Number.parseFloat(style.fontSize);
  const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  if (contrast < (isLarge ? 3 : 4.5)) say(element, `has a contrast of ${contrast.toFixed(2)}`);
}

// Nothing sticks out sideways, and what is touched is large enough.
if (document.documentElement.scrollWidth > window.innerWidth + 1) wrong.push(`the page is ${document.documentElement.scrollWidth} pixels wide on ${window.innerWidth}`);
all("button, select, input:not([type=hidden]), nav a").filter(isSeen).forEach((element) => {
  const { width, height } = element.getBoundingClientRect();
  if (width < 24 || height < 24) say(element, `is ${Math.round(width)} by ${Math.round(height)} pixels to touch`);
});
return wrong;
