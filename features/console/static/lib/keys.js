// Keyboard: a letter does what a page says, unless a field has the focus or a dialog is open.
import { html, useLayoutEffect, useRef } from "./html.js";
import { go } from "./router.js";
import { openDialog } from "./dialogs.js";

const active = new Set();
let before = "";

const EVERYWHERE = {
  "?": ["show these keys", () => openDialog(html`<${Help} />`)],
  "g r": ["go to runs", () => go("runs")],
  "g a": ["go to actions", () => go("actions")],
  "g c": ["go to conversations", () => go("conversations")],
  "g p": ["go to the playground", () => go("playground")],
  "/": ["filter", () => document.querySelector("input[data-filter]")?.focus()],
};

function writes(target) {
  return target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);
}

function find(name) {
  for (const map of [...active].reverse()) if (map.current[name]) return map.current[name][1];
  return EVERYWHERE[name]?.[1];
}

addEventListener("keydown", (event) => {
  if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.key === "Escape" && writes(event.target)) event.target.blur();
  if (writes(event.target) || document.querySelector("dialog[open]")) return;
  if (event.key === "Enter" && event.target.closest?.("a, button, summary")) return;
  const act = find(before ? `${before} ${event.key}` : event.key);
  before = !before && event.key === "g" ? "g" : "";
  if (act) {
    event.preventDefault();
    act(event);
  }
});

/** Let keys do something while the component is there: {key: [what it does, function]}. */
export function useKeys(map) {
  const mine = useRef(map);
  mine.current = map; // at once, so that a key acts on what is shown
  useLayoutEffect(() => {
    active.add(mine);
    return () => active.delete(mine);
  }, []);
}

function Help() {
  const all = [...[...active].flatMap((map) => Object.entries(map.current)), ...Object.entries(EVERYWHERE)];
  return html`<h2>Keys</h2>
    <dl class="keys">${all.map(([name, [does]]) => html`<dt><kbd>${name}</kbd></dt><dd>${does}</dd>`)}</dl>`;
}
