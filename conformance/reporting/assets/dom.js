// Elements. Text from records reaches the page only through text nodes and attribute values made here.

/** Characters that are invisible or reorder what is read: a record must not hide or fake a text with them. */
const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** @returns {string} the text with each invisible character as an escape */
function visible(text) {
  return String(text).replace(INVISIBLE, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/**
 * An element.
 * @param {string} kind its name, with its classes after dots, such as "td.number"
 * @param {Object} attributes handlers are functions under "on..."; null and false leave an attribute out
 * @param {...(Node|string|number|null|Array)} children text becomes text nodes
 */
function element(kind, attributes = {}, ...children) {
  const [name, ...classes] = kind.split(".");
  const node = document.createElement(name);
  if (classes.length) node.className = classes.join(" ");
  return filled(node, attributes, children);
}

/** The same in SVG. */
function drawing(kind, attributes = {}, ...children) {
  const [name, ...classes] = kind.split(".");
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  if (classes.length) node.setAttribute("class", classes.join(" "));
  return filled(node, attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false)
      node.setAttribute(name, value === true ? "" : visible(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : visible(child));
  }
  return node;
}

/** The text with its https addresses as links; any other scheme stays text. */
function linked(text) {
  return String(text)
    .split(/(https:\/\/[^\s"'<>()\\]*[^\s"'<>()\\.,;:])/g)
    .map((part, at) =>
      at % 2 ? element("a", { href: part, rel: "noopener noreferrer nofollow", target: "_blank" }, part) : part,
    );
}

/** Whether a value from a record is an object with keys. */
function isMapping(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

/** Whether a value from a record is a finite number. */
function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}
