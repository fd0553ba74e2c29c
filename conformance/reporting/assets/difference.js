// The difference of two texts by lines (E. Myers, "An O(ND) Difference Algorithm and Its Variations", 1986).

/** Edits searched for: two texts that differ in more are shown beside each other from their first difference on. */
const EDITS = 2000;

/**
 * The runs in which two lists of lines are equal, in order: [start in a, start in b, length].
 * @returns {{equal: Array<[number, number, number]>, complete: boolean}}
 */
function equalRuns(a, b) {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const middle = middleRuns(a.slice(start, a.length - end), b.slice(start, b.length - end));
  const runs = (middle ?? []).map(([x, y, length]) => [x + start, y + start, length]);
  if (start) runs.unshift([0, 0, start]);
  if (end) runs.push([a.length - end, b.length - end, end]);
  return { equal: runs, complete: middle !== null };
}

/** The same for texts that begin and end differently; null past the limit of edits. */
function middleRuns(a, b) {
  const limit = Math.min(EDITS, a.length + b.length);
  const reach = new Int32Array(2 * limit + 3); // by diagonal k = x - y: how far into a its best path came
  const middle = limit + 1;
  const steps = [];
  for (let edits = 0; edits <= limit; edits++) {
    steps.push(reach.slice(middle - edits - 1, middle + edits + 2));
    for (let k = -edits; k <= edits; k += 2) {
      const down = k === -edits || (k !== edits && reach[middle + k - 1] < reach[middle + k + 1]);
      let x = down ? reach[middle + k + 1] : reach[middle + k - 1] + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
      reach[middle + k] = x;
      if (x >= a.length && x - k >= b.length) return walkedBack(steps, a.length, b.length);
    }
  }
  return null;
}

function walkedBack(steps, x, y) {
  const runs = [];
  for (let edits = steps.length - 1; edits >= 0; edits--) {
    const reach = steps[edits]; // of diagonals -edits - 1 to edits + 1
    const at = (k) => reach[k + edits + 1];
    const k = x - y;
    const down = k === -edits || (k !== edits && at(k - 1) < at(k + 1));
    const before = edits === 0 ? 0 : down ? at(k + 1) : at(k - 1);
    const from = edits === 0 ? 0 : down ? before : before + 1;
    if (x > from) runs.push([from, from - k, x - from]);
    x = before;
    y = before - (down ? k + 1 : k - 1);
  }
  return runs.reverse();
}

const CONTEXT = 3;
const FOLDED = 12; // equal lines that are not near a change are folded when there are more
const LINES_SHOWN = 20000;

/** Two texts beside each other: what is equal far from a change is folded and opens on request. */
function differenceTable(before, after) {
  const a = before.split("\n");
  const b = after.split("\n");
  const { equal, complete } = equalRuns(a, b);
  const body = element("tbody");
  let x = 0;
  let y = 0;
  let changed = 0;
  for (const [nextX, nextY, length] of [...equal, [a.length, b.length, 0]]) {
    changed += Math.max(nextX - x, nextY - y);
    if (body.childElementCount < LINES_SHOWN) body.append(...changedRows(a.slice(x, nextX), b.slice(y, nextY), x, y));
    if (body.childElementCount < LINES_SHOWN)
      body.append(...equalRows(a.slice(nextX, nextX + length), nextX, nextY, nextX === 0, nextX + length === a.length));
    x = nextX + length;
    y = nextY + length;
  }
  const header = tableRow(
    element("th.at", { scope: "col" }, element("span.hidden-text", {}, "Line")),
    element("th", { scope: "col" }, "Baseline"),
    element("th.at", { scope: "col" }, element("span.hidden-text", {}, "Line")),
    element("th", { scope: "col" }, "Candidate"),
  );
  const table = element(
    "table.difference",
    {},
    element("caption.hidden-text", {}, "Difference by lines"),
    element("thead", {}, header),
    body,
  );
  const summary = changed ? `${counted(changed, "line")} differ.` : "Equal in both.";
  const limits = [
    complete ? "" : ` They differ in more than ${EDITS} lines: not every equal line was found.`,
    body.childElementCount < LINES_SHOWN ? "" : ` The first ${grouped.format(LINES_SHOWN)} rows are shown.`,
  ];
  return [
    element("p", { role: "status" }, summary, limits),
    changed ? element("div.frame", { tabindex: "0", role: "region", "aria-label": "Difference" }, table) : null,
  ];
}

function changedRows(removed, added, x, y) {
  return Array.from({ length: Math.max(removed.length, added.length) }, (_, at) =>
    tableRow(
      element("td.at", {}, at < removed.length ? x + at + 1 : ""),
      side("removed", "−", removed[at]),
      element("td.at", {}, at < added.length ? y + at + 1 : ""),
      side("added", "+", added[at]),
    ),
  );
}

function side(kind, sign, text) {
  return text === undefined ? element("td") : element(`td.${kind}`, {}, `${sign} ${text}`);
}

function equalRows(texts, x, y, first, last) {
  const row = (at) =>
    tableRow(
      element("td.at", {}, x + at + 1),
      element("td", {}, `  ${texts[at]}`),
      element("td.at", {}, y + at + 1),
      element("td", {}, `  ${texts[at]}`),
    );
  const rows = (from, to) => Array.from({ length: Math.max(0, to - from) }, (_, at) => row(from + at));
  const from = first ? 0 : CONTEXT;
  const to = texts.length - (last ? 0 : CONTEXT);
  if (to - from <= FOLDED) return rows(0, texts.length);
  const gap = element("tr.gap");
  const open = element(
    "button",
    { type: "button", onclick: () => gap.replaceWith(...rows(from, to)) },
    `Show ${counted(to - from, "equal line")}`,
  );
  gap.append(element("td", { colspan: "4" }, open));
  return [...rows(0, from), gap, ...rows(to, texts.length)];
}
