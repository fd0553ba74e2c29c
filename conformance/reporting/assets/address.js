// What is shown is in the address, after "#/": the view's name, then its parameters like those of a query.

/** @returns {{view: string, parameters: Object<string, string>}} */
function readAddress() {
  const [view, query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { view: view || "overview", parameters: Object.fromEntries(new URLSearchParams(query)) };
}

/** The address of a view; parameters that are empty are left out. */
function addressOf(view, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value !== undefined));
  const text = query.toString();
  return `#/${view === "overview" ? "" : view}${text ? `?${text}` : ""}`;
}

/** Notes in the address what the reader changed in a view. A step can be gone back to; typing is no step. */
function noteAddress(view, parameters, step) {
  const address = addressOf(view, parameters);
  if (address === location.hash) return;
  if (step) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
}

/** A link to a view. */
function viewLink(view, parameters, ...children) {
  return element("a", { href: addressOf(view, parameters) }, ...children);
}
