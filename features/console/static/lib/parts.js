// Parts that all pages are made of: status, links to runs, copy, tables, problems.
import { html, useEffect, useRef, useState } from "./html.js";
import { href } from "./router.js";

const GROUPS = {
  good: ["completed", "idle"], bad: ["failed", "expired"], wait: ["requires_action", "paused", "queued"],
  busy: ["running", "cancelling"], dull: ["cancelled", "incomplete"],
};
const MANY = 200;

/** For a column of numbers. */
export const number = { class: "number" };

/** A status: a word and a colour; what is no run's has the colour of one, and a word of its own. */
export function Status({ status, word = status.replace("_", " "), detail }) {
  const group = Object.keys(GROUPS).find((name) => GROUPS[name].includes(status)) ?? "dull";
  return html`<span class="status ${group}">${word}${detail ? html`<small> ${detail}</small>` : ""}</span>`;
}

/** A link to a page. */
export function To({ path, query, children, ...more }) {
  return html`<a href=${href(path, query)} ...${more}>${children}</a>`;
}

/** An id that may be long: its end tells most of them apart. */
export function Id({ id, path }) {
  const short = id.length > 16 ? `${id.slice(0, id.indexOf("_") + 1)}…${id.slice(-8)}` : id;
  return path ? html`<a class="id" href=${href(path)} title=${id}>${short}</a>` : html`<code class="id" title=${id}>${short}</code>`;
}

/** A button that copies a text. */
export function Copy({ text, children = "copy" }) {
  const [state, set] = useState("");
  async function copy() {
    try {
      await navigator.clipboard.writeText(typeof text === "function" ? text() : text);
      set("copied");
    } catch {
      set("not allowed here");
    }
    setTimeout(() => set(""), 2000);
  }
  return html`<button class="small" onClick=${copy}><span role="status">${state || children}</span></button>`;
}

/** A field whose text counts when it is left or entered: what is typed there stays while the page is drawn anew. */
export function Field({ value = "", put, ...more }) {
  const [draft, type] = useState(null);
  return html`<input ...${more} value=${draft ?? value} onInput=${(event) => type(event.target.value)}
    onChange=${(event) => { put(event.target.value); type(null); }} />`;
}

/** What went wrong, in a sentence. */
export function Trouble({ problem, waits = false }) {
  if (problem) return html`<p class="problem" role="alert">${problem.message}</p>`;
  return waits ? html`<p class="faint">Loading…</p>` : null;
}

/** Numbers that are easier to read with few digits. */
export function count(number) {
  return number === null || number === undefined ? "–" : number.toLocaleString();
}

/** What is, and what may be at most: "3 of 10"; without a bound the number alone. */
export function limited(is, most) {
  return is === null || is === undefined || most === null || most === undefined ? count(is) : `${count(is)} of ${count(most)}`;
}

/** Dollars, as precise as they are few. */
export function money(dollars) {
  if (dollars === null || dollars === undefined) return "–";
  return `$${dollars.toFixed(dollars >= 1 || dollars === 0 ? 2 : dollars >= 0.01 ? 3 : 5)}`;
}

/**
 * A table. `columns` are [name, cell(row), options]: `class` for the cells. Of more than 200 rows only those are drawn
 * that can be seen: all are as high as `height` says. `open(row)` is for who presses a row that is `chosen`.
 */
export function Table({ label, columns, rows, keyOf, height = 37, chosen, kindOf, empty = "There is none." }) {
  const [from, see] = useState(0);
  const box = useRef(null);
  const many = rows.length > MANY;
  const shown = many ? Math.ceil((box.current?.clientHeight || 800) / height) + 20 : rows.length;
  const first = many ? Math.max(0, Math.min(from, rows.length - shown)) : 0;
  const scrolled = () => many && see(Math.max(0, Math.floor(box.current.scrollTop / height) - 10));
  useEffect(() => {
    if (chosen === undefined || !box.current) return;
    box.current.querySelector("tr[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }, [chosen]);
  if (!rows.length) return html`<p class="empty">${empty}</p>`;
  const space = (lines) => lines > 0 && html`<tr aria-hidden="true" style=${{ height: `${lines * height}px` }}><td colspan=${columns.length}></td></tr>`;
  return html`<div class="table ${many ? "many" : ""}" ref=${box} onScroll=${scrolled} tabindex="0" role="region" aria-label=${label}>
    <table aria-rowcount=${rows.length + 1}>
      <thead><tr>${columns.map(([name, , more]) => html`<th scope="col" class=${more?.class}>${name}</th>`)}</tr></thead>
      <tbody>
        ${space(first)}
        ${rows.slice(first, first + shown).map((row) => html`<tr key=${keyOf(row)} class=${kindOf?.(row)}
          aria-selected=${chosen === undefined ? undefined : String(keyOf(row) === chosen)}>
          ${columns.map(([, cell, more]) => html`<td class=${more?.class}>${cell(row)}</td>`)}</tr>`)}
        ${space(rows.length - first - shown)}
      </tbody>
    </table>
  </div>`;
}

/** Parts of a page of which one is looked at: [name, label]. */
export function Tabs({ label, tabs, chosen, choose }) {
  return html`<div class="tabs" role="tablist" aria-label=${label}>
    ${tabs.map(([name, words]) => html`<button role="tab" aria-selected=${String(name === chosen)} onClick=${() => choose(name)}>${words}</button>`)}
  </div>`;
}
