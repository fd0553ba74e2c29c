// Where the wrong elements of an output lie: a map of its tiles, and the same as a table.

const TILES_SHOWN = 4096;
const TILE_ROWS = 200;

/** The map in a verdict's details, checked; null if there is none that can be drawn. */
function tilesOf(details) {
  const map = details?.tiles;
  const pair = (value) =>
    Array.isArray(value) && value.length === 2 && value.every((n) => Number.isInteger(n) && n > 0 && n < 1e7);
  if (!isMapping(map) || !pair(map.shape) || !pair(map.block) || !Array.isArray(map.wrong)) return null;
  const [rows, across] = map.shape;
  const wrong = map.wrong.filter(
    (tile) =>
      Array.isArray(tile) &&
      tile.length === 3 &&
      tile.every((n) => Number.isInteger(n) && n >= 0) &&
      tile[0] < rows &&
      tile[1] < across &&
      tile[2] > 0,
  );
  return { rows, across, block: map.block, wrong: sorted(wrong, ([, , count]) => count, true) };
}

/** The map and its table under a heading. */
function tilesSection(check, map) {
  const elements = map.block[0] * map.block[1];
  const sum = map.wrong.reduce((total, [, , count]) => total + count, 0);
  const summary =
    `${counted(map.wrong.length, "tile")} of ${grouped.format(map.rows * map.across)} hold ${counted(sum, "wrong element")}; ` +
    `a tile is ${map.block[0]} × ${map.block[1]}`;
  const figureOf = element("figure", {}, tilesDrawing(map, elements, `${check}: ${summary}`), tilesLegend());
  const rows = map.wrong
    .slice(0, TILE_ROWS)
    .map(([row, column, count]) =>
      tableRow(
        element("td.number", {}, row),
        element("td.number", {}, column),
        element("td.number", {}, grouped.format(count)),
        element("td.number", {}, percent(count, elements)),
      ),
    );
  const caption =
    map.wrong.length > TILE_ROWS
      ? `The ${TILE_ROWS} worst of ${grouped.format(map.wrong.length)} tiles`
      : "Tiles with wrong elements";
  const names = ["Tile row", "Tile column", "Wrong", "Of the tile"].map((name) => [name, "number"]);
  const table = tableOf("table", caption, headerRow(names), rows);
  table.classList.add("short");
  return element(
    "section",
    {},
    element("h3", {}, `Errors by tile: ${check}`),
    element("p", {}, `${summary}.`),
    element("div.map", {}, figureOf, table),
  );
}

/** Darker is a larger part of the tile; each wrong tile says its figures when pointed at. */
function tilesDrawing(map, elements, label) {
  const { rows, across } = map;
  const rules =
    rows <= 128 && across <= 128
      ? [...lines(across, (x) => [x, 0, x, rows]), ...lines(rows, (y) => [0, y, across, y])]
      : [];
  const wrong = map.wrong
    .slice(0, TILES_SHOWN)
    .map(([row, column, count]) =>
      drawing(
        "rect.wrong",
        { x: column, y: row, width: 1, height: 1, "fill-opacity": opacityOf(count / elements) },
        drawing(
          "title",
          {},
          `tile ${row}, ${column}: ${counted(count, "wrong element")} (${percent(count, elements)})`,
        ),
      ),
    );
  const height = Math.max(40, Math.min(560, Math.round((560 * rows) / across)));
  return drawing(
    "svg.tiles",
    {
      viewBox: `0 0 ${across} ${rows}`,
      width: 560,
      height,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": label,
    },
    drawing("rect.ground", { x: 0, y: 0, width: across, height: rows }),
    rules,
    wrong,
  );
}

function lines(count, ends) {
  return Array.from({ length: count - 1 }, (_, at) => {
    const [x1, y1, x2, y2] = ends(at + 1);
    return drawing("line.rule", { x1, y1, x2, y2 });
  });
}

const STEPS = [
  [0.01, 0.35, "to 1 %"],
  [0.1, 0.5, "to 10 %"],
  [0.5, 0.7, "to 50 %"],
  [1, 1, "above"],
];

function opacityOf(part) {
  return STEPS.find(([limit]) => part <= limit)?.[1] ?? 1;
}

function tilesLegend() {
  return element(
    "figcaption.legend",
    {},
    "Wrong elements of a tile:",
    STEPS.map(([, opacity, text]) =>
      element(
        "span",
        {},
        drawing(
          "svg.tiles",
          { viewBox: "0 0 1 1", "aria-hidden": "true" },
          drawing("rect.wrong", { x: 0, y: 0, width: 1, height: 1, "fill-opacity": opacity }),
        ),
        ` ${text}`,
      ),
    ),
  );
}
