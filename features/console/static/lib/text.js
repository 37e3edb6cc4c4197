// Text of others: shown as it is, with what would hide or turn it made visible, and never more than was asked for.
import { html, useState } from "./html.js";

// Controls but tab and newline, marks that turn the direction or have no width, tags; a joiner is a part of emoji.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]|\udb40[\udc00-\udc7f]/g;
const MOST = 20_000;
const ROUNDED = /\d{16}|\d[eE][+-]?\d/; // numbers that would be others once a browser has read them

/** The text with each hidden character by its number. */
export function visible(text) {
  return text.replace(/\r\n/g, "\n").replace(HIDDEN, (found) => `«U+${hex(found)}»`);
}

function hex(character) {
  return character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
}

/** The beginning of a text on one line. */
export function line(text, most = 120) {
  const short = visible(String(text ?? "").slice(0, most + 1)).replace(/\s+/g, " ");
  return short.length > most ? `${short.slice(0, most - 1)}…` : short;
}

/** A size in words. */
export function size(count) {
  if (count < 10_000) return `${count.toLocaleString()} characters`;
  return count < 1_000_000 ? `${Math.round(count / 1000)} thousand characters` : `${(count / 1e6).toFixed(1)} million characters`;
}

/** A text of any length: the first part of it until more is asked for. `show(text)` draws what is shown. */
export function Clipped({ text, most = MOST, show = (shown) => visible(shown) }) {
  const [all, ask] = useState(false);
  const whole = all || text.length <= most;
  return html`${show(whole ? text : text.slice(0, most))}${whole ||
  html`<button class="more" onClick=${() => ask(true)}>… show all ${size(text.length)}</button>`}`;
}

/** A text in a box, as it was written. */
export function Plain({ text, label }) {
  return html`<pre class="plain" dir="auto" tabindex="0" aria-label=${label}><${Clipped} text=${text} /></pre>`;
}

/** A value as JSON with indents; a text that is JSON, too. */
export function pretty(value) {
  if (typeof value !== "string") return JSON.stringify(value, null, 2) ?? "null";
  if (ROUNDED.test(value)) return value;
  try {
    return value.length > 200_000 ? value : JSON.stringify(JSON.parse(value), null, 2);
  } catch {
    return value;
  }
}
