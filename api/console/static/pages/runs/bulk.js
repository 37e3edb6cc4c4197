// An act on all runs that the filters admit: counted first, then done, page by page.
import { html, useEffect, useState } from "../../lib/html.js";
import { request } from "../../lib/api.js";
import { Act, closeDialog } from "../../lib/dialogs.js";
import { Trouble, count } from "../../lib/parts.js";
import { filterOf } from "./filters.js";

const WORDS = { cancel: ["Cancel", "cancelled"], retry: ["Retry", "retried"] };

async function work(action, filter, dry, tell, signal) {
  const sum = { matched: 0, done: 0, skipped: {} };
  for (let cursor; ; ) {
    const body = { action, ...(filter ? { filter } : { all: true }), dry_run: dry, ...(cursor && { cursor }) };
    const told = await request("POST", "v1/runs/actions", { body, signal });
    sum.matched += told.matched;
    sum.done += told.done;
    for (const [why, number] of Object.entries(told.skipped)) sum.skipped[why] = (sum.skipped[why] ?? 0) + number;
    tell({ ...sum });
    if (!told.next_cursor) return sum;
    cursor = told.next_cursor;
  }
}

/** How many it would be: those that fit, without those that are left alone. */
function wanted({ matched, skipped }) {
  return matched - Object.values(skipped).reduce((sum, number) => sum + number, 0);
}

function skippedWords(skipped) {
  const parts = Object.entries(skipped).map(([why, number]) => `${count(number)} ${why.replaceAll("_", " ")}`);
  return parts.length ? ` Left alone: ${parts.join(", ")}.` : "";
}

export function Bulk({ action, query }) {
  const [filter] = useState(() => filterOf(query)); // what was counted is what is done
  const [dry, tell] = useState(null);
  const [problem, fail] = useState(null);
  const [done, finish] = useState(null);
  const [going, go] = useState(null);
  const [verb, past] = WORDS[action];
  useEffect(() => {
    const leaving = new AbortController();
    work(action, filter, true, () => {}, leaving.signal).then(tell, (error) => leaving.signal.aborted || fail(error));
    return () => leaving.abort();
  }, []);
  return html`<h2>${verb} runs</h2>
    <p>${filter ? html`Those with <code>${JSON.stringify(filter)}</code>.` : html`<strong>All runs.</strong> Choose filters first for fewer.`}</p>
    <${Trouble} problem=${problem} />
    ${done ? html`<p role="status">${count(done.done)} of ${count(done.matched)} ${past}.${skippedWords(done.skipped)}</p><button onClick=${closeDialog}>Close</button>`
      : dry ? html`<p role="status">${count(wanted(dry))} of ${count(dry.matched)} would be ${past}.${skippedWords(dry.skipped)}</p>
        ${going && html`<p class="faint">${count(going.done)} so far…</p>`}
        <${Act} kind="danger" disabled=${!wanted(dry)} why="There is none." does=${() => work(action, filter, false, go)} done=${finish}>${verb} ${count(wanted(dry))}<//>`
      : !problem && html`<p class="faint">Counting…</p>`}`;
}
