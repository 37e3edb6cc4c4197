// A list that may be long: the newest page and as many behind it as were asked for, all of them read again and
// again, one behind the other. So what is on the screen is true, no entry is missing between two pages, and however
// many there are, a page holds a bounded part of them and asks for one part after the other at an even pace.
import { html, useRef } from "./html.js";
import { request, useLive } from "./api.js";
import { Act } from "./dialogs.js";
import { To, count } from "./parts.js";
import { setQuery } from "./router.js";
import { line } from "./text.js";
import { duration, useNow } from "./time.js";

const FIRST = 50;
const PAGE = 200;
const MOST_PAGES = 10;
const FRESH = 5000;

/** The most entries that a page holds. */
export const MOST = FIRST + (MOST_PAGES - 1) * PAGE;
/** All that a page may hold, from the beginning. */
export const ALL_PAGES = MOST_PAGES;

async function read(path, query, pages, signal) {
  const rows = [];
  for (let page = 1, cursor; ; page += 1) {
    const told = await request("GET", path, { query: { ...query, limit: page === 1 ? FIRST : PAGE, cursor }, signal });
    rows.push(...told.data);
    cursor = told.next_cursor;
    if (!cursor || page === pages) return { rows, pages: page, goesOn: Boolean(cursor) };
  }
}

/**
 * The newest entries of a list, kept as they are: {rows, loaded, problem, goesOn, more, at}. `asked()` are its filters,
 * which change with `on`. `more()` takes one more page from now on, and is null where there is none, or no place for it.
 */
export function useList(path, asked, on, { every = 3000, pages = 1 } = {}) {
  const wanted = useRef(null);
  const filters = JSON.stringify([on, pages]);
  if (wanted.current?.filters !== filters) wanted.current = { filters, pages };
  const { data, problem, reload, at } = useLive(
    (signal) => read(path, asked(), wanted.current.pages, signal), [filters], (found) => every * (found?.pages ?? 1));
  const goesOn = data?.goesOn ?? false;
  const more = goesOn && data.pages < MOST_PAGES ? () => {
    wanted.current.pages = data.pages + 1;
    return reload();
  } : null;
  return { rows: data?.rows ?? [], loaded: data !== null, problem, goesOn, more, at };
}

/** How many entries are shown, of how many, and how old that is where it is no news. */
export function Extent({ list }) {
  const now = useNow();
  const old = now - list.at();
  return html`<span class="faint"><span role="status">${list.goesOn ? `the newest ${count(list.rows.length)}` : `${count(list.rows.length)} in all`}</span>${
    old > FRESH ? `, as of ${duration(Math.floor(old / 1000) * 1000)} ago` : ""}</span>`;
}

/** The filters of a `query`, of those with these names, that no field of a form shows: each may be taken away. */
export function Chips({ query, names }) {
  const set = names.filter((name) => query[name]);
  return set.length > 0 && html`<p class="row">${set.map((name) => html`<button class="small" key=${name} onClick=${() => setQuery({ [name]: "" })}
    aria-label=${`Without ${name}`}>${name}: ${line(query[name], 40)} ×</button>`)}</p>`;
}

/** The way on: one more page, or, where there is no place for it, the list behind the last entry, with that `query`. */
export function Older({ list, path, query }) {
  if (list.more) return html`<p><${Act} does=${list.more}>Older ones<//></p>`;
  return list.goesOn && query && html`<p><${To} path=${path} query=${query}>Older than these<//></p>`;
}
