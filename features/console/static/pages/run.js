// A run: what it does or waits for and what to do next, its steps, what was said, and everything that happened.
import { html, useEffect, useMemo, useState } from "../lib/html.js";
import { request, useLive } from "../lib/api.js";
import { Action, decide } from "../lib/actions.js";
import { useKeys } from "../lib/keys.js";
import { Copy, Id, Status, Tabs, To, Trouble, count, money } from "../lib/parts.js";
import { setQuery } from "../lib/router.js";
import { may } from "../lib/session.js";
import { ended, situation } from "../lib/situation.js";
import { useTale } from "../lib/tale.js";
import { line } from "../lib/text.js";
import { Lasting, Time } from "../lib/time.js";
import { Transcript } from "../lib/transcript.js";
import { Controls, ForkButton } from "./run/controls.js";
import { Events } from "./run/events.js";
import { curl, python } from "./run/snippets.js";
import { Steps } from "./run/steps.js";
import { Waterfall } from "./run/waterfall.js";

const TABS = [["steps", "Steps"], ["waterfall", "Waterfall"], ["transcript", "Transcript"], ["events", "Events"], ["more", "Agent and usage"]];

/** The run, read again when its events say that something has changed. */
function useRun(id, news) {
  const live = useLive((signal) => request("GET", `v1/runs/${id}`, { signal }), [id], (run) => (run && ended(run) ? 0 : 5000));
  useEffect(() => {
    const timer = setTimeout(live.reload, 150);
    return () => clearTimeout(timer);
  }, [news]);
  return live;
}

function Facts({ run }) {
  const { usage } = run;
  const facts = [
    ["Conversation", html`<${Id} id=${run.conversation_id} path=${`conversations/${run.conversation_id}`} />`],
    ["Agent", html`${run.agent.name ? `${run.agent.name}${run.agent.version ? `@${run.agent.version}` : ""}, ` : ""}<code>${run.model}</code>`],
    ["Submitted", html`<${Time} at=${run.times.created_at} />${run.submitted_by && ` by ${run.submitted_by}`}`],
    ["Waited to begin", html`<${Lasting} from=${run.times.created_at} to=${run.times.started_at ?? run.times.ended_at} />`],
    ["Took", html`<${Lasting} from=${run.times.started_at} to=${run.times.ended_at} />`],
    ["Steps", html`${count(run.step)} (${count(usage.model_calls)} model calls, ${count(usage.tool_calls)} tool calls)`],
    ["Tokens", `${count(usage.input_tokens)} in, ${count(usage.output_tokens)} out`],
    ["Cost", money(usage.cost_usd)],
    run.times.ended_at ? null : ["Deadline", html`<${Time} at=${run.times.deadline} />`],
    run.retried_from && ["Goes on with", html`<${Id} id=${run.retried_from} path=${`runs/${run.retried_from}`} />`],
    run.retried_as && ["Gone on with by", html`<${Id} id=${run.retried_as} path=${`runs/${run.retried_as}`} />`],
    run.parent && ["Called by", html`<${Id} id=${run.parent.run_id} path=${`runs/${run.parent.run_id}`} /> at step ${run.parent.step}`],
    run.archived && ["Archived", "It had left Redis"],
    run.trace_id && ["Trace", html`<code>${run.trace_id}</code> <${Copy} text=${run.trace_id} />`],
    run.tags.length > 0 && ["Tags", run.tags.map((tag) => html`<${To} path="runs" query=${{ tag }}>${line(tag)}<//> `)],
  ];
  return html`<dl class="facts">${facts.filter(Boolean).map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

function Children({ run }) {
  if (!run.children.length) return null;
  return html`<h2>Runs below it</h2><ul class="children">${run.children.map((child) => html`<li key=${child.run_id}>
    <${Id} id=${child.run_id} path=${`runs/${child.run_id}`} /> ${child.status && html`<${Status} status=${child.status} />`}
    <span class="faint">${line(child.agent)} at step ${child.step}${child.pending_actions ? `, waits for ${child.pending_actions} decisions` : ""}</span></li>`)}</ul>`;
}

function Pending({ run, reload }) {
  const all = [...run.pending_actions.map((action) => ({ ...action, run_id: run.id })), ...run.pending_below];
  return all.map((action) => html`<div key=${action.id}>
    ${action.run_id !== run.id && html`<p class="faint">Of a run below: <${Id} id=${action.run_id} path=${`runs/${action.run_id}`} /></p>`}
    <${Action} runId=${action.run_id} action=${action} done=${reload} /></div>`);
}

function More({ run, tale }) {
  return html`<h2>Usage by step</h2>
    <${Steps} tale=${tale} usage=${true} />
    <h2>Agent</h2><pre class="plain" tabindex="0" aria-label="Agent">${JSON.stringify(run.agent, null, 2)}</pre>
    ${Object.keys(run.metadata).length > 0 && html`<h2>Metadata</h2><pre class="plain">${JSON.stringify(run.metadata, null, 2)}</pre>`}
    ${run.budget && html`<h2>Budget</h2><pre class="plain">${JSON.stringify(run.budget, null, 2)}</pre>`}`;
}

function StreamState({ state }) {
  if (state === "reconnecting") return html`<span class="stream wait" role="status">reconnecting: this is what was</span>`;
  if (state === "connecting") return html`<span class="stream faint" role="status">connecting</span>`;
  if (state instanceof Error) return html`<span class="stream problem" role="alert">${state.message}</span>`;
  return html`<span class="stream faint" role="status">${state === "live" ? "live" : "whole"}</span>`;
}

export default function RunPage({ params, query }) {
  const { tale, state } = useTale(`v1/runs/${params.id}/events`, { query: { include: "reasoning" }, last: (event) => event.type === "run.finished" });
  const { data: run, problem, reload } = useRun(params.id, tale.news);
  const tab = query.tab ?? "transcript";
  const [first] = run?.pending_actions.filter((action) => action.type === "approval") ?? [];
  const [refused, refuse] = useState(null);
  const act = (decision) => () => first && may("actions:approve") && decide(run.id, first, decision).then(() => refuse(null), refuse).finally(reload);
  useKeys({
    a: ["approve the first call that waits", act("approve")], d: ["deny it", act("deny")],
    ...Object.fromEntries(TABS.map(([name, words], place) => [String(place + 1), [words.toLowerCase(), () => setQuery({ tab: name })]])),
  });
  const said = useMemo(() => run && situation(run), [run]);
  if (!run) return html`<h1>Run</h1><${Trouble} problem=${problem} waits />`;
  const fork = (event) => event.step && !event.step.includes("/") && ended(run) && html`<${ForkButton} run=${run} step=${Number(event.step)} />`;
  return html`<div class="row"><h1><${Status} status=${run.status} /></h1><code class="id">${run.id}</code><${Copy} text=${run.id} />
      <${StreamState} state=${state} /><span class="tools"><${Copy} text=${() => curl(run, tale)}>as curl<//><${Copy} text=${() => python(run, tale)}>as Python<//></span></div>
    <${Trouble} problem=${problem} /><${Trouble} problem=${refused} />
    <div class="situation"><p>${said[0]}</p>${said[1] && html`<p><strong>Next:</strong> ${said[1]}</p>`}</div>
    <${Controls} run=${run} reload=${reload} />
    <${Pending} run=${run} reload=${reload} />
    <${Facts} run=${run} /><${Children} run=${run} />
    ${tale.gap && html`<p class="faint">Events that are only kept for a while after the end are gone: starts of attempts, and waits.</p>`}
    <${Tabs} label="Parts of the run" tabs=${TABS} chosen=${tab} choose=${(name) => setQuery({ tab: name })} />
    ${tab === "steps" && html`<${Steps} tale=${tale} run=${run} />`}
    ${tab === "waterfall" && html`<${Waterfall} tale=${tale} run=${run} />`}
    ${tab === "transcript" && html`<${Transcript} tale=${tale} state=${state} act=${fork} />`}
    ${tab === "events" && html`<${Events} tale=${tale} />`}
    ${tab === "more" && html`<${More} run=${run} tale=${tale} />`}`;
}
