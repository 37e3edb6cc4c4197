// Schedules: when runs begin by themselves.
import { html } from "../lib/html.js";
import { fresh, listAll, request, useLive } from "../lib/api.js";
import { Act } from "../lib/dialogs.js";
import { Id, Status, Table, To, Trouble } from "../lib/parts.js";
import { go } from "../lib/router.js";
import { may } from "../lib/session.js";
import { Time, duration } from "../lib/time.js";

const WHY = "Your key lacks runs:submit.";

/** The times of a schedule in words. */
export function timing(schedule) {
  return schedule.cron ? `${schedule.cron} (${schedule.timezone})` : `every ${duration(schedule.every * 1000)}`;
}

/** Pause or resume it, and begin a run of it now. */
export function Buttons({ schedule, reload }) {
  const allowed = may("runs:submit");
  const path = `v1/schedules/${encodeURIComponent(schedule.name)}`;
  const verb = schedule.paused ? "resume" : "pause";
  return html`<span class="row">
    <${Act} disabled=${!allowed} why=${WHY} does=${() => request("POST", `${path}/${verb}`)} done=${reload}>${verb}<//>
    <${Act} disabled=${!allowed} why=${WHY} does=${() => request("POST", `${path}/trigger`, { headers: { "Idempotency-Key": fresh() } })}
      done=${(run) => go(`runs/${run.id}`)}>run now<//>
  </span>`;
}

/** The state of a schedule. */
export function State({ schedule }) {
  if (schedule.paused) return html`<${Status} status="paused" />`;
  if (schedule.waiting) return html`<${Status} status="queued" word="waits" detail="for a worker" />`;
  if (schedule.waiting_since) return html`<${Status} status="queued" word="waits" detail="for the run before" />`;
  return html`<${Status} status="idle" word="planned" />`;
}

export default function Schedules() {
  const { data, problem, reload } = useLive((signal) => listAll("v1/schedules", { limit: 100 }, 1000, signal), [], 15_000);
  const columns = [
    ["schedule", (schedule) => html`<${To} path=${`schedules/${schedule.name}`}>${schedule.name}<//>`],
    ["when", timing],
    ["state", (schedule) => html`<${State} schedule=${schedule} />`],
    ["next", (schedule) => html`<${Time} at=${schedule.next_at} />`],
    ["last run", (schedule) => schedule.last_run_id && html`<${Id} id=${schedule.last_run_id} path=${`runs/${schedule.last_run_id}`} />`],
    ["changed by", (schedule) => schedule.updated_by ?? "–"],
    ["do", (schedule) => html`<${Buttons} schedule=${schedule} reload=${reload} />`],
  ];
  return html`<h1>Schedules</h1><${Trouble} problem=${problem} waits=${!data} />
    ${data && html`<${Table} label="Schedules" rows=${data} keyOf=${(schedule) => schedule.name} columns=${columns} height=${46}
      empty="There is no schedule: palaver schedules put NAME, or PUT /v1/schedules/NAME." />`}`;
}
