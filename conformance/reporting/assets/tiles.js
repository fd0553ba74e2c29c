// Where the wrong elements of an output lie: a map of its tiles, and the same as a table.

const TILES_SHOWN = 4096;
const TILE_ROWS = 200;
const MAP_WIDTH = 420;

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
  const extent = (size, tiles, edge) => (Number.isInteger(size) && size > (tiles - 1) * edge ? size : tiles * edge);
  const height = extent(map.rows, rows, map.block[0]);
  const width = extent(map.columns, across, map.block[1]);
  /** Rows and columns of elements that a tile really has: fewer at a ragged edge. */
  const size = ([row, column]) => [
    Math.min(map.block[0], height - row * map.block[0]),
    Math.min(map.block[1], width - column * map.block[1]),
  ];
  const part = (tile) => Math.min(1, tile[2] / (size(tile)[0] * size(tile)[1]));
  return { rows, across, height, width, block: map.block, size, part, wrong: sorted(wrong, part, true) };
}

/** The map and its table under a heading. */
function tilesSection(check, map) {
  const sum = map.wrong.reduce((total, [, , count]) => total + count, 0);
  const summary =
    `${counted(map.wrong.length, "tile")} of ${grouped.format(map.rows * map.across)} hold ${counted(sum, "wrong element")}; ` +
    `a tile is ${map.block[0]} × ${map.block[1]}`;
  const figureOf = element("figure", {}, tilesDrawing(map, `${check}: ${summary}`), tilesLegend());
  const rows = map.wrong
    .slice(0, TILE_ROWS)
    .map((tile) =>
      tableRow(
        element("td.number", {}, tile[0]),
        element("td.number", {}, tile[1]),
        element("td.number", {}, map.size(tile).join(" × ")),
        element("td.number", {}, grouped.format(tile[2])),
        element("td.number", {}, percent(map.part(tile), 1)),
      ),
    );
  const caption =
    map.wrong.length > TILE_ROWS
      ? `The ${TILE_ROWS} worst of ${grouped.format(map.wrong.length)} tiles`
      : "Tiles with wrong elements";
  const names = ["Tile row", "Tile column", "Elements", "Wrong", "Of the tile"].map((name) => [name, "number"]);
  const table = tableOf("table", caption, headerRow(names), rows, `${caption}: ${check}`);
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
function tilesDrawing(map, label) {
  const { rows, across, height, width, block } = map;
  const rules =
    rows <= 128 && across <= 128
      ? [
          ...lines(across, (at) => [at * block[1], 0, at * block[1], height]),
          ...lines(rows, (at) => [0, at * block[0], width, at * block[0]]),
        ]
      : [];
  const wrong = map.wrong
    .slice(0, TILES_SHOWN)
    .map((tile) => {
      const [row, column, count] = tile;
      const [tall, wide] = map.size(tile);
      return drawing(
        "rect.wrong",
        {
          x: column * block[1],
          y: row * block[0],
          width: wide,
          height: tall,
          "fill-opacity": opacityOf(map.part(tile)),
        },
        drawing(
          "title",
          {},
          `tile ${row}, ${column}: ${counted(count, "wrong element")} (${percent(map.part(tile), 1)})`,
        ),
      );
    });
  const drawnHeight = Math.max(40, Math.min(260, Math.round((MAP_WIDTH * height) / width)));
  return drawing(
    "svg.tiles",
    {
      viewBox: `0 0 ${width} ${height}`,
      width: MAP_WIDTH,
      height: drawnHeight,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": label,
    },
    drawing("rect.ground", { x: 0, y: 0, width, height }),
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
