// The data in the page: a small head that is plain, and compressed parts that are unpacked when they are needed.

/** The value of a plain data element; null if there is none. */
function plainData(id) {
  const node = document.getElementById(id);
  return node ? JSON.parse(node.textContent) : null;
}

/** The text of a packed data element; null if there is none. */
async function unpackedText(id) {
  const text = plainData(id);
  if (text === null) return null;
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}

const opened = new Map();

/** The value of a packed data element, kept once it is unpacked. */
function unpacked(id) {
  if (!opened.has(id))
    opened.set(
      id,
      unpackedText(id).then((text) => (text === null ? null : JSON.parse(text))),
    );
  return opened.get(id);
}

const head = plainData("head");
/** @type {Array<{name: string, group: string}>} the worst first */
const STATUSES = head.run.statuses.map(([name, group]) => ({ name, group }));
const GROUP_OF = Object.fromEntries(STATUSES.map(({ name, group }) => [name, group]));
/** The list of cases, a column each, once {@link loadColumns} has ended. */
let columns = null;
let rowsByCase = null;
let beforeByCase = null;

async function loadColumns() {
  columns = await unpacked("columns");
  rowsByCase = new Map();
  columns.case.forEach((id, row) => (rowsByCase.has(id) ? rowsByCase.get(id).push(row) : rowsByCase.set(id, [row])));
  beforeByCase = new Map(head.before.map((id, at) => [id, at]));
}

/** The text of a column in a row. */
function textOf(column, row) {
  return columns.tables[column][columns[column][row]];
}

/** The record of a row in full; null where the file had no room for it. */
async function recordOf(row) {
  if (row >= head.kept) return null;
  return (await unpacked(`record-${Math.floor(row / head.chunk)}`))[row % head.chunk];
}

/** The baseline's record of a case; null where it has none or nothing was found in it. */
async function recordBefore(id) {
  const at = beforeByCase.get(id);
  return at === undefined ? null : (await unpacked(`before-${Math.floor(at / head.chunk)}`))[at % head.chunk];
}
