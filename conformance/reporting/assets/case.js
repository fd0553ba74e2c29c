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
    (record ?? before) ? summaryLine(record ?? before) : null,
    findingsTable(findings),
    ...((record ?? before) ? findingSections(record ?? before, record ? before : null) : []),
    await artefactsSection(id, record ?? before),
    ...((record ?? before) ? factSections(record, before) : []),
    record ? rawSection(record) : null,
  ];
}

/** What ran where, in one line. */
function summaryLine(record) {
  const parts = [
    record.kernel,
    record.target && `for ${record.target}`,
    record.problem?.id && `problem ${record.problem.id}`,
    record.config?.id && `config ${record.config.id}`,
    record.executor ? `run by the ${record.executor}` : "compiled only",
    record.gpu && `GPU ${record.gpu}`,
  ];
  return element("p.quiet", { id: "summary" }, parts.filter(Boolean).join(", "));
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
    tableOf("table", "", headerRow(["Change", "Cause", "Baseline", "Candidate", ["Ratio", "number"], "Detail"]), rows, "Changes"),
  ];
}

/** What was found, from the record that is shown; `before` is the baseline's where there are both. */
function findingSections(shown, before) {
  const verdicts = shown.verdicts ?? [];
  const failed = verdicts.filter(({ passed }) => !passed);
  const maps = failed.map((verdict) => [verdict.check, tilesOf(verdict.details)]).filter(([, map]) => map);
  const diagnosis = unsaidLines(shown.diagnosis ?? "", failed);
  return [
    diagnosis ? section("Diagnosis", element("pre.wrap.brief", { tabindex: "0" }, linked(diagnosis))) : null,
    maps.length ? tilesSection(...maps[0]) : null,
    maps.length > 1 ? furtherMaps(maps.slice(1)) : null,
    verdicts.length ? checksSection(verdicts, before) : null,
    shown.reruns?.length ? section("Judged again", element("p", {}, shown.reruns.join(", then "))) : null,
    shown.repro ? reproSection(shown.repro) : null,
  ];
}

/** The lines of a diagnosis that no failing check says. */
function unsaidLines(diagnosis, failed) {
  const said = new Set(failed.flatMap(({ check, text }) => `${check}: ${text}`.split("\n")));
  const lines = diagnosis.split("\n").filter((line) => !said.has(line));
  // A title such as "expected failure NAME (ADDRESS):" says nothing without the lines below it.
  return lines.every((line) => !line.trim() || (line.endsWith(":") && said.size)) ? "" : lines.join("\n").trim();
}

function furtherMaps(maps) {
  return folded(`${counted(maps.length, "more map")} of wrong tiles`, () =>
    maps.slice(0, MAPS_SHOWN).map(([check, map]) => tilesSection(check, map)),
  );
}

const MAPS_SHOWN = 40;
/** Messages that are shown at once. */
const MESSAGES_SHOWN = 5;

/** What failed, each message once with all checks that say it; the rest is folded. */
function checksSection(verdicts, before) {
  const then = new Map((before?.verdicts ?? []).map((verdict) => [verdict.check, verdict]));
  const failed = verdicts.filter(({ passed }) => !passed);
  const passed = verdicts.filter((verdict) => verdict.passed);
  const changed = passed.filter(({ check }) => then.has(check) && !then.get(check).passed);
  const groups = [...messageGroups(failed), ...messageGroups(changed)];
  const rest = passed.filter((verdict) => !changed.includes(verdict));
  const passedTable = () => verdictsTable(rest.map((verdict) => [verdict]), then, "Checks that passed");
  return section(
    "Checks",
    element("p", { id: "checks" }, `${counted(failed.length, "check")} of ${verdicts.length} failed.`),
    groups.length ? verdictsTable(groups.slice(0, MESSAGES_SHOWN), then, "Messages of checks") : null,
    groups.length > MESSAGES_SHOWN
      ? folded(`${counted(groups.length - MESSAGES_SHOWN, "more message")} of checks`, () => [
          verdictsTable(groups.slice(MESSAGES_SHOWN), then, "More messages of checks"),
        ])
      : null,
    rest.length && !groups.length ? passedTable() : null,
    rest.length && groups.length
      ? folded(`${counted(rest.length, "check")} passed`, () => [passedTable()])
      : null,
  );
}

/** The verdicts by what they say, in their order. What each says of its own seed or position may differ. */
function messageGroups(verdicts) {
  const groups = new Map();
  for (const verdict of verdicts) {
    const key = JSON.stringify([verdict.passed, verdict.check.split(/[/@]/)[0], generalText(verdict.text)]);
    if (groups.has(key)) groups.get(key).push(verdict);
    else groups.set(key, [verdict]);
  }
  return [...groups.values()];
}

/** A message without the name of its fill, and without what was got and wanted at the first wrong element. */
function generalText(text) {
  return String(text)
    .replace(/^FAIL [a-z]+\/\S+/, "FAIL")
    .replace(/, first .*$/s, "");
}

function verdictsTable(groups, then, label) {
  const resultBadge = (verdict) => (verdict.passed ? badge("pass", "good") : badge("fail", "bad"));
  const rows = groups.map(([verdict, ...others]) => {
    const old = then.get(verdict.check);
    const figures = figuresText(verdict);
    return tableRow(
      element("td", {}, resultBadge(verdict), old && old.passed !== verdict.passed ? [" was ", resultBadge(old)] : null),
      element(
        "th.code",
        { scope: "row" },
        verdict.check,
        others.length
          ? folded(`and ${counted(others.length, "other check")}`, () => [otherChecks(verdict, others)])
          : null,
      ),
      element("td", {}, linked(verdict.text), figures.length ? element("div.quiet", {}, figures) : null),
    );
  });
  return tableOf("table.verdicts", "", headerRow(["Result", "Check", "Message"]), rows, label);
}

/** The other checks of a message; their texts where these differ in a detail. */
function otherChecks(verdict, others) {
  return listOf(
    "ul",
    others.map(({ check, text }) => (text === verdict.text ? check : `${check}: ${text}`)),
  );
}

/** The figures that the message does not hold. */
function figuresText({ details, text }) {
  const said = String(text);
  const shown = Object.entries(details ?? {})
    .filter(([name]) => !["tiles", "passed", "text", "first", "got", "want"].includes(name))
    .map(([name, value]) => [
      name,
      isNumber(value) ? String(Number(value.toPrecision(6))) : shortText(value).slice(0, 400),
    ])
    .filter(([, value]) => !said.includes(value))
    .slice(0, 24);
  return shown.map(([name, value]) => element("span.figure", {}, `${name} ${value}`));
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
    element("p.quiet", {}, "The command has the id, tier, target and seed of the record."),
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

/** The facts of a record by topic, folded; those that differ from the baseline's are shown. */
function factSections(record, before) {
  const facts = folded("All facts of the case", () => [
    element("div.columns", {}, comparedSections(record, before, false)),
  ]);
  const differing = record && before ? comparedSections(record, before, true).filter(Boolean) : [];
  return [
    differing.length ? section("What differs from the baseline", element("div.columns", {}, differing)) : null,
    section("Facts", facts),
  ];
}

/** The facts by topic, with the baseline's beside them where there is one. */
function comparedSections(record, before, differing) {
  const both = Boolean(record && before);
  return SECTIONS.map(([title, of]) => {
    const now = flat(of(record ?? before));
    const then = both ? flat(of(before)) : new Map();
    const names = [...new Set([...now.keys(), ...then.keys()])].slice(0, 200);
    const pairs = names
      .map((name) => [name, now.get(name) ?? "none", both ? (then.get(name) ?? "none") : null])
      .filter(([, after, earlier]) => !differing || after !== earlier);
    if (!pairs.length) return null;
    return element("section", {}, element("h3", {}, title), pairsTable(pairs, both));
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
  return folded("The record as JSON", () => [
    element("pre.wrap", { tabindex: "0" }, visible(JSON.stringify(record, null, 1))),
  ]);
}
