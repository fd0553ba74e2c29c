// The first screen: the answer, the stack under test, what went wrong with the run, and the matrix.

const PROBLEMS_SHOWN = 1;

async function overviewView() {
  const { run } = head;
  const cases = [answerText(run), statusBar(run)];
  return [
    element("h1", {}, answerTitle()),
    head.comparison ? await decisionParts() : cases,
    alarm(head.comparison ? "Run problems of the candidate" : "Run problems", run.problems, run.problem_count, PROBLEMS_SHOWN),
    head.comparison && alarm("Problems of the baseline", head.comparison.problems, head.comparison.problems.length),
    run.recorded + run.unrecorded ? null : howTo("This run has no cases.", "conformance run --tier quick"),
    head.comparison ? null : [failuresTable(), run.recorded ? tables() : null],
    element("div.split", {}, element("div", {}, stackRegion()), element("div", {}, runRegion())),
    head.comparison && [element("h2", {}, "All cases of the candidate"), cases, run.recorded ? tables() : null],
    leftOut(),
  ];
}

/** What somebody needs who decides: what got worse for whom, what nobody looked at, and what to do next. */
async function decisionParts() {
  const { comparison } = head;
  const groups = await unpacked("groups");
  const list = (id, title, texts) => (texts.length ? region(id, title, listOf("ul", texts)) : null);
  return [
    element("p.answer", {}, element("strong", {}, comparison.answer)),
    comparisonText(groups),
    comparison.history.map((text) => element("p.quiet", {}, sentence(text))),
    comparison.objections.length
      ? alarm("What else speaks against the candidate", comparison.objections, comparison.objections.length)
      : null,
    regressionsTable(groups),
    element(
      "div.split",
      {},
      element("div", {}, list("next", "What to do next", comparison.next)),
      element("div", {}, list("unseen", "What was not looked at", comparison.unseen)),
    ),
    list("scripts", "What was tried with both stacks", comparison.scripts),
  ];
}

function stackRegion() {
  return region("stack", "Stack under test", stackTables());
}

function runRegion() {
  const title = head.comparison ? "Run of the candidate" : "Run";
  return region("run", title, factsTable([["run", head.run.id], ...head.run.facts]));
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
  if (comparison && !comparison.safe) return `${comparison.title}: ${comparison.verdict}`;
  if (comparison)
    return `${comparison.title}: safe${comparison.reach && ` (${comparison.reach})`}${failing ? `; ${counted(failing, "case")} failed` : ""}`;
  if (failing) return `${counted(failing, "case")} failed`;
  if (!run.passed) return "Nothing was proven";
  if (run.problem_count) return "No recorded case failed; the run is not whole";
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
  return answer;
}

/** How many cases got worse, which kernels and targets have them, and what else was found. */
function comparisonText(groups) {
  const { compared, unchanged, severities } = head.comparison;
  const worse = groups.filter(({ severity }) => severity === "regression").flatMap(({ findings }) => findings);
  const cases = new Set(worse.map(([id]) => id)).size;
  const where = [1, 2].map((at) => listedNames(worse.map((finding) => finding[at]))).filter(Boolean).join(" on ");
  const rest = ["warning", "info"]
    .filter((severity) => severities[severity])
    .map((severity) => counted(severities[severity], severity === "info" ? "note" : severity))
    .join(" and ");
  return element(
    "p.answer",
    {},
    element("strong", {}, cases ? `${counted(cases, "case")} got worse` : "No regression was found"),
    where ? `: ${where}. ` : ". ",
    `${counted(compared, "case")} compared, ${grouped.format(unchanged)} unchanged. `,
    rest ? `Also ${rest}. ` : "",
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

/** The versions, and folded below them what else makes code, unless it differs from the baseline's. */
function stackTables() {
  const after = head.run.stack;
  const before = head.comparison ? head.comparison.stacks[0] : null;
  const names = [...new Set([...Object.keys(after), ...Object.keys(before ?? {})])];
  const expected = ["torch", "triton", "ptxas", "ptxas-blackwell", "driver", "device", "python"];
  const order = [...expected, ...names.filter((name) => !expected.includes(name))];
  const assemblers = (head.comparison?.assemblers ?? []).map(([name, was, now]) => [name, now, was]);
  const rows = order.map((name) => [name, after[name] ?? "none", before && (before[name] ?? "none")]);
  const bill = new Set(head.run.bill.filter((name) => !expected.includes(name)));
  const isFolded = ([name, now, was]) => bill.has(name) && (!before || now === was);
  const rest = rows.filter(isFolded);
  return [
    pairsTable([...rows.filter((row) => !isFolded(row)), ...assemblers], Boolean(before)),
    rest.length
      ? folded(`Bill of materials: ${counted(rest.length, "more entry", "more entries")}`, () => [
          pairsTable(rest, Boolean(before)),
        ])
      : null,
  ];
}
