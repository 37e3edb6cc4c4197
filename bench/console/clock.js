// A clock of the page's own: its hours pass as fast as their work is done. Each timer fires at its time, in order, and
// time stands still while a request is under way, so that a night has all the ticks, requests and drawings of a night.
(() => {
  const plain = { Date, setTimeout: window.setTimeout.bind(window), fetch: window.fetch.bind(window) };
  const BEAT = 15_000; // how often the API says something on a stream that has no news
  const COMMENT = new TextEncoder().encode(": \n\n");
  const timers = new Map();
  const asked = [];
  let now = plain.Date.now();
  let next = 1;
  let under = 0;
  const streams = new Set();

  window.Date = class extends plain.Date {
    constructor(...given) {
      super(...(given.length ? given : [now]));
    }
    static now() {
      return now;
    }
  };

  function add(act, wait, every) {
    timers.set(next, { at: now + Math.max(Number(wait) || 0, 0), every, act });
    return next++;
  }
  window.setTimeout = (act, wait, ...given) => add(() => act(...given), wait, null);
  window.setInterval = (act, wait, ...given) => add(() => act(...given), wait, Math.max(Number(wait) || 0, 1));
  window.clearTimeout = window.clearInterval = (id) => void timers.delete(id);
  AbortSignal.timeout = (wait) => {
    const late = new AbortController();
    setTimeout(() => late.abort(new DOMException("late", "TimeoutError")), wait);
    return late.signal;
  };

  function beating(body, signal, address) {
    streams.add(address);
    const way = new TransformStream();
    const writer = way.writable.getWriter();
    const beat = setInterval(() => void writer.write(COMMENT).catch(() => clearInterval(beat)), BEAT);
    const stop = () => {
      clearInterval(beat);
      streams.delete(address);
    };
    signal?.addEventListener("abort", stop);
    (async () => {
      const reader = body.getReader();
      try {
        for (;;) {
          const { value, done } = await reader.read();
          if (done) break;
          await writer.write(value);
        }
        await writer.close();
      } catch (error) {
        await writer.abort(error).catch(() => undefined);
      }
      stop();
      signal?.removeEventListener("abort", stop);
    })();
    return way.readable;
  }

  window.fetch = async (address, options = {}) => {
    asked.push({ at: now, address: String(address), accept: options.headers?.Accept ?? "" });
    if (asked.length > 20_000) asked.splice(0, 10_000);
    window.requests = (window.requests ?? 0) + 1;
    under += 1;
    try {
      const answer = await plain.fetch(address, options);
      const { status, headers } = answer;
      if (headers.get("content-type")?.startsWith("text/event-stream")) return new Response(beating(answer.body, options.signal, String(address)), { status, headers });
      return new Response(status === 204 || status === 304 ? null : await answer.arrayBuffer(), { status, headers });
    } finally {
      under -= 1;
    }
  };

  /** Wait for what has begun: for the work of this moment, and for the answers to what it has asked. */
  async function settled() {
    do {
      await new Promise((done) => {
        const way = new MessageChannel();
        way.port1.onmessage = () => done(way.port1.close());
        way.port2.postMessage(null);
      });
      if (under) await new Promise((done) => plain.setTimeout(done, 1));
    } while (under);
  }

  function first(until) {
    let found = null;
    for (const [id, timer] of timers) if (timer.at <= until && (!found || timer.at < found[1].at)) found = [id, timer];
    return found;
  }

  /** Have so many milliseconds pass, or as many as there is time for; return what is left of them. */
  window.pass = async (span, within) => {
    const end = now + span;
    const began = performance.now();
    for (let due = first(end); due; due = first(end)) {
      const [id, timer] = due;
      now = Math.max(now, timer.at);
      if (timer.every) timer.at += timer.every;
      else timers.delete(id);
      timer.act();
      await settled();
      if (performance.now() - began > within) return end - now;
    }
    now = end;
    return 0;
  };
  window.streams = () => [...streams];
  window.asked = (since) => asked.filter((each) => each.at >= now - since).map((each) => ({ ...each, at: each.at - (now - since) }));
})();
