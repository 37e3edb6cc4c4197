// Pages, and where we are: behind the # of the address, which no server sees. Every filter is a part of it.
import { useEffect, useState } from "./html.js";

/**
 * One line a page: its path (`:name` is a part), its name in the navigation (null: not there), the scopes of which one
 * is needed, and its module, whose default is a component that gets {params, query}. A module is loaded when it is
 * first looked at.
 */
export const PAGES = [
  ["runs", "Runs", ["runs:read"], () => import("../pages/runs.js")],
  ["runs/:id", null, ["runs:read"], () => import("../pages/run.js")],
  ["actions", "Actions", ["runs:read"], () => import("../pages/actions.js")],
  ["conversations", "Conversations", ["runs:read"], () => import("../pages/conversations.js")],
  ["conversations/:id", null, ["runs:read"], () => import("../pages/conversation.js")],
  ["playground", "Playground", ["runs:submit"], () => import("../pages/playground.js")],
  ["agents", "Agents", ["runs:read"], () => import("../pages/agents.js")],
  ["agents/:name", null, ["runs:read"], () => import("../pages/agent.js")],
  ["schedules", "Schedules", ["runs:read"], () => import("../pages/schedules.js")],
  ["schedules/:name", null, ["runs:read"], () => import("../pages/schedule.js")],
  ["batches", "Batches", ["runs:read"], () => import("../pages/batches.js")],
  ["batches/:id", null, ["runs:read"], () => import("../pages/batch.js")],
  ["webhooks", "Webhooks", ["webhooks:write"], () => import("../pages/webhooks.js")],
  ["webhooks/:id", null, ["webhooks:write"], () => import("../pages/webhook.js")],
  ["fleet", "Queues and workers", ["runs:read"], () => import("../pages/fleet.js")],
  ["tools", "Tools and models", ["runs:read"], () => import("../pages/tools.js")],
  ["statistics", "Statistics", ["usage:read"], () => import("../pages/statistics.js")],
  ["usage", "Usage", ["usage:read"], () => import("../pages/usage.js")],
  ["tenants", "Tenants", ["admin"], () => import("../pages/tenants.js")],
  ["keys", "Keys", ["admin"], () => import("../pages/keys.js")],
  ["audit", "Audit", ["admin"], () => import("../pages/audit.js")],
];

/** A part of an address that leads to nothing but itself in an address of the API. */
const NAME = /^(?!\.{1,2}$)[^\\/?#%]+$/;

/** The page to begin with. */
export const FIRST = "runs";

/** An address of a page, for a link. Empty values are left out. */
export function href(path, query = {}) {
  const kept = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = new URLSearchParams(kept.map(([name, value]) => [name, String(value)])).toString();
  return `#/${path.split("/").map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
}

/** Go to a page. */
export function go(path, query) {
  location.hash = href(path, query);
}

/** Change some filters; the way back leads to the page before, not through each letter that was typed. */
export function setQuery(changes) {
  const { path, query } = here();
  history.replaceState(null, "", href(path, { ...query, ...changes }));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

function here() {
  const [path, search] = location.hash.replace(/^#\/?/, "").split("?");
  return { path: safely(path) || FIRST, query: Object.fromEntries(new URLSearchParams(search ?? "")) };
}

function safely(path) {
  try {
    return path.split("/").map(decodeURIComponent).join("/");
  } catch {
    return "";
  }
}

/** The page at a path and the parts of that, or null. */
export function match(path) {
  const parts = path.split("/");
  for (const page of PAGES) {
    const wanted = page[0].split("/");
    if (wanted.length !== parts.length) continue;
    if (wanted.every((part, place) => part.startsWith(":") ? NAME.test(parts[place]) : part === parts[place])) {
      const named = wanted.map((part, place) => [part.slice(1), parts[place], part.startsWith(":")]);
      return { page, params: Object.fromEntries(named.filter((each) => each[2])) };
    }
  }
  return null;
}

/** Where we are: {path, query}. */
export function useRoute() {
  const [route, see] = useState(here);
  useEffect(() => {
    const moved = () => see(here());
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  return route;
}
