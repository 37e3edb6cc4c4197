// The table of all pages. It names every page, so nothing that a page uses may import it.

/**
 * One line a page: its path (`:name` is a part), its name in the navigation (null: not there), the scopes of which one
 * is needed, and its module, whose default is a component that gets {params, query}. A module is loaded when it is
 * first looked at. Behind it stands the feature that a page is of: a server without that, or where that is off, leaves
 * out line and module.
 */
export const PAGES = [
  ["runs", "Runs", ["runs:read"], () => import("./pages/runs.js")],
  ["runs/:id", null, ["runs:read"], () => import("./pages/run.js")],
  ["actions", "Actions", ["runs:read"], () => import("./pages/actions.js")],
  ["conversations", "Conversations", ["runs:read"], () => import("./pages/conversations.js")],
  ["conversations/:id", null, ["runs:read"], () => import("./pages/conversation.js")],
  ["playground", "Playground", ["runs:submit"], () => import("./pages/playground.js")],
  ["agents", "Agents", ["runs:read"], () => import("./pages/agents.js")],
  ["agents/:name", null, ["runs:read"], () => import("./pages/agent.js")],
  ["schedules", "Schedules", ["runs:read"], () => import("./pages/schedules.js"), "schedules"],
  ["schedules/:name", null, ["runs:read"], () => import("./pages/schedule.js"), "schedules"],
  ["batches", "Batches", ["runs:read"], () => import("./pages/batches.js"), "batches"],
  ["batches/:id", null, ["runs:read"], () => import("./pages/batch.js"), "batches"],
  ["webhooks", "Webhooks", ["webhooks:write"], () => import("./pages/webhooks.js"), "webhooks"],
  ["webhooks/:id", null, ["webhooks:write"], () => import("./pages/webhook.js"), "webhooks"],
  ["fleet", "Queues and workers", ["runs:read"], () => import("./pages/fleet.js")],
  ["archive", "Archive", ["runs:read"], () => import("./pages/archive.js"), "archive"],
  ["tools", "Tools and models", ["runs:read"], () => import("./pages/tools.js")],
  ["statistics", "Statistics", ["usage:read"], () => import("./pages/statistics.js"), "statistics"],
  ["usage", "Usage", ["usage:read"], () => import("./pages/usage.js")],
  ["tenants", "Tenants", ["admin"], () => import("./pages/tenants.js")],
  ["keys", "Keys", ["admin"], () => import("./pages/keys.js")],
  ["audit", "Audit", ["admin"], () => import("./pages/audit.js")],
];
