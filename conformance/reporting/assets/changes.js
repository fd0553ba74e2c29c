// What a comparison found: its groups, the worst first, each with its cases.

const FINDINGS_SHOWN = 100;

async function changesView(parameters) {
  const groups = await unpacked("groups");
  const { comparison } = head;
  if (!comparison) return [element("h1", {}, "Changes"), howTo("This report was made without a baseline.", "conformance report RUN --baseline EARLIER_RUN")];
  const chosen = (group) => !parameters.severity || group.severity === parameters.severity;
  const unfolded = new Set((parameters.open ?? "").split(",").filter(Boolean));
  const shown = groups.map((group, at) => [group, String(at)]).filter(([group]) => chosen(group));
  const toggle = (at, open) => {
    if (open) unfolded.add(at);
    else unfolded.delete(at);
    noteAddress("changes", { ...parameters, open: [...unfolded].join(",") }, false);
  };
  return [
    element("h1", {}, `${comparison.title}: ${comparison.verdict}`),
    comparisonFacts(comparison),
    comparison.objections.length
      ? alarm("What else speaks against the candidate", comparison.objections, comparison.objections.length)
      : null,
    comparison.warnings.length ? mildWarnings(comparison.warnings) : null,
    severityChips(groups, parameters),
    element("p", { role: "status" }, `${counted(shown.length, "group")} of ${groups.length}`),
    shown.map(([group, at]) => groupDetails(group, unfolded.has(at), (open) => toggle(at, open))),
    groups.length ? null : element("p", {}, "No difference was found in what both runs recorded."),
    groups.length && !shown.length ? element("p", {}, viewLink("changes", {}, "Show all severities")) : null,
    comparison.other_thresholds.map((text) => element("p", {}, `${text}.`)),
    thresholdsTable(comparison.thresholds),
  ];
}

function mildWarnings(warnings) {
  const section = alarm("The two runs are only partly comparable", warnings, warnings.length);
  section.classList.add("mild");
  return section;
}

function comparisonFacts({ compared, unchanged, names }) {
  return element(
    "p.answer",
    {},
    `${names[0]} → ${names[1]}: ${counted(compared, "case")} compared, ${grouped.format(unchanged)} unchanged.`,
  );
}

/** From which difference on a figure is reported, or a regression: a share of the baseline's, and the least amount with its unit. */
function thresholdsTable(thresholds) {
  const rows = new Map();
  for (const [name, value] of Object.entries(thresholds)) {
    const [figureName, unit] = name.split(/, at least ?/);
    if (!rows.has(figureName)) rows.set(figureName, { share: "", least: [] });
    const row = rows.get(figureName);
    if (unit === undefined) row.share = `${figure(value * 100)} %`;
    else row.least.push(`${figure(value)} ${unit || figureName}`);
  }
  if (!rows.size) return null;
  const body = [...rows].map(([name, { share, least }]) =>
    tableRow(
      element("th", { scope: "row" }, name),
      element("td.number", {}, share),
      element("td", {}, least.join(", ")),
    ),
  );
  const header = headerRow(["Figure", ["More than, of the baseline's", "number"], "And at least"]);
  return folded("Thresholds: smaller differences are not reported, or are warnings", () => [
    tableOf("table.thresholds", "Thresholds of this comparison", header, body),
  ]);
}

function severityChips(groups, parameters) {
  const severities = Object.keys(SEVERITY_GROUP).filter((severity) =>
    groups.some((group) => group.severity === severity),
  );
  const choose = (severity) => {
    location.hash = addressOf("changes", { severity: parameters.severity === severity ? "" : severity });
  };
  return element(
    "fieldset.chips",
    {},
    element("legend", {}, "Severity"),
    severities.map((severity) =>
      element(
        "button",
        {
          type: "button",
          "aria-pressed": String(parameters.severity === severity),
          onclick: () => choose(severity),
        },
        `${severity} ${groups.filter((group) => group.severity === severity).length}`,
      ),
    ),
  );
}

function groupDetails(group, open, toggled) {
  const content = element("div");
  const details = element(
    "details.group",
    { open },
    element(
      "summary",
      {},
      badge(group.severity, SEVERITY_GROUP[group.severity]),
      element("b", {}, group.kind),
      element("span.cause", {}, group.cause),
      element("span.quiet", {}, counted(group.findings.length, "case")),
    ),
    content,
  );
  const fill = () =>
    content.childElementCount ||
    content.append(
      element("p.quiet", {}, [group.meaning, ...group.notes.map(sentence), `Signature: ${group.signature}.`].join(" ")),
      ...findingRows(group.findings),
    );
  if (open) fill();
  details.addEventListener("toggle", () => {
    if (details.open) fill();
    if (details.open !== open) toggled((open = details.open));
  });
  return details;
}

function findingRows(findings) {
  const used = FINDING_COLUMNS.filter(({ at }) =>
    findings.some((finding) => finding[at] !== null && finding[at] !== ""),
  );
  const row = (finding) =>
    tableRow(
      used.map(({ at, kind, name }) =>
        element(kind ? `td.${kind}` : "td", { "data-name": name }, findingText(finding, at)),
      ),
    );
  const body = withArrows(element("tbody", {}, findings.slice(0, FINDINGS_SHOWN).map(row)));
  const table = element(
    "table.named",
    {},
    element("caption.hidden-text", {}, "Cases of this group"),
    element("thead", {}, headerRow(used.map(({ name, kind }) => [name, kind]))),
    body,
  );
  const parts = [element("div.scroll", {}, table)];
  if (findings.length > FINDINGS_SHOWN) {
    const more = element(
      "button",
      {
        type: "button",
        onclick: () => {
          body.append(...findings.slice(body.childElementCount, body.childElementCount + 10 * FINDINGS_SHOWN).map(row));
          if (body.childElementCount >= findings.length) more.remove();
        },
      },
      `Show more of ${grouped.format(findings.length)}`,
    );
    parts.push(more);
  }
  return parts;
}

const FINDING_COLUMNS = [
  { name: "Case", at: 0 },
  { name: "Kernel", at: 1 },
  { name: "Target", at: 2 },
  { name: "Baseline", at: 3 },
  { name: "Candidate", at: 4 },
  { name: "Ratio", at: 5, kind: "number" },
  { name: "Detail", at: 6 },
];

/** What a finding says in one column. */
function findingText(finding, at) {
  if (at === 0) return caseLink(finding[0]);
  if (at === 5) return isNumber(finding[5]) ? finding[5].toFixed(3) : "";
  return linked(finding[at]);
}

let findingsByCase = null;

/** The findings of a case with their groups. */
async function findingsOf(id) {
  if (!findingsByCase) {
    findingsByCase = new Map();
    for (const group of (await unpacked("groups")) ?? []) {
      for (const finding of group.findings) {
        if (!findingsByCase.has(finding[0])) findingsByCase.set(finding[0], []);
        findingsByCase.get(finding[0]).push({ group, finding });
      }
    }
  }
  return findingsByCase.get(id) ?? [];
}
