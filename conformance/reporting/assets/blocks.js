// Parts that several views have: what must not be overlooked, and names with their values.

/** What must not be overlooked, or nothing. */
function alarm(title, sentences, count, most = sentences.length) {
  if (!count) return null;
  const rest = sentences.slice(most);
  return element(
    "section.alarm",
    {},
    element("h2", {}, `${title} (${grouped.format(count)})`),
    listOf("ul", sentences.slice(0, most)),
    rest.length ? folded(counted(rest.length, "more problem"), () => [listOf("ul", rest)]) : null,
    count > sentences.length
      ? element("p", {}, `${counted(count - sentences.length, "more problem")} not shown.`)
      : null,
  );
}

/** A list with an item for each text. */
function listOf(kind, texts) {
  return element(kind, {}, texts.map((text) => element("li", {}, text)));
}

/** What is missing, and the command that fills it. */
function howTo(sentence, command) {
  return element("p.how", {}, `${sentence} To fill this page: `, element("code", {}, command));
}

/** A part that is made when it is unfolded. */
function folded(summary, content) {
  const details = element("details.folded", {}, element("summary", {}, summary));
  details.addEventListener("toggle", () => {
    if (details.open && details.childElementCount === 1) filled(details, {}, content());
  });
  return details;
}

/** A part of a page with its title. */
function section(title, ...content) {
  return element("section", {}, element("h2", {}, title), content);
}

function factsTable(facts) {
  return pairsTable(
    facts.map(([name, text]) => [name, text, null]),
    false,
  );
}

/** Names with their values; with the baseline's beside them and a mark where they differ. */
function pairsTable(rows, compared) {
  const body = rows.map(([name, after, before]) =>
    tableRow(
      element("th", { scope: "row" }, name),
      compared && element("td", {}, before ?? "none"),
      element(compared && before !== after ? "td.differs" : "td", {}, linked(after)),
    ),
  );
  const header = compared
    ? [
        tableRow(
          ["", "Baseline", "Candidate"].map((text) => (text ? element("th", { scope: "col" }, text) : element("td"))),
        ),
      ]
    : [];
  return element(
    "div.scroll",
    {},
    element("table.pairs", {}, header.length ? element("thead", {}, header) : null, element("tbody", {}, body)),
  );
}
