// Which rows of the list of cases are shown, from the parameters in the address.

const FACETS = ["kernel", "target", "suite", "reason", "cause"];
let searched = null;

/** What is searched of each case, in lower case, made once. */
function searchTexts() {
  searched ??= columns.case.map((id, row) => `${id}\n${textOf("note", row)}`.toLowerCase());
  return searched;
}

/** The status names that a parameter such as "fail,crash" asks for. */
function wantedStatuses(parameters) {
  return new Set((parameters.status || "").split(",").filter((name) => Object.hasOwn(GROUP_OF, name)));
}

/**
 * The rows that fit, in the order of the data (the worst first), and for each status how many fit all else.
 * @returns {{rows: number[], counts: number[]}}
 */
function filteredRows(parameters) {
  const words = (parameters.text || "").toLowerCase().split(/\s+/).filter(Boolean);
  const texts = words.length ? searchTexts() : null;
  const facets = FACETS.filter((name) => Object.hasOwn(parameters, name)).map((name) => [
    columns[name],
    columns.tables[name].indexOf(parameters[name]),
  ]);
  const wanted = wantedStatuses(parameters);
  const shown = STATUSES.map(({ name }) => !wanted.size || wanted.has(name));
  const counts = STATUSES.map(() => 0);
  const rows = [];
  for (let row = 0; row < columns.case.length; row++) {
    if (!facets.every(([column, number]) => column[row] === number)) continue;
    if (texts && !words.every((word) => texts[row].includes(word))) continue;
    counts[columns.status[row]]++;
    if (shown[columns.status[row]]) rows.push(row);
  }
  return { rows, counts };
}
