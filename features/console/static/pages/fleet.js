// Queues, who works on them, and the providers and services that their steps call.
import { html } from "../lib/html.js";
import { request, useLive } from "../lib/api.js";
import { Id, Status, Table, Trouble, count, limited, number } from "../lib/parts.js";
import { visible } from "../lib/text.js";
import { Time, duration } from "../lib/time.js";

const SECOND = 1000;

const QUEUES = [
  ["queue", (queue) => queue.name],
  ["ready", (queue) => count(queue.ready), number],
  ["oldest waits", (queue) => (queue.ready ? duration(queue.oldest_ready_seconds * SECOND) : "–"), number],
  ["under way", (queue) => count(queue.running), number],
  ["workers", (queue) => count(queue.workers.length), number],
  ["places", (queue) => limited(sum(queue.workers, "in_flight"), sum(queue.workers, "capacity")), number],
  ["state", (queue) => html`<${Status} ...${stateOf(queue)} />`],
];

const WORKERS = [
  ["worker", (worker) => worker.id],
  ["queue", (worker) => worker.queue],
  ["under way", (worker) => (worker.refused ? "–" : limited(worker.in_flight, worker.capacity)), number],
  ["state", (worker) => html`<${Status} ...${stateOfWorker(worker)} />`],
  ["lacks", (worker) => visible((worker.refused ?? worker.lacks).join(", ")) || "nothing"],
];

const TENANTS = [
  ["tenant", (turn) => turn.tenant || "the default one"],
  ["queue", (turn) => turn.queue],
  ["waiting", (turn) => count(turn.waiting), number],
  ["first waits", (turn) => duration(turn.first_waits_seconds * SECOND), number],
  ["under way", (turn) => limited(turn.in_flight, turn.max_in_flight), number],
  ["weight", (turn) => count(turn.weight), number],
  ["at its cap", (turn) => (turn.at_cap ? "yes" : "no")],
];

const CALLED = [
  ["name", (called) => called.name],
  ["state", (called) => html`<${Status} ...${stateOfCalled(called)} />`],
  ["calls wait", (called) => count(called.waiting), number],
  ["under way", (called) => limited(called.in_flight, called.max_in_flight), number],
  ["last minute", (called) => limited(called.requests_last_minute ?? called.calls_last_minute, called.requests_per_minute ?? called.per_minute), number],
  ["tokens, last minute", (called) => limited(called.tokens_last_minute, called.tokens_per_minute), number],
];

const TROUBLES = [
  ["of", (trouble) => [trouble.name, trouble.model].filter(Boolean).join(" / ")],
  ["what", (trouble) => html`<${Status} status=${trouble.error_class ? "failed" : "paused"} word=${trouble.error_class ?? "cools down"} />`],
  ["says", (trouble) => visible(trouble.message ?? "")],
  ["since", (trouble) => html`<${Time} at=${trouble.since} />`],
  ["next call", (trouble) => html`<${Time} at=${trouble.next_probe ?? trouble.until} />`],
  ["calls wait", (trouble) => count(trouble.waiting), number],
];

const LACKED = [
  ["for want of", (lacked) => html`<code>${lacked.code}</code>`],
  ["steps", (lacked) => count(lacked.steps), number],
  ["such as", (lacked) => lacked.run_id && html`<${Id} id=${lacked.run_id} path=${`runs/${lacked.run_id}`} />`],
];

function sum(rows, name) {
  return rows.reduce((all, row) => all + row[name], 0);
}

function stateOf(queue) {
  if (!queue.workers.length) return { status: queue.ready ? "failed" : "paused", word: "no worker" };
  if (queue.workers.every((worker) => worker.draining)) return { status: "paused", word: "draining", detail: "all of its workers" };
  return { status: queue.running ? "running" : "idle" };
}

function stateOfWorker(worker) {
  if (worker.refused) return { status: "failed", word: "refused", detail: "by Redis, what a step takes" };
  if (worker.draining) return { status: "cancelling", word: "draining" };
  return { status: worker.in_flight ? "running" : "idle", detail: worker.lacks.length ? "lacks something" : "" };
}

function stateOfCalled(called) {
  if (called.outages.length) return { status: "failed", word: "outage", detail: `${called.outages.map((outage) => outage.error_class).join(", ")}` };
  if (called.cooling_until || called.cooling?.length) return { status: "paused", word: "cools down" };
  return { status: called.in_flight ? "running" : "idle" };
}

function troublesOf(called) {
  const cooling = called.cooling ?? (called.cooling_until ? [{ until: called.cooling_until, waiting: called.waiting }] : []);
  return [...called.outages, ...cooling].map((trouble) => ({ name: called.name, ...trouble }));
}

function Room({ room }) {
  const memory = (bytes) => `${count(Math.round(bytes / 2 ** 20))} MiB`;
  return html`<dl class="facts">
    <div><dt>Runs that are not over</dt><dd>${limited(room.runs, room.max_runs)}</dd></div>
    <div><dt>Memory of Redis</dt><dd>${memory(room.memory_bytes)}${room.max_memory_bytes ? ` of ${memory(room.max_memory_bytes)}` : ""}</dd></div>
  </dl>`;
}

export default function Fleet() {
  const { data, problem } = useLive((signal) => request("GET", "v1/queues", { signal }), []);
  if (!data) return html`<h1>Queues and workers</h1><${Trouble} problem=${problem} waits />`;
  const named = (rows) => rows.flatMap((queue) => queue.workers.map((worker) => ({ ...worker, queue: queue.name })));
  const refused = data.data.flatMap((queue) => queue.refused.map((worker) => ({ ...worker, queue: queue.name, draining: false })));
  const turns = data.data.flatMap((queue) => queue.tenants.map((turn) => ({ ...turn, queue: queue.name })));
  const called = [...data.providers, ...data.services];
  const troubles = called.flatMap(troublesOf);
  return html`<h1>Queues and workers</h1><${Trouble} problem=${problem} />
    <${Table} label="Queues" rows=${data.data} keyOf=${(queue) => queue.name} columns=${QUEUES} kindOf=${(queue) => (stateOf(queue).status === "failed" ? "fault" : "")} />
    ${data.no_worker.length > 0 && html`<h2>Steps that no worker can do</h2>
      <${Table} label="Steps that no worker can do" rows=${data.no_worker} keyOf=${(lacked) => lacked.code} columns=${LACKED} />`}
    <h2>Workers</h2>
    <${Table} label="Workers" rows=${[...refused, ...named(data.data).sort((one, other) => other.lacks.length - one.lacks.length)]} keyOf=${(worker) => `${worker.queue} ${worker.id}`} columns=${WORKERS}
      kindOf=${(worker) => (worker.refused || worker.lacks.length ? "fault" : "")} empty="No worker is there: start one with palaver worker." />
    ${turns.length > 0 && html`<h2>Whose turn it is</h2>
      <${Table} label="Tenants that wait" rows=${turns} keyOf=${(turn) => `${turn.queue} ${turn.tenant}`} columns=${TENANTS} />`}
    <h2>Providers and services</h2>
    <${Table} label="Providers and services" rows=${called} keyOf=${(each) => each.name} columns=${CALLED}
      kindOf=${(each) => (each.outages.length ? "fault" : "")} empty="None was called yet." />
    ${troubles.length > 0 && html`<h2>What holds calls up</h2>
      <${Table} label="What holds calls up" rows=${troubles} keyOf=${(trouble) => `${trouble.name} ${trouble.model} ${trouble.error_class}`} columns=${TROUBLES} />`}
    <h2>Room</h2><${Room} room=${data.room} />`;
}
