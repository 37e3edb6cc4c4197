// What was said: messages, thoughts folded, each call with its result, and the text that is being written.
import { html, useState } from "./html.js";
import { Markdown, Picture } from "./markdown.js";
import { Copy } from "./parts.js";
import { Clipped, Plain, line, pretty, visible } from "./text.js";
import { Time } from "./time.js";

const FIRST = 300; // messages and calls that are drawn until all are asked for

/** The text of a message's content. */
export function textOf(content) {
  if (typeof content === "string") return content;
  return content.filter((part) => part.type === "text").map((part) => part.text).join("\n");
}

function Thought({ text, open }) {
  if (!text) return null;
  return html`<details class="thought" open=${open}><summary>Thinking</summary><p class="words live"><${Clipped} text=${text} /></p></details>`;
}

function Content({ content, plain }) {
  if (typeof content === "string") return content && (plain ? html`<${Plain} text=${content} />` : html`<${Markdown} text=${content} />`);
  return content.map((part) => {
    if (part.type === "text") return html`<${Markdown} text=${part.text} />`;
    if (part.type === "reasoning") return html`<${Thought} text=${part.text} />`;
    if (part.type === "image") return html`<p><${Picture} address=${part.url} /></p>`;
    return html`<p class="faint">file ${visible(part.name ?? "")} (${part.url.slice(0, 40)}…)</p>`;
  });
}

/** A call of a tool and what came of it: one line, unfolded in place. */
export function Call({ tale, run, call }) {
  const result = tale.results.get(`${run} ${call.id}`);
  const progress = tale.progress.get(`${run} ${call.id}`);
  const failed = result?.message.is_error;
  const text = result ? textOf(result.message.content) : "";
  const now = result ? line(text, 90) : progress ? line(progress.text, 60) : "…";
  return html`<details class="call ${failed ? "fault" : ""}">
    <summary><code>${visible(call.name)}</code> <span class="faint">${line(call.arguments, 70)}</span> → <span class=${failed ? "bad-text" : ""}>${now}</span></summary>
    <h3>Input</h3><${Plain} text=${pretty(call.arguments)} label="Input" />
    <h3>Output${failed ? " (failed)" : ""}</h3>
    ${result ? html`<${Content} content=${typeof result.message.content === "string" ? pretty(text) : result.message.content} plain=${true} />` : html`<p class="faint">${progress ? visible(progress.text) : "None yet."}</p>`}
  </details>`;
}

function Said({ tale, event, act }) {
  const { message } = event;
  const who = message.role === "user" ? (event.nudge ? "engine" : event.steer ? "user, while it ran" : "user") : "model";
  return html`<article class="said ${message.role} ${event.withdrawn ? "withdrawn" : ""}">
    <header><strong>${who}</strong>${event.step && html` <span class="faint">step ${event.step}</span>`}
      ${message.partial && html` <span class="bad-text">cut off</span>`}${event.withdrawn && html` <span class="faint">withdrawn: models do not see it</span>`}
      <span class="tools"><${Copy} text=${() => textOf(message.content)} />${act?.(event)} <span class="faint"><${Time} at=${event.at} /></span></span></header>
    <${Thought} text=${event.thought} />
    <${Content} content=${message.content} />
    ${message.tool_calls.map((call) => html`<${Call} key=${call.id} tale=${tale} run=${event.run_id} call=${call} />`)}
    ${event.error && html`<p class="problem">${event.error.class}: ${visible(event.error.message)}</p>`}
  </article>`;
}

/** The newest messages, as many as have so many calls with them; the newest one in any case. */
function newest(said) {
  let drawn = 0;
  let from = said.length;
  while (from > 0 && (from === said.length || drawn + 1 + said[from - 1].message.tool_calls.length <= FIRST)) {
    from -= 1;
    drawn += 1 + said[from].message.tool_calls.length;
  }
  return said.slice(from);
}

/** The messages of a tale; of very many the newest ones first. `act(event)` is what can be done about one. */
export function Transcript({ tale, act, state }) {
  const [all, ask] = useState(false);
  const said = tale.messages.filter(({ message }) => message.role !== "tool");
  const shown = all ? said : newest(said);
  return html`<div class="transcript" role="log" aria-live="polite" aria-busy=${state === "connecting"}>
    ${shown.length < said.length && html`<button onClick=${() => ask(true)}>Show all ${said.length} messages</button>`}
    ${shown.map((event) => html`<${Said} key=${event.key} tale=${tale} event=${event} act=${act} />`)}
    ${[...tale.live.values()].map((each) => html`<article class="said assistant" key=${each.key}>
      <header><strong>model</strong> <span class="faint">step ${each.step}, writes</span></header>
      <${Thought} text=${each.thought} open=${!each.text} />
      <p class="words live" data-live>${visible(each.text.slice(-20_000))}</p></article>`)}
    ${!said.length && !tale.live.size && html`<p class="empty">${state === "connecting" ? "Loading…" : "Nothing was said yet."}</p>`}
  </div>`;
}
