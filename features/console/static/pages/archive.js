// The archive: whether its database answers, how far it is behind, and how much it has.
import { html } from "../lib/html.js";
import { request, useLive } from "../lib/api.js";
import { Status, Trouble, count } from "../lib/parts.js";
import { Time, duration } from "../lib/time.js";

const SECOND = 1000;
const LONG = 300; // seconds for which nothing has to wait for a database that answers

function stateOf(archive) {
  if (archive.away) return { status: "failed", word: "away", detail: archive.away };
  if (archive.oldest_seconds > LONG) return { status: "paused", word: "behind" };
  return { status: archive.waiting ? "running" : "idle", word: archive.waiting ? "archiving" : "up to date" };
}

function size(bytes) {
  if (bytes === null) return "–";
  if (bytes < 2 ** 20) return `${count(Math.round(bytes / 2 ** 10))} KiB`;
  return bytes < 2 ** 30 ? `${count(Math.round(bytes / 2 ** 20))} MiB` : `${(bytes / 2 ** 30).toFixed(1)} GiB`;
}

const MEANS = {
  away: "Runs go on, and what has ended stays in Redis until the database is back. What has left Redis is answered with 503.",
  behind: "The database answers, and something has waited for long: the log of a model worker names what is refused, and why.",
};

export default function Archive() {
  const { data, problem } = useLive((signal) => request("GET", "v1/queues", { signal }), []);
  if (!data) return html`<h1>Archive</h1><${Trouble} problem=${problem} waits />`;
  const { archive } = data;
  if (!archive) return html`<h1>Archive</h1><p class="empty">There is none: set PALAVER_ARCHIVE_URL for the API and for all workers.</p>`;
  const state = stateOf(archive);
  const facts = [
    ["To be archived", count(archive.waiting)],
    ["Oldest waits", archive.waiting ? duration(archive.oldest_seconds * SECOND) : "–"],
    ["Conversations", count(archive.conversations)],
    ["Runs", count(archive.runs)],
    ["Entries", count(archive.entries)],
    ["Size", size(archive.bytes)],
    ["Last error", archive.last_error ? html`${archive.last_error}, <${Time} at=${archive.last_error_at} />` : "none since the API began"],
  ];
  return html`<div class="row"><h1>Archive</h1><${Status} ...${state} /></div><${Trouble} problem=${problem} />
    ${MEANS[state.word] && html`<p role="status">${MEANS[state.word]}</p>`}
    <dl class="facts">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    <p class="faint">What has ended is written to the database within seconds, and leaves Redis after the retention. Of many rows the number is an estimate.</p>`;
}
