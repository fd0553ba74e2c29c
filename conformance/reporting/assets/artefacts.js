// The texts of a case's compiled stages, of both sides and with their difference where there is a baseline.

const STAGES = ["source", "ttir", "ttgir", "llir", "ptx", "amdgcn", "sass"];

async function artefactsSection(id, record) {
  const artefacts = await unpacked("artefacts");
  const embedded = Object.hasOwn(artefacts, id) ? artefacts[id] : null;
  const named = Object.keys(record?.artefacts ?? {});
  if (!embedded) return named.length ? notEmbedded(record) : null;
  const [after, before] = embedded;
  const place = (stage) => (STAGES.includes(stage) ? STAGES.indexOf(stage) : STAGES.length);
  const stages = sorted([...new Set([...Object.keys(before), ...Object.keys(after)])], place, false);
  if (!stages.length) return null;
  const shown = element("div", { id: "artefact" });
  const readable = (stage) => isNumber(after[stage]) || isNumber(before[stage]);
  const buttons = stages.map((stage) =>
    element(
      "button",
      {
        type: "button",
        "aria-pressed": "false",
        disabled: !readable(stage),
        onclick: () => show(stage),
      },
      readable(stage) ? stage : `${stage} (${after[stage] ?? before[stage]})`,
    ),
  );

  async function show(stage) {
    buttons.forEach((button, at) => button.setAttribute("aria-pressed", stages[at] === stage));
    shown.replaceChildren(element("p.quiet", {}, "Unpacking."));
    shown.replaceChildren(...(await stageView(stage, before[stage], after[stage])).filter(Boolean));
  }

  return section("Artefacts", element("div.choices", { role: "group", "aria-label": "Stages" }, buttons), shown);
}

function notEmbedded(record) {
  const rows = Object.entries(record.artefacts).map(([stage, path]) => [stage, path, null]);
  const why = `Not embedded: this file holds those of failing and changed cases, ${head.limits.cases} at most.`;
  return section("Artefacts", element("p", {}, why), pairsTable(rows, false));
}

async function stageView(stage, before, after) {
  const read = (number) => (isNumber(number) ? unpackedText(`text-${number}`) : null);
  const [old, now] = [await read(before), await read(after)];
  if (old !== null && now !== null) return differenceTable(old, now);
  const absent = (answer) => answer ?? "none recorded";
  const missing = head.baseline && (old === null ? `Baseline: ${absent(before)}.` : `Candidate: ${absent(after)}.`);
  const text = now ?? old;
  return [
    element("p", { role: "status" }, `${counted(text.split("\n").length, "line")}. `, missing),
    copyButton(text, `the ${stage}`),
    element("pre", { tabindex: "0", role: "region", "aria-label": stage }, text),
  ];
}
