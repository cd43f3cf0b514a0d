// What axe does not look for, and is wrong with the page for who cannot see it, or not well; a list of sentences.
const wrong = [];
const say = (element, what) => wrong.push(`${what}: ${element.outerHTML.slice(0, 120)}`);
const all = (selector) => [...document.querySelectorAll(selector)];
const isSeen = (element) => element.checkVisibility() && !element.closest(".hidden");

all("svg").forEach((picture) => (picture.getAttribute("role") === "img" && picture.getAttribute("aria-label")) || say(picture, "is not named"));
all("figure.chart svg").forEach((picture) => picture.querySelector("desc")?.textContent || say(picture, "is not described"));

if (all("h1").filter(isSeen).length !== 1) wrong.push("the page has not one first heading");
const ids = all("[id]").map(({ id }) => id);
ids.filter((id, index) => ids.indexOf(id) !== index).forEach((id) => wrong.push(`two elements have the id ${id}`));

// Contrast (WCAG 2, AA), of text in pictures on their ground.
const channels = (color) => (color.match(/[\d.]+/g) ?? []).map(Number);
const luminance = ([red, green, blue]) => [red, green, blue]
  .map((value) => value / 255)
  .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
  .reduce((sum, value, index) => sum + value * [0.2126, 0.7152, 0.0722][index], 0);
all("svg .k").forEach((card) => card.parentElement.querySelectorAll("text").forEach((text) => {
  const [one, other] = [text, card].map((element) => luminance(channels(getComputedStyle(element).fill)) + 0.05);
  const contrast = Math.max(one, other) / Math.min(one, other);
  if (contrast < 4.5) say(text, `has a contrast of ${contrast.toFixed(2)}`);
}));

// Nothing sticks out sideways, and what is touched is large enough.
if (document.documentElement.scrollWidth > window.innerWidth + 1) wrong.push(`the page is ${document.documentElement.scrollWidth} pixels wide on ${window.innerWidth}`);
all("button, select, input:not([type=hidden]), nav a").filter(isSeen).forEach((element) => {
  const { width, height } = element.getBoundingClientRect();
  if (width < 24 || height < 24) say(element, `is ${Math.round(width)} by ${Math.round(height)} pixels to touch`);
});
return wrong;
