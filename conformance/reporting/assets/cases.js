// The list of cases: filters, counts and a page of rows at a time. The state is in the address.

const PAGE = 100;
const ORDERS = [
  { key: "status", name: "Status", value: (row) => columns.status[row] },
  { key: "case", name: "Case", value: (row) => columns.case[row] },
  { key: "kernel", name: "Kernel", value: (row) => textOf("kernel", row) },
  { key: "target", name: "Target", value: (row) => textOf("target", row) },
  { key: "suite", name: "Suite", value: (row) => textOf("suite", row) },
  { key: "seconds", name: "Seconds", kind: "number", descending: true, value: (row) => columns.seconds[row] },
];
/** The parameters of the list as last shown, for the way back from a case. */
let lastList = {};

function casesView(parameters) {
  const result = element("div");
  const count = element("p", { role: "status", "aria-live": "polite", id: "count" });
  const chips = element("fieldset.chips", {}, element("legend", {}, "Status"));
  let state = { ...parameters };
  let typing = 0;

  function apply(changed, step) {
    state = { ...state, page: "", ...changed };
    for (const name of Object.keys(state)) if (!state[name]) delete state[name];
    update();
    clearTimeout(typing);
    if (step) noteAddress("cases", state, true);
    else typing = setTimeout(() => location.hash.startsWith("#/cases") && noteAddress("cases", state, false), 200);
  }

  function update() {
    lastList = state;
    const { rows, counts: byStatus } = filteredRows(state);
    count.textContent = `${counted(rows.length, "case")} of ${grouped.format(columns.case.length)}`;
    updateChips(chips, byStatus, wantedStatuses(state), (status) => apply({ status }, true));
    result.replaceChildren(...caseTable(ordered(rows, state.sort), state, apply));
  }

  searchTexts(); // now, so that the first letter typed does not wait for it
  update();
  const partial = head.run.listed < head.run.recorded ? element("p.quiet", {}, unlisted()) : null;
  return [element("h1", {}, "Cases"), partial, filterBar(state, apply), chips, count, result];
}

/** The rows in the order that the address asks for; as they are, the worst first, unless it does. */
function ordered(rows, sort = "status") {
  const order = ORDERS.find(({ key }) => key === sort.replace(/^-/, ""));
  if (!order || sort === "status") return rows;
  return sorted(rows, order.value, sort.startsWith("-"));
}

function filterBar(state, apply) {
  const search = element("input", {
    type: "search",
    id: "text",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "words of the id or diagnosis",
  });
  search.value = state.text ?? "";
  search.addEventListener("input", () => apply({ text: search.value }, false));
  const reset = element(
    "button",
    {
      type: "button",
      onclick: () => {
        location.hash = addressOf("cases");
      },
    },
    "Clear filters",
  );
  const selects = FACETS.map((name) =>
    element(
      "label",
      {},
      name[0].toUpperCase() + name.slice(1),
      facetSelect(name, state[name], (value) => apply({ [name]: value }, true)),
    ),
  );
  return element(
    "div.filters",
    { role: "search", "aria-label": "Cases" },
    element("label.wide", {}, "Text", search),
    selects,
    reset,
  );
}

function facetSelect(name, chosen, choose) {
  const select = element("select", { id: `filter-${name}` }, element("option", { value: "" }, "all"));
  const known = columns.tables[name].filter(Boolean);
  for (const text of chosen && !known.includes(chosen) ? [...known, chosen] : known) {
    const option = element("option", {}, text);
    option.value = text;
    select.append(option);
  }
  select.value = chosen ?? "";
  select.addEventListener("change", () => choose(select.value));
  return select;
}

/** One button for each status that occurs; pressed ones are shown, none pressed shows all. */
function updateChips(chips, byStatus, wanted, choose) {
  const present = STATUSES.filter((_, at) => head.run.statuses[at][2] || wanted.has(STATUSES[at].name));
  for (const { name } of present) {
    const at = STATUSES.findIndex((status) => status.name === name);
    let button = chips.querySelector(`[data-status="${name}"]`);
    if (!button) {
      button = element("button", { type: "button", "data-status": name });
      chips.append(button);
    }
    button.textContent = `${name} ${grouped.format(byStatus[at])}`;
    button.setAttribute("aria-pressed", wanted.has(name));
    button.onclick = () => {
      const next = new Set(wanted);
      if (!next.delete(name)) next.add(name);
      choose([...next].join(","));
    };
  }
}

function caseTable(rows, state, apply) {
  if (!rows.length) return [element("p", {}, "No case fits. ", viewLink("cases", {}, "Remove all filters"))];
  const pages = Math.ceil(rows.length / PAGE);
  const page = Math.min(Math.max(1, Number.parseInt(state.page, 10) || 1), pages);
  const shown = rows.slice((page - 1) * PAGE, page * PAGE);
  const again = (selector) => document.querySelector(selector)?.focus();
  const header = sortingRow(ORDERS, state.sort ?? "status", (sort, key) => {
    apply({ sort: sort === "status" ? "" : sort }, true);
    again(`[data-sort="${key}"]`);
  });
  const turn = (to) => {
    apply({ page: to > 1 ? String(to) : "" }, true);
    again("#page");
  };
  const table = element(
    "table.list",
    {},
    element("caption.hidden-text", {}, "Cases"),
    element("thead", {}, header),
    withArrows(element("tbody", {}, shown.map(caseRow))),
  );
  return [element("div.scroll", {}, table), pageButtons(page, pages, turn)];
}

function caseRow(row) {
  const { name, group } = STATUSES[columns.status[row]];
  const note = textOf("note", row);
  return tableRow(
    element("td", {}, badge(name, group)),
    element("td", {}, caseLink(columns.case[row], row), note ? element("span.note", {}, note) : null),
    ["kernel", "target", "suite"].map((column) => element("td", {}, textOf(column, row))),
    element("td.number", {}, columns.seconds[row] === null ? "" : columns.seconds[row].toFixed(2)),
  );
}

/** A link to a case's page; a case that was recorded more than once has a page for each record. */
function caseLink(id, row) {
  const same = rowsByCase.get(id) ?? [];
  const at = same.indexOf(row);
  const link = viewLink("case", { id, record: at > 0 ? String(at + 1) : "" }, id);
  link.className = "code";
  return link;
}

function pageButtons(page, pages, turn) {
  if (pages === 1) return null;
  const button = (text, to) =>
    element("button", { type: "button", disabled: to < 1 || to > pages, onclick: () => turn(to) }, text);
  return element(
    "nav.pages",
    { "aria-label": "Pages" },
    button("Previous", page - 1),
    button("Next", page + 1),
    element("span", { id: "page", tabindex: "-1" }, `Page ${page} of ${grouped.format(pages)}`),
  );
}
