// Figures and statuses as people read them.

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** A count with its noun: "1 case", "2,000 cases". */
function counted(count, noun, plural = `${noun}s`) {
  return `${grouped.format(count)} ${count === 1 ? noun : plural}`;
}

/** A part in per cent, rounded down: only all of it reads 100. */
function percent(part, whole) {
  return whole > 0 ? `${(Math.floor((part / whole) * 1000) / 10).toFixed(1)} %` : "none";
}

/** Three significant digits, or all digits before the point. */
function figure(value) {
  if (!isNumber(value)) return "";
  if (Number.isInteger(value) || Math.abs(value) >= 1000) return grouped.format(value);
  return String(Number(value.toPrecision(3)));
}

/** A change as a signed part: "+20.0 %". */
function change(after, before) {
  if (!isNumber(after) || !isNumber(before) || before === 0) return "";
  const part = (after / before - 1) * 100;
  return `${part > 0 ? "+" : ""}${part.toFixed(1)} %`;
}

/** A value of a record in one line. */
function shortText(value) {
  if (value === null || value === undefined) return "none";
  if (isNumber(value)) return String(value);
  if (typeof value === "object") return JSON.stringify(value);
  return String(value);
}

/** A label with the colour of what it means. */
function badge(text, group) {
  return element(`span.status.${group}`, {}, text);
}

const SEVERITY_GROUP = { regression: "bad", warning: "unproven", info: "outside" };

/** A text that begins in lower case, as a sentence. */
function sentence(text) {
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}.`;
}
