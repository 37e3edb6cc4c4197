// Filters of runs, as they stand in the address, as a list takes them and as an act on many does.

export const STATUSES = ["queued", "running", "requires_action", "paused", "cancelling", "completed", "incomplete", "failed", "cancelled", "expired"];
export const ERRORS = [
  "rate_limited", "provider_error", "connection", "timeout", "quota_exhausted", "authentication", "permission", "not_found",
  "invalid_request", "context_window", "invalid_output", "worker_lost", "no_worker", "storage", "internal",
];
const ago = (seconds) => () => Date.now() - seconds * 1000;
/** Times since when: the words, and the moment. */
export const TIMES = {
  "15m": ["in 15 minutes", ago(900)], "1h": ["in the last hour", ago(3600)], "today": ["today", () => new Date().setHours(0, 0, 0, 0)],
  "24h": ["in the last day", ago(86_400)], "7d": ["in the last week", ago(604_800)],
};
/** Orders other than that of time: the words, and the number by which. */
export const ORDERS = {
  cost: ["dearest first", (run) => run.usage.cost_usd ?? 0],
  tokens: ["most tokens", (run) => run.usage.input_tokens + run.usage.output_tokens],
  time: ["longest first", (run) => (run.times.started_at ? Date.parse(run.times.ended_at ?? new Date().toISOString()) - Date.parse(run.times.started_at) : 0)],
};
/** What people look for most: the words, and the filters. */
export const SHORTCUTS = [
  ["All", {}],
  ["Failed in the last hour", { status: "failed", ended: "1h" }],
  ["Waiting", { status: "queued,requires_action,paused" }],
  ["Under way", { status: "running,cancelling" }],
  ["Dearest of today", { since: "today", by: "cost" }],
];
const TEXTS = [
  "stop_reason", "conversation_id", "parent", "submitted_by", "agent", "tag", "provider", "model", "tool", "error_class", "error_code",
  "created_after", "created_before", "ended_after", "ended_before",
];

/** The parameters of a list. */
export function asked(query) {
  const { since, ended, ...rest } = query;
  const named = Object.entries(rest).filter(([name]) => [...TEXTS, "status", "metadata", "retried"].includes(name));
  const from = (name) => TIMES[name] && new Date(TIMES[name][1]()).toISOString();
  const times = Object.entries({ created_after: from(since), ended_after: from(ended) }).filter(([, at]) => at);
  return { ...Object.fromEntries(named), ...Object.fromEntries(times) };
}

/** The times between which the filters admit runs of any status; null if they ask for more than that. */
export function timesOf({ status, by, ...query }) {
  const { created_after, created_before, ...more } = asked(query);
  return Object.values(more).some(Boolean) ? null : { created_after, created_before };
}

/** The filter of an act on many runs; null if it admits all. */
export function filterOf(query) {
  const filter = Object.fromEntries(Object.entries(asked(query)).filter(([name, value]) => value && TEXTS.includes(name)));
  if (query.status) filter.status = query.status.split(",");
  if (query.retried) filter.retried = query.retried === "true";
  if (query.metadata) filter.metadata = Object.fromEntries(query.metadata.split(",").map((pair) => [pair.split("=")[0], pair.slice(pair.indexOf("=") + 1)]));
  return Object.keys(filter).length ? filter : null;
}
