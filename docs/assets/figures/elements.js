// What the figures that one can touch have in common. No framework, nothing from other hosts.

/** An element; attributes that begin with "on" are listeners, and children may be texts. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes))
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** An element of a drawing. */
export function shape(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes))
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** A number of bytes as a person reads it. */
export function bytesText(count) {
  for (const [unit, size] of [["MiB", 1 << 20], ["KiB", 1 << 10]])
    if (count >= size) return `${Number((count / size).toPrecision(4))} ${unit}`;
  return `${count} B`;
}

/** "1 kernel", "3 kernels". */
export const counted = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

/** A button with words. */
export const button = (words, press, attributes = {}) =>
  element("button", {type: "button", onclick: press, ...attributes}, words);

/** A line that is read aloud when it changes. */
export const said = () => element("p", {class: "live-said", role: "status"});

/** Fill each figure of a name: `fill` is given its place and the data that the site made. */
export function figures(name, fill) {
  for (const place of document.querySelectorAll(`[data-figure="${name}"]`)) {
    const data = place.querySelector("script[type='application/json']");
    const body = place.querySelector(".live-body");
    fill(body, data ? JSON.parse(data.textContent) : null);
    body.dataset.ready = "";
  }
}

/** The colours of the page, again whenever its reader chooses others. */
export function onColours(draw) {
  new MutationObserver(draw).observe(document.body,
    {attributes: true, attributeFilter: ["data-md-color-scheme"]});
}
