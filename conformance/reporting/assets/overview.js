// The first screen: the answer, the stack under test, what went wrong with the run, and the matrix.

async function overviewView() {
  const { run } = head;
  return [
    element("h1", {}, answerTitle()),
    answerText(run),
    statusBar(run),
    alarm(head.comparison ? "Run problems of the candidate" : "Run problems", run.problems, run.problem_count),
    head.comparison && alarm("Problems of the baseline", head.comparison.problems, head.comparison.problems.length),
    run.recorded + run.unrecorded ? null : howTo("This run has no cases.", "conformance run --tier quick"),
    element(
      "div.split",
      {},
      element("div", {}, head.comparison ? regressionsTable(await unpacked("groups")) : failuresTable(), stackRegion()),
      element("div", {}, region("run", "Run", factsTable([["run", run.id], ...run.facts]))),
    ),
    run.recorded ? tables() : null,
    leftOut(),
  ];
}

function stackRegion() {
  return region("stack", "Stack under test", stackTable());
}

/** The matrix with the suites beside it, or below it where it has many targets. */
function tables() {
  const wide = columns.tables.target.length > 4;
  return element(
    wide ? "div" : "div.split",
    {},
    element("div", {}, element("h2", {}, "Kernels and targets"), matrixTable()),
    element("div", {}, element("h2", {}, "Suites"), suitesTable(), reasonsTable()),
  );
}

/** A part of the page that a screen reader can go to by its title. */
function region(id, title, content) {
  return element("section", { "aria-labelledby": id }, element("h2", { id }, title), content);
}

function answerTitle() {
  const { run, comparison } = head;
  const failing =
    run.statuses.reduce((sum, [, group, count]) => sum + (group === "bad" ? count : 0), 0) + run.unrecorded;
  if (comparison && !comparison.safe) return `${comparison.title}: not safe`;
  if (comparison)
    return `${comparison.title}: safe${failing ? `; ${counted(failing, "case")} failed` : ""}`;
  if (failing) return `${counted(failing, "case")} failed`;
  if (!run.passed) return "Nothing was proven";
  return run.passed === run.claimed ? "All claimed cases passed" : "No case failed; not all were proven";
}

function answerText(run) {
  const outside = run.recorded + run.unrecorded - run.claimed;
  const answer = element(
    "p.answer",
    { id: "answer" },
    element("strong", {}, `${grouped.format(run.passed)} of ${grouped.format(run.claimed)}`),
    ` claimed cases passed (${percent(run.passed, run.claimed)}). `,
    `${counted(run.selected ?? run.recorded, "case")} ${run.selected === null ? "recorded" : "selected"}; `,
    `${grouped.format(outside)} not applicable, which the rate leaves out. `,
    "A case that was not run counts as claimed and never as passed.",
    run.unrecorded ? element("strong", {}, ` ${counted(run.unrecorded, "selected case")} left no record.`) : null,
  );
  return [answer, head.comparison && comparisonText()];
}

function comparisonText() {
  const { compared, unchanged, names, severities } = head.comparison;
  const counts = Object.entries(severities)
    .map(([severity, count]) => counted(count, severity, severity === "info" ? "infos" : `${severity}s`))
    .join(", ");
  return element(
    "p.answer",
    {},
    `Against ${names[0]}: ${counted(compared, "case")} compared, ${grouped.format(unchanged)} unchanged; ${counts || "nothing found"}. `,
    viewLink("changes", {}, "What changed"),
  );
}

/** The counts by status, as a bar and as links to the cases. */
function statusBar(run) {
  const present = run.statuses.filter(([, , count]) => count);
  const bar = element(
    "div.bar",
    { "aria-hidden": "true" },
    present.map(([, group, count]) => {
      const part = element(`span.${group}`);
      part.style.flexGrow = count;
      return part;
    }),
  );
  const counts = present.map(([name, group, count]) => {
    const link = viewLink("cases", { status: name }, element("b", {}, grouped.format(count)), ` ${name}`);
    link.className = group;
    return element("li", {}, link);
  });
  return [bar, element("ul.counts", { "aria-label": "Cases by status" }, counts)];
}

function stackTable() {
  const after = head.run.stack;
  const before = head.comparison ? head.comparison.stacks[0] : null;
  const names = [...new Set([...Object.keys(after), ...Object.keys(before ?? {})])];
  const expected = ["torch", "triton", "ptxas", "ptxas-blackwell", "driver", "device", "python"];
  const order = [...expected, ...names.filter((name) => !expected.includes(name))];
  return pairsTable(
    order.map((name) => [name, after[name] ?? "none", before && (before[name] ?? "none")]),
    Boolean(before),
  );
}
