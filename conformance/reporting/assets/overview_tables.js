// The tables of the first screen: causes, the matrix of kernels and targets, suites and reasons.

const ROWS_SHOWN = 10;

/** The first groups that speak against the candidate. */
function regressionsTable(groups) {
  const regressions = groups.map((group, at) => ({ ...group, at })).filter(({ severity }) => severity === "regression");
  if (!regressions.length) return null;
  const rows = regressions.slice(0, ROWS_SHOWN).map(({ kind, meaning, notes, cause, findings, at }) => {
    const [, , , before, after, , detail] = findings[0];
    const [says] = detail.split("\n");
    return tableRow(
      element("td", {}, badge(kind, "bad")),
      element(
        "th",
        { scope: "row" },
        viewLink("changes", { open: String(at) }, cause),
        element("span.note", {}, [meaning, ...notes.map(sentence)].join(" ")),
      ),
      element("td", {}, listedNames(findings.map((finding) => finding[1]), true)),
      element("td", {}, listedNames(findings.map((finding) => finding[2]), true)),
      element(
        "td",
        {},
        before ? `${before} → ${after}` : after,
        says && !cause.includes(says) ? element("span.note", {}, says.slice(0, 200)) : null,
      ),
      element("td.number", {}, grouped.format(findings.length)),
    );
  });
  const header = ["Change", "Cause", "Kernels", "Targets", "For example", ["Cases", "number"]];
  return [
    element("h2", {}, "Regressions"),
    tableOf("table.regressions", shownOf(regressions.length, "cause"), headerRow(header), rows),
  ];
}

const NAMES_SHOWN = 6;

/** The names, each once, the most frequent first, with their numbers if there are several and these are asked for. */
function listedNames(names, numbers = false) {
  const times = new Map();
  for (const name of names.filter(Boolean)) times.set(name, (times.get(name) ?? 0) + 1);
  const each = sorted(sorted([...times], ([name]) => name, false), ([, count]) => count, true);
  const shown = each
    .slice(0, NAMES_SHOWN)
    .map(([name, count]) => (numbers && each.length > 1 ? `${name} ${grouped.format(count)}` : name));
  const more = each.length - NAMES_SHOWN;
  return shown.join(", ") + (more > 0 ? ` and ${grouped.format(more)} more` : "");
}

const CAUSES_SHOWN = 3;
const CAUSE_CHARACTERS = 140; // two lines of the table

/** The failing cases by cause: wrong results first, lost features and spills last; all but the first few folded. */
function failuresTable() {
  const causes = new Map();
  columns.case.forEach((id, row) => {
    if (STATUSES[columns.status[row]].group !== "bad") return;
    const key = columns.cause[row];
    if (!causes.has(key)) causes.set(key, { text: textOf("cause", row), kernels: [], targets: [], count: 0 });
    const cause = causes.get(key);
    cause.count += columns.weight?.[row] ?? 1;
    cause.kernels.push(textOf("kernel", row));
    cause.targets.push(textOf("target", row));
  });
  if (!causes.size) return null;
  const ranked = sorted(
    sorted([...causes.values()], ({ count }) => count, true),
    ({ text }) => head.meanings.indexOf(text.split(": ")[0]),
    false,
  ).map(causeRow);
  const table = (rows, caption) =>
    tableOf("table", caption, headerRow(["Failure", "Cause", "Kernels", "Targets", ["Cases", "number"]]), rows);
  const rest = ranked.slice(CAUSES_SHOWN);
  return [
    element("h2", {}, "Failures"),
    table(ranked.slice(0, CAUSES_SHOWN), counted(ranked.length, "cause")),
    rest.length ? folded(`${counted(rest.length, "more cause")}`, () => [table(rest, "All other causes")]) : null,
  ];
}

function causeRow({ text, kernels, targets, count }) {
  const [meaning] = text.split(": ", 1);
  const cause = text.slice(meaning.length + 2);
  const shown = cause.length > CAUSE_CHARACTERS ? `${cause.slice(0, CAUSE_CHARACTERS)}…` : cause;
  return tableRow(
    element("td", {}, badge(meaning, "bad")),
    element("th", { scope: "row" }, viewLink("cases", { cause: text }, shown || "(no message)")),
    element("td", {}, listedNames(kernels, true)),
    element("td", {}, listedNames(targets, true)),
    element("td.number", {}, grouped.format(count)),
  );
}

function shownOf(count, noun) {
  return count > ROWS_SHOWN ? `The first ${ROWS_SHOWN} of ${counted(count, noun)}` : counted(count, noun);
}

/** For each value of a column, and of a second one, how many cases have each status. */
function counts(column, across) {
  const table = new Map();
  columns.case.forEach((_, row) => {
    const key = columns[column][row];
    const other = across ? columns[across][row] : 0;
    if (!table.has(key)) table.set(key, new Map());
    if (!table.get(key).has(other))
      table.get(key).set(
        other,
        STATUSES.map(() => 0),
      );
    table.get(key).get(other)[columns.status[row]] += columns.weight?.[row] ?? 1;
  });
  return table;
}

function matrixTable() {
  const kernels = counts("kernel", "target");
  const targets = sorted(
    columns.tables.target.map((name, at) => ({ name, at })),
    ({ name }) => (name === "(none)" ? 1 : 0),
    false,
  );
  const rows = [...kernels]
    .sort(([a], [b]) => a - b)
    .map(([kernel, cells]) => {
      const name = columns.tables.kernel[kernel];
      return tableRow(
        element("th.code", { scope: "row" }, viewLink("cases", { kernel: name }, name)),
        targets.map((target) => matrixCell({ kernel: name, target: target.name }, cells.get(target.at))),
      );
    });
  return tableOf(
    "table.matrix",
    "Each cell has the colour of its worst status. It links to its cases.",
    headerRow(["Kernel", ...targets.map((target) => target.name)]),
    rows,
  );
}

function matrixCell(parameters, statuses) {
  if (!statuses) return element("td.none", {}, "–", element("span.hidden-text", {}, "no case"));
  const present = STATUSES.map((status, at) => ({ ...status, count: statuses[at] })).filter(({ count }) => count);
  const link = viewLink(
    "cases",
    parameters,
    present.map(({ name, count }) => element("span", {}, `${grouped.format(count)} ${name}`)),
  );
  const cell = element("td.cell", {}, link);
  link.className = present[0].group;
  return cell;
}

function suitesTable() {
  const suites = counts("suite", null);
  const shown = STATUSES.map((status, at) => ({ ...status, at })).filter(({ at }) => head.run.statuses[at][2]);
  const rows = [...suites]
    .sort(([a], [b]) => a - b)
    .map(([suite, cells]) => {
      const name = columns.tables.suite[suite];
      const statuses = cells.get(0);
      const worst = shown.find(({ at }) => statuses[at]);
      return tableRow(
        element("th", { scope: "row" }, viewLink("cases", { suite: name }, name)),
        element("td", {}, badge(worst.name, worst.group)),
        shown.map(({ name: status, at }) =>
          element(
            "td.number",
            {},
            statuses[at]
              ? viewLink("cases", { suite: name, status }, grouped.format(statuses[at]))
              : element("span.quiet", {}, "0"),
          ),
        ),
      );
    });
  return tableOf(
    "table",
    "Cases of each suite by status",
    headerRow(["Suite", "Worst", ...shown.map(({ name }) => [name, "number"])]),
    rows,
  );
}

function reasonsTable() {
  const reasons = [...counts("reason", "status")].filter(([reason]) => columns.tables.reason[reason]);
  if (!reasons.length) return null;
  const rows = reasons.flatMap(([reason, cells]) =>
    [...cells].map(([status, statuses]) => {
      const code = columns.tables.reason[reason];
      const { name, group } = STATUSES[status];
      return [
        statuses[status],
        tableRow(
          element("th", { scope: "row" }, viewLink("cases", { reason: code, status: name }, code)),
          element("td", {}, badge(name, group)),
          element("td.number", {}, grouped.format(statuses[status])),
        ),
      ];
    }),
  );
  const list = sorted(rows, ([count]) => count, true).map(([, row]) => row);
  return [
    element("h2", {}, "Reasons"),
    tableOf(
      "table",
      "Why cases were refused, not run or expected to fail",
      headerRow(["Reason", "Status", ["Cases", "number"]]),
      list,
    ),
  ];
}

/** How many cases are counted and not listed, and which are. */
function unlisted() {
  return (
    `${counted(head.run.recorded - head.run.listed, "case")} of ${grouped.format(head.run.recorded)} counted in the ` +
    "tables of this page but not listed. Listed are the cases that failed or changed for the worse, and the first " +
    `${head.limits.listed} of each suite, kernel, target, status and reason. conformance show has every case.`
  );
}

/** What the file does not hold, so that nobody takes its absence for an answer. */
function leftOut() {
  const sentences = Object.entries(head.left_out).map(
    ([why, count]) => `${counted(count, "artefact")} not embedded: ${why}`,
  );
  if (head.run.listed < head.run.recorded) sentences.push(unlisted());
  if (head.kept < head.run.listed)
    sentences.push(`${counted(head.run.listed - head.kept, "case")} without a page: the file would be too large`);
  if (!sentences.length) return null;
  return [element("h2", {}, "Left out of this file"), listOf("ul.quiet", sentences)];
}
