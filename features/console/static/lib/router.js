// Where we are: behind the # of the address, which no server sees. Every filter is a part of it. The pages use this, so
// it does not know them: who draws them hands their table in.
import { useEffect, useState } from "./html.js";

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

/** The one of these pages at a path and the parts of that, or null. Each page begins with its path: `:name` is a part. */
export function match(pages, path) {
  const parts = path.split("/");
  for (const page of pages) {
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
