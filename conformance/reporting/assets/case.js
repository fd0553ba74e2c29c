// The page of one case: its result, the reason and how to reproduce it.

async function caseView(parameters) {
  const id = parameters.id ?? "";
  const rows = rowsByCase.get(id) ?? [];
  const at = Math.min(rows.length, Math.max(1, Number.parseInt(parameters.record, 10) || 1)) - 1;
  const [record, before] = await Promise.all([rows.length ? recordOf(rows[at]) : null, recordBefore(id)]);
  const findings = await findingsOf(id);
  const title = [
    element("p", {}, viewLink("cases", lastList, "List of cases")),
    element("h1.code", {}, id || "No case"),
  ];
  if (!rows.length && !before) return [...title, element("p", {}, "No record in this file has this id.")];
  return [
    ...title,
    statusLine(rows[at], record, before),
    otherRecords(id, rows, at),
    record?.left_out ? element("p.alarm.mild", {}, record.left_out) : null,
    rows.length && !record
      ? element("p.alarm.mild", {}, "The record is not in this file: it would be too large.")
      : null,
    findingsTable(findings),
    ...((record ?? before) ? findingSections(record ?? before, record ? before : null) : []),
    await artefactsSection(id, record ?? before),
    (record ?? before) ? element("div.columns", {}, comparedSections(record, before)) : null,
    record ? rawSection(record) : null,
  ];
}

function statusLine(row, record, before) {
  const status = row === undefined ? null : STATUSES[columns.status[row]];
  const now = status ? badge(status.name, status.group) : badge("no record", "bad");
  const then = before && badge(before.status, GROUP_OF[before.status] ?? "outside");
  const reason = record?.reason;
  return [
    element("p.answer", {}, then ? ["Baseline ", then, " Candidate "] : null, now),
    reason ? element("p", {}, element("b", {}, reason.code), ` (${reason.subject}): `, linked(reason.detail)) : null,
  ];
}

function otherRecords(id, rows, at) {
  if (rows.length < 2) return null;
  const links = rows.map((_, other) =>
    other === at
      ? element("b", {}, ` ${other + 1}`)
      : [" ", viewLink("case", { id, record: other ? String(other + 1) : "" }, `${other + 1}`)],
  );
  return element("p.alarm.mild", {}, `Recorded ${rows.length} times:`, links);
}

function findingsTable(findings) {
  if (!findings.length) return null;
  const rows = findings.map(({ group, finding }) =>
    tableRow(
      element("td", {}, badge(group.kind, SEVERITY_GROUP[group.severity])),
      element("td", {}, group.cause),
      [3, 4, 5, 6].map((column) => element(column === 5 ? "td.number" : "td", {}, findingText(finding, column))),
    ),
  );
  return [
    element("h2", {}, "Changes"),
    tableOf("table", "", headerRow(["Change", "Cause", "Baseline", "Candidate", ["Ratio", "number"], "Detail"]), rows),
  ];
}

/** What was found, from the record that is shown; `before` is the baseline's where there are both. */
function findingSections(shown, before) {
  const verdicts = shown.verdicts ?? [];
  const maps = verdicts
    .map((verdict) => [verdict, tilesOf(verdict.details)])
    .filter(([verdict, map]) => map && !verdict.passed);
  return [
    shown.diagnosis
      ? [element("h2", {}, "Diagnosis"), element("pre.wrap", { tabindex: "0" }, linked(shown.diagnosis))]
      : null,
    verdicts.length ? [element("h2", {}, "Checks"), verdictsTable(verdicts, before)] : null,
    maps.map(([verdict, map]) => tilesSection(verdict.check, map)),
    shown.repro ? reproSection(shown.repro) : null,
  ];
}

/** The failing checks first; beside those whose result changed, the baseline's. */
function verdictsTable(verdicts, before) {
  const then = new Map((before?.verdicts ?? []).map((verdict) => [verdict.check, verdict]));
  const resultBadge = (verdict) => (verdict.passed ? badge("pass", "good") : badge("fail", "bad"));
  const rows = sorted(verdicts, (verdict) => (verdict.passed ? 1 : 0), false).map((verdict) => {
    const old = then.get(verdict.check);
    return tableRow(
      element("td", {}, resultBadge(verdict), old && old.passed !== verdict.passed ? [" was ", resultBadge(old)] : null),
      element("th.code", { scope: "row" }, verdict.check),
      element("td", {}, linked(verdict.text)),
      element("td", {}, figuresText(verdict.details)),
    );
  });
  return tableOf(
    "table.verdicts",
    `${counted(verdicts.filter(({ passed }) => !passed).length, "check")} of ${verdicts.length} failed`,
    headerRow(["Result", "Check", "Message", "Figures"]),
    rows,
  );
}

function figuresText(details) {
  const shown = Object.entries(details ?? {})
    .filter(([name]) => !["tiles", "passed", "text"].includes(name))
    .slice(0, 24);
  return shown.map(([name, value]) =>
    element(
      "span.figure",
      {},
      `${name} `,
      isNumber(value) ? String(Number(value.toPrecision(6))) : shortText(value).slice(0, 400),
    ),
  );
}

function reproSection(command) {
  return [
    element("h2", {}, "Reproduce"),
    element(
      "div.command",
      {},
      element("pre.wrap", { tabindex: "0", id: "repro" }, command),
      copyButton(visible(command), "the command"),
    ),
    element("p.quiet", {}, "The command is from the record: read it before you run it."),
  ];
}

const SECTIONS = [
  [
    "Case",
    (r) => ({
      kernel: r.kernel,
      target: r.target,
      executor: r.executor ?? "none: compiled only",
      suite: r.suite,
      tier: r.tier,
      seed: r.seed,
      worker: r.worker,
      GPU: r.gpu,
      outcome: r.outcome,
    }),
  ],
  ["Config", (r) => r.config],
  ["Options", (r) => r.options],
  ["Resources", (r) => r.observed?.resources],
  ["Machine code", (r) => r.observed?.code],
  ["Other observations", (r) => others(r.observed)],
  ["Seconds", (r) => r.durations],
  ["Problem", (r) => r.problem],
  ["Stack", (r) => r.stack],
];

function others(observed) {
  return Object.fromEntries(Object.entries(observed ?? {}).filter(([name]) => !["resources", "code"].includes(name)));
}

/** The facts of a record by topic, with the baseline's beside them where there is one. */
function comparedSections(record, before) {
  const both = Boolean(record && before);
  return SECTIONS.map(([title, of]) => {
    const now = flat(of(record ?? before));
    const then = both ? flat(of(before)) : new Map();
    const names = [...new Set([...now.keys(), ...then.keys()])].slice(0, 200);
    if (!names.length) return null;
    const pairs = names.map((name) => [name, now.get(name) ?? "none", both ? (then.get(name) ?? "none") : null]);
    return section(title, pairsTable(pairs, both));
  });
}

/** Nested values as one list of dotted names; what has an id is shown by it, what is null is left out. */
function flat(value, prefix = "", values = new Map(), depth = 0) {
  for (const [name, item] of Object.entries(isMapping(value) ? value : {})) {
    if (values.size > 400) break;
    if (isMapping(item) && typeof item.id === "string" && item.id)
      values.set(`${prefix}${name}`, item.id.slice(0, 2000));
    else if (isMapping(item) && depth < 4) flat(item, `${prefix}${name}.`, values, depth + 1);
    else if (item !== null && item !== "") values.set(`${prefix}${name}`, shortText(item).slice(0, 2000));
  }
  return values;
}

function rawSection(record) {
  const text = element("pre.wrap", { tabindex: "0" });
  const details = element(
    "details",
    {
      ontoggle: () => {
        text.textContent ||= visible(JSON.stringify(record, null, 1));
      },
    },
    element("summary", {}, "The record as JSON"),
    text,
  );
  return section("Record", details);
}
