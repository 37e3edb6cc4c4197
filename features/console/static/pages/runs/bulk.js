// An act on all runs that the filters admit: counted first, then done, part by part, until it is done or the dialog is
// closed. What was sent by then is done; how many that are is said.
import { html, useEffect, useState } from "../../lib/html.js";
import { request } from "../../lib/api.js";
import { Act, closeDialog, openDialog } from "../../lib/dialogs.js";
import { Trouble, count } from "../../lib/parts.js";
import { filterOf } from "./filters.js";

const WORDS = { cancel: ["Cancel", "cancelled"], retry: ["Retry", "retried"] };
const PART = 100; // who stops it waits for one part

function add(sum, told) {
  const skipped = { ...sum.skipped };
  for (const [why, number] of Object.entries(told.skipped)) skipped[why] = (skipped[why] ?? 0) + number;
  return { matched: sum.matched + told.matched, done: sum.done + told.done, skipped };
}

/** Act part by part; `tell(sum)` hears of each. Begins no part once `left` says so. */
async function work(action, filter, dry, tell, left) {
  let sum = { matched: 0, done: 0, skipped: {} };
  for (let cursor; !left.aborted; ) {
    const body = { action, ...(filter ? { filter } : { all: true }), dry_run: dry, ...(!dry && { limit: PART }), ...(cursor && { cursor }) };
    const told = await request("POST", "v1/runs/actions", { body, signal: dry ? left : undefined });
    sum = add(sum, told);
    tell(sum);
    if (!told.next_cursor) break;
    cursor = told.next_cursor;
  }
  return sum;
}

/** How many it would be: those that fit, without those that are left alone. */
function wanted({ matched, skipped }) {
  return matched - Object.values(skipped).reduce((sum, number) => sum + number, 0);
}

function skippedWords(skipped) {
  const parts = Object.entries(skipped).map(([why, number]) => `${count(number)} ${why.replaceAll("_", " ")}`);
  return parts.length ? ` Left alone: ${parts.join(", ")}.` : "";
}

/** What was done until the dialog was closed, or until it could not go on. */
function Stopped({ verb, past, done, of, problem }) {
  return html`<h2>${verb} runs: stopped</h2><p role="status">Stopped: ${count(done.done)} of ${count(of)} ${past}.${skippedWords(done.skipped)}</p>
    <${Trouble} problem=${problem} /><button onClick=${closeDialog}>Close</button>`;
}

export function Bulk({ action, query }) {
  const [filter] = useState(() => filterOf(query)); // what was counted is what is done
  const [leaving] = useState(() => new AbortController());
  const [dry, tell] = useState(null);
  const [problem, fail] = useState(null);
  const [done, finish] = useState(null);
  const [going, go] = useState(null);
  const [verb, past] = WORDS[action];
  useEffect(() => {
    work(action, filter, true, () => {}, leaving.signal).then(tell, (error) => leaving.signal.aborted || fail(error));
    return () => leaving.abort();
  }, []);
  async function act() {
    let soFar = { matched: 0, done: 0, skipped: {} };
    const stopped = (why) => openDialog(html`<${Stopped} verb=${verb} past=${past} done=${soFar} of=${wanted(dry)} problem=${why} />`);
    try {
      go(soFar);
      const all = await work(action, filter, false, (sum) => go((soFar = sum)), leaving.signal);
      if (leaving.signal.aborted) stopped(null);
      return all;
    } catch (error) {
      if (!leaving.signal.aborted) throw error;
      return stopped(error);
    }
  }
  function stop() {
    leaving.abort();
    closeDialog();
  }
  return html`<h2>${verb} runs</h2>
    <p>${filter ? html`Those with <code>${JSON.stringify(filter)}</code>.` : html`<strong>All runs.</strong> Choose filters first for fewer.`}</p>
    <${Trouble} problem=${problem} />
    ${done ? html`<p role="status">${count(done.done)} of ${count(done.matched)} ${past}.${skippedWords(done.skipped)}</p><button onClick=${closeDialog}>Close</button>`
      : dry ? html`<p role="status">${count(wanted(dry))} of ${count(dry.matched)} would be ${past}.${skippedWords(dry.skipped)}</p>
        ${going && html`<p class="faint" role="status">${count(going.done)} so far… To stop, close this.</p>`}
        <${Act} kind="danger" disabled=${!wanted(dry)} why="There is none." does=${act} done=${finish}>${verb} ${count(wanted(dry))}<//>
        ${going && html` <button onClick=${stop}>Stop</button>`}`
      : !problem && html`<p class="faint">Counting…</p>`}`;
}
