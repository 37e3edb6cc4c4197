// Times, as seen from now: one clock for all of them, which stands still while the page is hidden.
import { html, useEffect, useState } from "./html.js";

const watchers = new Set();
let timer = null;

function tick() {
  watchers.forEach((tell) => tell(Date.now()));
}

function wind() {
  const wanted = watchers.size > 0 && !document.hidden;
  if (wanted && timer === null) timer = setInterval(tick, 1000);
  else if (!wanted && timer !== null) timer = void clearInterval(timer) ?? null;
}

document.addEventListener("visibilitychange", () => {
  wind();
  if (!document.hidden) tick();
});

/** The time now, each second anew. */
export function useNow() {
  const [now, see] = useState(Date.now);
  useEffect(() => {
    watchers.add(see);
    wind();
    return () => {
      watchers.delete(see);
      wind();
    };
  }, []);
  return now;
}

const SIZES = [["d", 86_400], ["h", 3_600], ["min", 60]];

/** A duration in words: "850 ms", "2.4 s", "3 min 5 s", "2 d 4 h". */
export function duration(milliseconds) {
  const seconds = Math.abs(milliseconds) / 1000;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const place = SIZES.findIndex(([, size]) => seconds >= size);
  const [name, size] = SIZES[place];
  const [small, unit] = SIZES[place + 1] ?? ["s", 1];
  const rest = Math.floor((seconds % size) / unit);
  return `${Math.floor(seconds / size)} ${name}${rest ? ` ${rest} ${small}` : ""}`;
}

/** A moment as seen from another: "3 min ago", "in 20 s", "now". */
export function relative(at, now) {
  const distance = Date.parse(at) - now;
  if (Math.abs(distance) < 1000) return "now";
  const whole = duration(Math.round(distance / 1000) * 1000).replace(/\.0 s$/, " s").replace(/^(\d+ (?:d|h|min)) .*/, "$1");
  return distance < 0 ? `${whole} ago` : `in ${whole}`;
}

/** A moment: relative, and absolute to who points at it. `past`: what stands there once it is over. */
export function Time({ at, past }) {
  const now = useNow();
  if (!at) return html`<span class="faint">–</span>`;
  return html`<time datetime=${at} title=${absolute(at)}>${past && Date.parse(at) <= now ? past : relative(at, now)}</time>`;
}

/** A moment in full, here and in UTC. */
export function absolute(at) {
  const moment = new Date(at);
  return `${moment.toLocaleString()} (${moment.toISOString()})`;
}

/** The time since a moment, counting; or until another one, if that is known. */
export function Lasting({ from, to }) {
  const now = useNow();
  if (!from) return html`<span class="faint">–</span>`;
  const title = `${absolute(from)} – ${to ? absolute(to) : "now"}`;
  const long = (to ? Date.parse(to) : now) - Date.parse(from);
  return html`<span title=${title}>${duration(Math.max(to ? long : Math.floor(long / 1000) * 1000, 0))}</span>`;
}
