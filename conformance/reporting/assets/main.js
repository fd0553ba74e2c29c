// Starts the page and shows the view that the address names.

const VIEWS = {
  overview: { title: "Overview", show: overviewView },
  cases: { title: "Cases", show: casesView },
  case: { title: "Case", show: caseView },
  configs: { title: "Configs", show: configsView },
  changes: { title: "Changes", show: changesView },
};
let showing = 0;

async function showView() {
  const { view, parameters } = readAddress();
  const known = Object.hasOwn(VIEWS, view) ? view : "overview";
  const turn = ++showing;
  const content = await VIEWS[known].show(parameters);
  if (turn !== showing) return; // the reader went on while this view was unpacked
  const main = document.getElementById("main");
  main.replaceChildren();
  filled(main, {}, [content]);
  const heading = main.querySelector("h1");
  heading.tabIndex = -1;
  const of = head.comparison ? head.comparison.title : `conformance ${visible(head.run.id)}`;
  document.title = heading.textContent.startsWith(of) ? heading.textContent : `${heading.textContent} - ${of}`;
  showViews(known);
}

function showViews(current) {
  const names = ["overview", "cases", "configs", ...(head.comparison ? ["changes"] : [])];
  const shown = current === "case" ? "cases" : current;
  document.getElementById("views").replaceChildren(
    ...names.map((name) => {
      const link = viewLink(name, {}, VIEWS[name].title);
      if (name === shown) link.setAttribute("aria-current", "page");
      return link;
    }),
  );
}

let address = location.hash;

/** After a step the reader is at the link that leads where they come from, or else at the view's heading. */
async function stepped() {
  const from = address;
  address = location.hash;
  await showView();
  if (document.activeElement !== document.body) return;
  const link = [...document.querySelectorAll("main a")].find((one) => one.getAttribute("href") === from);
  if (link) {
    link.focus();
  } else {
    document.querySelector("h1").focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

async function start() {
  startTheme();
  document.getElementById("run-id").textContent = visible(head.comparison ? head.comparison.title : head.run.id);
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address belongs to the views
    document.getElementById("main").focus();
  });
  if (typeof DecompressionStream === "undefined") {
    document.getElementById("loading").textContent =
      "This browser cannot unpack the records: DecompressionStream is needed.";
    return;
  }
  await loadColumns();
  addEventListener("hashchange", stepped);
  await showView();
  document.documentElement.dataset.ready = "true";
}

start();
