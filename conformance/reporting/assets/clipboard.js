// Copying a text to the clipboard, from file:// too, where the newer interface may be refused.

/** A button that copies `text` and says whether that worked. */
function copyButton(text, what) {
  const status = element("span.hidden-text", { role: "status" });
  const button = element("button", { type: "button", "aria-label": `Copy ${what}`, onclick: copy }, "Copy");
  async function copy() {
    const worked = (await copied(text)) ? "Copied" : "Not copied";
    button.textContent = worked;
    status.textContent = worked;
    setTimeout(() => (button.textContent = "Copy"), 2000);
  }
  return element("span", {}, button, status);
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = element("textarea", { "aria-hidden": "true", tabindex: "-1" });
    area.value = text;
    document.body.append(area);
    area.select();
    const worked = document.execCommand("copy");
    area.remove();
    return worked;
  }
}
