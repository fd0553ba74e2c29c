// The sweep over config spaces: a row for each config of a kernel, its figures coloured by their size.

const FIGURES = [
  { key: "us", name: "Time, µs", at: 1 },
  { key: "registers", name: "Registers", at: 2 },
  { key: "spills", name: "Spills", at: 3 },
  { key: "shared", name: "Shared memory, bytes", at: 4 },
  { key: "compile", name: "Compile, s", at: 5 },
].map((column) => ({ ...column, kind: "number" }));

async function configsView(parameters) {
  const all = await unpacked("configs");
  const title = element("h1", {}, "Configs");
  if (!all.length) return [title, howTo("This run has no records of the suite config_space.", "conformance run --suite config_space")];
  const spaces = [...new Set(all.map((row) => JSON.stringify(row.slice(0, 3))))].map((text) => JSON.parse(text));
  const same = (a, b) => a.every((value, at) => value === b[at]);
  const chosen = spaces.find((space) => same(space, [parameters.kernel, parameters.dtype, parameters.target])) ?? spaces[0];
  const rows = all
    .filter((row) => same(row.slice(0, 3), chosen))
    .map(([, , , config, now, then]) => ({ config, now, then }));
  const choose = (at) => {
    location.hash = addressOf("configs", { ...spaceParameters(spaces[at]), sort: parameters.sort });
  };
  return [title, spaceSelect(spaces, spaces.indexOf(chosen), choose), ...spaceTable(rows, chosen, parameters)];
}

function spaceParameters([kernel, dtype, target]) {
  return { kernel, dtype, target };
}

function spaceSelect(spaces, chosen, choose) {
  const select = element(
    "select",
    { id: "space" },
    spaces.map((space, at) => element("option", { value: at }, space.join(", "))),
  );
  select.value = String(chosen);
  select.addEventListener("change", () => choose(Number(select.value)));
  return element("div.filters", {}, element("label", {}, "Kernel, dtype and target", select));
}

/** Values sort and colour by the candidate's figure, by the baseline's where that is all there is. */
function spaceTable(rows, space, parameters) {
  const value = ({ now, then }, at) => (now ?? then)[at];
  const list = [{ key: "config", name: "Config" }, { key: "status", name: "Status" }, ...FIGURES];
  const sort = list.some(({ key }) => key === (parameters.sort ?? "").replace(/^-/, ""))
    ? parameters.sort
    : rows.some((row) => row.now?.[1])
      ? "us"
      : "config";
  const key = sort.replace(/^-/, "");
  const figureColumn = FIGURES.find((column) => column.key === key);
  const by = figureColumn
    ? (row) => value(row, figureColumn.at)
    : key === "status"
      ? (row) => STATUSES.findIndex(({ name }) => name === worstOf(row))
      : (row) => row.config;
  const best = { now: fastest(rows, "now"), then: fastest(rows, "then") };
  const heat = Object.fromEntries(FIGURES.map(({ at }) => [at, heatOf(rows.map((row) => value(row, at)))]));
  const header = sortingRow(list, sort, (next, clicked) => {
    noteAddress("configs", { ...spaceParameters(space), sort: next }, true);
    showView().then(() => document.querySelector(`[data-sort="${clicked}"]`)?.focus());
  });
  const body = sorted(rows, by, sort.startsWith("-")).map((row) => configRow(row, space, best, heat));
  const caption = `${counted(rows.length, "config")} of ${space.join(", ")}. Darker is more; the smallest value of a column has no colour.`;
  return [bestText(best), tableOf("table.heat", caption, header, body)];
}

function worstOf({ now, then }) {
  return (now ?? then)[0][0];
}

/** The fastest config on one side; a config with a failing case is none. */
function fastest(rows, side) {
  const timed = rows.filter((row) => row[side]?.[1] && GROUP_OF[row[side][0][0]] !== "bad");
  return sorted(timed, (row) => row[side][1], false)[0] ?? null;
}

function bestText({ now, then }) {
  if (!now && !then) return howTo("No time was measured: that needs a GPU.", "conformance run --suite config_space, on a machine with a GPU");
  const description = (row, side) => (row ? `${row.config}, ${figure(row[side][1])} µs` : "none");
  if (!head.baseline) return element("p", {}, "Fastest: ", element("b", {}, description(now, "now")));
  const moved = now?.config !== then?.config;
  return element(
    "p",
    {},
    `Fastest before: ${description(then, "then")}; now: `,
    element("b", {}, description(now, "now")),
    moved ? " (moved)" : " (the same)",
  );
}

/** A function from a value to its step of colour, 0 to 4, by where it lies between the least and the most. */
function heatOf(values) {
  const known = values.filter(isNumber);
  const [least, most] = known.reduce(([low, high], n) => [Math.min(low, n), Math.max(high, n)], [Infinity, -Infinity]);
  return (value) =>
    isNumber(value) && most > least ? Math.min(4, Math.floor(((value - least) / (most - least)) * 5)) : 0;
}

function configRow(row, space, best, heat) {
  const { config, now, then } = row;
  const marks = [
    row === best.now && "fastest",
    row === best.then && row !== best.now && "was fastest",
    !now && "not in the candidate",
    head.baseline && !then && "new",
  ].filter(Boolean);
  const link = viewLink("cases", { text: config, kernel: space[0], target: space[2], suite: "config_space" }, config);
  link.className = "code";
  return tableRow(
    element(row === best.now ? "th.best" : "th", { scope: "row" }, link, marks.length ? ` ${marks.join(", ")}` : null),
    element("td", {}, badge(worstOf(row), GROUP_OF[worstOf(row)])),
    FIGURES.map(({ at }) => figureCell((now ?? then)[at], now && then ? then[at] : undefined, heat[at])),
  );
}

function figureCell(value, was, heat) {
  const step = heat(value);
  const differs = was !== undefined && was !== value;
  return element(
    step ? `td.heat-${step}` : "td",
    {},
    isNumber(value) ? figure(value) : element("span.quiet", {}, "none"),
    differs
      ? element(
          "span.was",
          {},
          `was ${isNumber(was) ? figure(was) : "none"}${isNumber(was) && isNumber(value) && was ? ` (${change(value, was)})` : ""}`,
        )
      : null,
  );
}
