// A conversation: what was said, live, what waits in it, and the next thing to say.
import { html, useEffect, useState } from "../lib/html.js";
import { Action } from "../lib/actions.js";
import { fresh, request, useLive } from "../lib/api.js";
import { Act, confirm } from "../lib/dialogs.js";
import { Copy, Id, Status, To, Trouble, count, money } from "../lib/parts.js";
import { may } from "../lib/session.js";
import { useTale } from "../lib/tale.js";
import { line } from "../lib/text.js";
import { Time } from "../lib/time.js";
import { Transcript } from "../lib/transcript.js";

const WAYS = { enqueue: "after what is under way", steer: "into what is under way", interrupt: "and stop what is under way" };

/** What is sent into a conversation. */
function Composer({ conversation, reload }) {
  const [text, type] = useState("");
  const [way, choose] = useState("enqueue");
  const allowed = may("runs:submit");
  const busy = Boolean(conversation.active_run);
  const does = () => request("POST", "v1/runs", {
    body: { conversation_id: conversation.id, input: text, on_conflict: busy ? way : "enqueue" }, headers: { "Idempotency-Key": fresh() },
  });
  const sent = () => { type(""); reload(); };
  function press(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.target.form.querySelector("button").click();
  }
  if (!conversation.agent) return html`<p class="faint">There is no answer here: it has no agent yet.</p>`;
  return html`<form class="composer" onSubmit=${(event) => event.preventDefault()}>
    <textarea aria-label="Message" placeholder="Say something (Ctrl+Enter sends it)" value=${text} disabled=${!allowed} onKeyDown=${press} onInput=${(event) => type(event.target.value)}></textarea>
    <div class="row"><${Act} kind="main" disabled=${!allowed || !text.trim()} does=${does} done=${sent}
      why=${allowed ? "Write something first." : "Your key has no right to begin runs: runs:submit."}>Send<//>
      ${busy && html`<select aria-label="When" value=${way} onChange=${(event) => choose(event.target.value)}>
        ${Object.entries(WAYS).map(([name, words]) => html`<option value=${name}>${words}</option>`)}</select>`}
      ${!allowed && html`<span class="faint">Your key has no right to begin runs: runs:submit.</span>`}</div>
  </form>`;
}

/** Takes a message of the user and all behind it back: models do not see them any more. */
function TakeBack({ conversation, event, reload }) {
  const allowed = may("runs:act");
  const busy = Boolean(conversation.active_run);
  const why = allowed ? "Cancel what is under way first." : "Your key has no right to act on runs: runs:act.";
  const does = () => request("POST", `v1/conversations/${conversation.id}/withdraw`, {
    body: { after: event.position - 1 }, headers: { "Idempotency-Key": fresh() },
  });
  const press = () => confirm({
    title: "Take back from here?", label: "Take back", does, done: reload,
    text: "Models do not see this message any more, nor what follows it: the way out if a provider refuses it. It stays in the log.",
  });
  return html`<button class="small" disabled=${!allowed || busy} title=${!allowed || busy ? why : undefined} onClick=${press}>take back</button>`;
}

function Active({ id, news }) {
  const { data: run, reload } = useLive((signal) => request("GET", `v1/runs/${id}`, { signal }), [id], 5000);
  useEffect(() => void reload(), [news]);
  if (!run) return null;
  return html`<div class="situation"><p><${Status} status=${run.status} /> <${Id} id=${run.id} path=${`runs/${run.id}`} /></p></div>
    ${run.pending_actions.map((action) => html`<${Action} key=${action.id} runId=${run.id} action=${action} done=${reload} />`)}`;
}

export default function ConversationPage({ params }) {
  const { tale, state } = useTale(`v1/conversations/${params.id}/events`, { query: { include: "reasoning" } });
  const { data, problem, reload } = useLive((signal) => request("GET", `v1/conversations/${params.id}`, { signal }), [params.id], 10_000);
  useEffect(() => {
    const timer = setTimeout(reload, 150);
    return () => clearTimeout(timer);
  }, [tale.news]);
  useEffect(() => {
    const near = document.documentElement.scrollHeight - innerHeight - scrollY < 300;
    if (near) scrollTo(0, document.documentElement.scrollHeight);
  }, [tale.news]);
  if (!data) return html`<h1>Conversation</h1><${Trouble} problem=${problem} waits />`;
  const { usage } = data;
  const isOfUser = (event) => event.message.role === "user" && event.position && !event.nudge && !event.withdrawn;
  const back = (event) => isOfUser(event) && html`<${TakeBack} conversation=${data} event=${event} reload=${reload} />`;
  return html`<div class="row"><h1>${line(data.title ?? "Conversation", 80)}</h1><${Status} status=${data.status} /><code class="id">${data.id}</code><${Copy} text=${data.id} />
      ${state === "reconnecting" && html`<span class="stream wait" role="status">reconnecting: this is what was</span>`}
      ${state instanceof Error && html`<span class="problem" role="alert">${state.message}</span>`}</div>
    <p class="faint">${line(data.agent?.name ?? data.agent?.model ?? "no agent", 60)} · begun <${Time} at=${data.created_at} /> · ${count(data.entries)} entries · ${data.archived ? "from the archive · " : ""}
      ${count(usage.input_tokens + usage.output_tokens)} tokens · ${money(usage.cost_usd)} · <${To} path="runs" query=${{ conversation_id: data.id }}>its runs<//></p>
    <${Trouble} problem=${problem} />
    <${Transcript} tale=${tale} state=${state} act=${back} />
    ${data.active_run && html`<${Active} id=${data.active_run} news=${tale.news} />`}
    <${Composer} conversation=${data} reload=${reload} />`;
}
