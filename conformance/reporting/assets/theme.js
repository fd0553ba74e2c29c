// Light and dark: the system's choice unless the reader makes one, remembered where the browser allows it.

const THEME_KEY = "conformance-colours";

function startTheme() {
  const select = document.getElementById("theme");
  select.value = rememberedTheme();
  const apply = () => {
    if (select.value) document.documentElement.dataset.theme = select.value;
    else delete document.documentElement.dataset.theme;
  };
  select.addEventListener("change", () => {
    apply();
    rememberTheme(select.value);
  });
  apply();
}

/** A browser may refuse its storage to file:// addresses. */
function rememberedTheme() {
  try {
    const stored = localStorage.getItem(THEME_KEY);
    return ["light", "dark"].includes(stored) ? stored : "";
  } catch {
    return "";
  }
}

function rememberTheme(value) {
  try {
    localStorage.setItem(THEME_KEY, value);
  } catch {
    // then it holds until the page is closed
  }
}
