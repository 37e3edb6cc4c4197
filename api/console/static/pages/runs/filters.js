// Filters of runs, as they stand in the address, as a list takes them and as an act on many does.

export const STATUSES = ["queued", "running", "requires_action", "paused", "cancelling", "completed", "incomplete", "failed", "cancelled", "expired"];
export const ERRORS = [
  "rate_limited", "provider_error", "connection", "timeout", "quota_exhausted", "authentication", "permission", "not_found",
  "invalid_request", "context_window", "invalid_output", "tool_error", "worker_lost", "no_worker", "storage", "internal",
];
/** Times since when: the words, and the seconds. */
export const TIMES = {
  "15m": ["in 15 minutes", 900], "1h": ["in the last hour", 3600], "24h": ["in the last day", 86_400], "7d": ["in the last week", 604_800],
};
const TEXTS = [
  "stop_reason", "conversation_id", "parent", "submitted_by", "agent", "tag", "provider", "model", "tool", "error_class", "error_code",
  "created_after", "created_before", "ended_after", "ended_before",
];

/** The parameters of a list. */
export function asked(query) {
  const { since, ...rest } = query;
  const named = Object.entries(rest).filter(([name]) => [...TEXTS, "status", "metadata", "retried"].includes(name));
  const seconds = TIMES[since]?.[1];
  return { ...Object.fromEntries(named), ...(seconds && { created_after: new Date(Date.now() - seconds * 1000).toISOString() }) };
}

/** The filter of an act on many runs; null if it admits all. */
export function filterOf(query) {
  const filter = Object.fromEntries(Object.entries(asked(query)).filter(([name, value]) => value && TEXTS.includes(name)));
  if (query.status) filter.status = query.status.split(",");
  if (query.retried) filter.retried = query.retried === "true";
  if (query.metadata) filter.metadata = Object.fromEntries(query.metadata.split(",").map((pair) => [pair.split("=")[0], pair.slice(pair.indexOf("=") + 1)]));
  return Object.keys(filter).length ? filter : null;
}
