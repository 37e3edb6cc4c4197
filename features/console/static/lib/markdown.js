// Markdown of models as nodes: no HTML of theirs is ever read as such. Links lead to http(s) alone; an image is a word
// until it is asked for, and then only if it brings its own bytes: an address of another server would tell that server.
import { html, useState } from "./html.js";
import { Clipped, visible } from "./text.js";

const LONGEST = 200_000;
const DEEPEST = 6;
const ITEM = /^(\s{0,8})([-*+]|\d{1,9}[.)])\s+(.*)$/;
const INLINE =
  /(`{1,3})([^`\n]{1,2000})\1|(!?)\[([^[\]\n]{0,500})\]\(([^\s()<>]{1,2000})\)|\*\*([^*\n]{1,2000})\*\*|\*([^*\s][^*\n]{0,2000})\*|(https?:\/\/[^\s<>()[\]"'`*]{1,2000})/g;

/** The address, if it is one that a link may lead to. */
export function safeAddress(text) {
  try {
    const url = new URL(text);
    return url.protocol === "https:" || url.protocol === "http:" ? url.href : null;
  } catch {
    return null;
  }
}

/** A link to elsewhere, or its words. */
export function Away({ to, children }) {
  const address = safeAddress(to);
  if (!address) return html`<span>${children} <span class="faint">(${visible(String(to).slice(0, 200))})</span></span>`;
  return html`<a href=${address} target="_blank" rel="noopener noreferrer" title=${visible(address)}>${children}</a>`;
}

const PICTURE = /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$/;

/** An image: a button, until it is asked for. */
export function Picture({ address, name = "image" }) {
  const [shown, show] = useState(false);
  if (!PICTURE.test(address)) return html`<${Away} to=${address}>image: ${visible(name)}<//>`;
  if (shown) return html`<img src=${address} alt=${visible(name)} />`;
  return html`<button onClick=${() => show(true)}>show image ${visible(name)} (${Math.round((address.length * 3) / 4096)} KiB)</button>`;
}

function inline(text, depth = 0) {
  if (depth > DEEPEST) return [visible(text)];
  const nodes = [];
  let end = 0;
  for (const found of text.matchAll(INLINE)) {
    const [whole, , code, image, words, address, strong, emphasis, bare] = found;
    nodes.push(visible(text.slice(end, found.index)));
    end = found.index + whole.length;
    if (code !== undefined) nodes.push(html`<code>${visible(code)}</code>`);
    else if (image) nodes.push(html`<${Picture} address=${address} name=${words || "image"} />`);
    else if (address !== undefined) nodes.push(html`<${Away} to=${address}>${inline(words, depth + 1)}<//>`);
    else if (strong !== undefined) nodes.push(html`<strong>${inline(strong, depth + 1)}</strong>`);
    else if (emphasis !== undefined) nodes.push(html`<em>${inline(emphasis, depth + 1)}</em>`);
    else nodes.push(html`<${Away} to=${bare}>${visible(bare)}<//>`);
  }
  nodes.push(visible(text.slice(end)));
  return nodes;
}

function fenced(lines, from) {
  const fence = lines[from].trim().match(/^(`{3,}|~{3,})/)[0];
  let to = from + 1;
  while (to < lines.length && !lines[to].trim().startsWith(fence)) to += 1;
  return [html`<pre class="plain" dir="auto" tabindex="0">${visible(lines.slice(from + 1, to).join("\n"))}</pre>`, to + 1];
}

function listed(lines, from) {
  const ordered = /\d/.test(lines[from].match(ITEM)[2]);
  const items = [];
  let to = from;
  for (; to < lines.length; to += 1) {
    const item = lines[to].match(ITEM);
    if (item) items.push([item[3]]);
    else if (lines[to].trim() && /^\s{2,}/.test(lines[to])) items.at(-1).push(lines[to].trim());
    else break;
  }
  const drawn = items.map((words) => html`<li>${inline(words.join(" "))}</li>`);
  return [ordered ? html`<ol>${drawn}</ol>` : html`<ul>${drawn}</ul>`, to];
}

function quoted(lines, from) {
  let to = from;
  while (to < lines.length && /^\s{0,3}>/.test(lines[to])) to += 1;
  const words = lines.slice(from, to).map((each) => each.replace(/^\s{0,3}>\s?/, ""));
  return [html`<blockquote>${words.map((each) => html`<p>${inline(each)}</p>`)}</blockquote>`, to];
}

function paragraph(lines, from) {
  let to = from + 1;
  while (to < lines.length && lines[to].trim() && !begins(lines[to])) to += 1;
  const words = lines.slice(from, to).flatMap((each, place) => (place ? [html`<br />`, ...inline(each)] : inline(each)));
  return [html`<p dir="auto">${words}</p>`, to];
}

function begins(line) {
  return /^\s{0,3}(`{3}|~{3}|#{1,6}\s|>)/.test(line) || ITEM.test(line);
}

function blocks(text) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const drawn = [];
  for (let place = 0; place < lines.length; ) {
    const line = lines[place];
    const heading = line.match(/^\s{0,3}(#{1,6})\s+(.*)$/);
    let block;
    if (!line.trim()) [block, place] = [null, place + 1];
    else if (/^\s{0,3}(`{3,}|~{3,})/.test(line)) [block, place] = fenced(lines, place);
    else if (heading) [block, place] = [html`<p class="heading" dir="auto">${inline(heading[2])}</p>`, place + 1];
    else if (/^\s{0,3}>/.test(line)) [block, place] = quoted(lines, place);
    else if (ITEM.test(line)) [block, place] = listed(lines, place);
    else [block, place] = paragraph(lines, place);
    if (block) drawn.push(block);
  }
  return drawn;
}

/** A model's text. */
export function Markdown({ text }) {
  if (text.length > LONGEST) return html`<p class="words" dir="auto"><${Clipped} text=${text} /></p>`;
  return html`<div class="words"><${Clipped} text=${text} show=${blocks} /></div>`;
}
