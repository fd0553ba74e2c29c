// Tables with headers, and headers that sort.

/** A table in a frame of its own that scrolls sideways and can be reached by keyboard. `label` is the frame's name. */
function tableOf(kind, caption, header, rows, label = caption) {
  const body = element("tbody", {}, rows);
  nameCells(header, body.rows);
  const table = element(kind, {}, caption && element("caption", {}, caption), element("thead", {}, header), body);
  table.classList.add("named");
  return element("div.scroll", { tabindex: "0", role: "region", "aria-label": label }, table);
}

/** Gives each cell the name of its column: in a narrow window a row is a block, and its cells say their names. */
function nameCells(header, rows) {
  const names = [...header.cells].map((cell) => cell.textContent);
  for (const row of rows) [...row.cells].forEach((cell, at) => (cell.dataset.name = names[at]));
}

/** A row of cells. */
function tableRow(...cells) {
  return element("tr", {}, cells);
}

/** A row of column headers; a name is text or [text, class]. */
function headerRow(names) {
  return tableRow(
    names.map((name) => {
      const [text, kind] = Array.isArray(name) ? name : [name, ""];
      return element(kind ? `th.${kind}` : "th", { scope: "col" }, text);
    }),
  );
}

/**
 * A row of column headers that sort. A column is {key, name, kind, descending}; `sort` is a key, with "-" before it
 * when descending.
 */
function sortingRow(list, sort, choose) {
  return tableRow(
    list.map(({ key, name, kind, descending }) => {
      const first = descending ? `-${key}` : key;
      const other = descending ? key : `-${key}`;
      const direction = sort === key ? "ascending" : sort === `-${key}` ? "descending" : null;
      const next = () => choose(sort === first ? other : first, key);
      const button = element("button", { type: "button", "data-sort": key, onclick: next }, name);
      return element(kind ? `th.${kind}` : "th", { scope: "col", "aria-sort": direction }, button);
    }),
  );
}

/** Rows sorted by `value(row)`, those without a value last in either direction. */
function sorted(rows, value, descending) {
  const sign = descending ? -1 : 1;
  const keyed = rows.map((row) => [value(row), row]);
  const absent = (key) => key === null || key === undefined || key === "";
  keyed.sort(([a], [b]) => {
    if (absent(a) || absent(b)) return absent(a) - absent(b);
    return a < b ? -sign : a > b ? sign : 0;
  });
  return keyed.map(([, row]) => row);
}

/** Up and down arrows move between the links of a table's rows, Home and End to its ends. */
function withArrows(body) {
  body.addEventListener("keydown", (event) => {
    const links = [...body.querySelectorAll("tr > * > a, tr > * > button")];
    const at = links.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: links.length - 1 }[event.key];
    if (at < 0 || to === undefined || !links[to]) return;
    event.preventDefault();
    links[to].focus();
  });
  return body;
}
