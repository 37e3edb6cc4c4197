// What a run does or waits for, and what to do next, in a sentence each.
import { html } from "./html.js";
import { Id } from "./parts.js";
import { line } from "./text.js";
import { Time } from "./time.js";

const ADVICE = {
  retry: "Retry it.",
  settings: "Mend the settings: a key, a model or a limit. Then retry it.",
  wait: "Wait until the cause is over, then retry it.",
  fix_input: "Change the input or the agent, then retry or fork it. A message that its provider refuses for good can be taken back in the conversation.",
  none: "",
};
const LIMITS = {
  max_steps: "Fork it, or retry it with an agent that may take more steps.",
  max_tokens: "Retry it with an agent that may answer at greater length.",
  budget: "Retry it: it gets a budget of its own.",
  content_filter: "Change what was asked, then fork it.",
  conversation_full: "Go on in a new conversation, or fork it from an earlier step.",
};

function until(at) {
  return at ? html` until <${Time} at=${at} />` : "";
}

const WAITS = {
  backoff: (wait) => [html`Waits after a failure (${wait.error_class ?? wait.code})${until(wait.until)}.`, "Nothing: it tries again by itself."],
  provider_cooldown: (wait) => [html`Its provider asked for fewer requests: waits${until(wait.until)}.`, "Nothing, or another provider as a fallback."],
  service_cooldown: (wait) => [html`What its tool calls asked for fewer requests: waits${until(wait.until)}.`, "Nothing: it goes on by itself."],
  no_worker: (wait) => [html`No worker has what it needs${wait.code ? ` (${wait.code})` : ""}.`, "Start a worker that has it: a provider's key, a tool, a queue."],
  conversation_busy: (wait) => [html`Waits for another run of its conversation${wait.run_id ? html`: <${Id} id=${wait.run_id} path=${`runs/${wait.run_id}`} />` : ""}.`, "Nothing, or cancel that one."],
  scheduled: (wait) => [html`Is to begin ${html`<${Time} at=${wait.until} />`}.`, "Nothing."],
  tenant_limit: (wait) => [`Waits for its turn${wait.position ? `, at place ${wait.position}` : ""}: its tenant is at a limit.`, "Nothing, or raise the limit of the tenant."],
  approval: () => ["Waits for a decision.", "Approve or deny below."],
  client_tool: () => ["Waits for the output of a tool that its client runs.", "The client sends it, or you do below."],
  question: () => ["Waits for an answer.", "Answer below."],
  remote_task: (wait) => [html`Waits for a task at another server${until(wait.until)}.`, "Nothing: it is asked again."],
  agent_run: (wait) => [html`Waits for a run below it${wait.run_id ? html`: <${Id} id=${wait.run_id} path=${`runs/${wait.run_id}`} />` : ""}.`, "Look at that run."],
  store: (wait) => [`Waits until Redis takes writes again: ${NOT_WRITTEN[wait.code] ?? wait.code}.`, "See to Redis: nothing goes on meanwhile, and nothing is lost."],
};
const NOT_WRITTEN = { memory: "it is out of memory", disk: "it cannot write to its disk", replica: "it is a replica", replicas: "it has too few replicas" };

function working(run) {
  const [step] = run.current_steps;
  if (!step) return ["Is about to go on.", ""];
  const more = run.current_step_count > 1 ? ` and ${run.current_step_count - 1} more` : "";
  const what = step.kind === "model" ? `Asks ${run.model}` : `Runs ${step.name}${more}`;
  const again = step.attempt > 1 ? `, attempt ${step.attempt}${step.max_attempts ? ` of ${step.max_attempts}` : ""}` : "";
  const failed = step.last_failure ? html` The one before: ${step.last_failure.error_class}, ${line(step.last_failure.message, 160)}` : "";
  if (step.state === "ready") return [html`Waits for a worker of the queue ${step.queue} since <${Time} at=${step.since} />.`, "If that lasts: look at the queues and workers."];
  return [html`${what}${again}, since <${Time} at=${step.since} />${step.worker ? html` at <code>${step.worker}</code>` : ""}.${failed}`, ""];
}

/** [what is, what to do]. */
export function situation(run) {
  if (run.error) return [html`${run.error.class}: ${line(run.error.message, 600)}`, ADVICE[run.error.user_action] ?? ""];
  switch (run.status) {
    case "completed": return ["The model has ended its turn.", ""];
    case "incomplete": return [line(run.incomplete_details?.message ?? `Stopped by ${run.stop_reason}.`, 600), LIMITS[run.stop_reason] ?? ""];
    case "cancelled": return [html`Stopped${run.cancel?.by ? ` by ${run.cancel.by}` : ""}${run.cancel?.reason ? html`: ${line(run.cancel.reason, 300)}` : ""}.`, ""];
    case "expired": return ["Its time was over before it had ended.", "Retry it with a later deadline."];
    case "cancelling": return ["A worker is still letting go.", "Nothing: it ends in seconds."];
    case "paused": return ["Nothing of it is under way.", "Resume it."];
    default:
  }
  if (run.pausing) return ["Is to pause: what is under way ends first.", ""];
  if (run.waiting) return WAITS[run.waiting.reason]?.(run.waiting) ?? [`Waits: ${run.waiting.reason}.`, ""];
  if (run.pending_below.length) return ["A run below it waits for a decision.", "Answer below."];
  if (run.status === "queued") return ["Waits for a worker.", "If that lasts: look at the queues and workers."];
  return working(run);
}

/** True if a run has ended. */
export function ended(run) {
  return ["completed", "incomplete", "failed", "cancelled", "expired"].includes(run.status);
}
