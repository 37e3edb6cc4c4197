// The frame of all pages: who looks, where to go, and the page at the address.
import { html, render, useEffect, useErrorBoundary, useState } from "./lib/html.js";
import { Act, DialogPlace } from "./lib/dialogs.js";
import "./lib/keys.js";
import { To } from "./lib/parts.js";
import { FIRST, go, match, useRoute } from "./lib/router.js";
import { may, signOut, useSession } from "./lib/session.js";
import { open, signIn } from "./lib/sign_in.js";
import { PAGES } from "./pages.js";

const modules = new Map();

function SignIn({ why }) {
  const [pasted, paste] = useState("");
  return html`<main class="sign-in">
    <h1>Palaver</h1>
    ${why && html`<p role="status">${why}</p>`}
    <form onSubmit=${(event) => event.preventDefault()}>
      <label>API key or token
        <input type="password" name="key" autocomplete="off" spellcheck=${false} required autofocus
          onInput=${(event) => paste(event.target.value)} /></label>
      <${Act} kind="main" disabled=${!pasted.trim()} does=${() => signIn(pasted.trim())}>Sign in<//>
    </form>
    <p class="faint">It stays in this tab, for 12 hours at most, and is sent to this API alone.</p>
  </main>`;
}

function Page({ found, query }) {
  const { page, params } = found;
  const [, , scopes, load] = page;
  const [loaded, see] = useState(modules.get(page));
  const [broken, mend] = useErrorBoundary();
  useEffect(() => {
    const known = modules.get(page);
    see(() => known);
    if (known) return;
    load().then(
      (module) => {
        modules.set(page, module.default);
        see(() => module.default);
      },
      () => see(() => Newer),
    );
  }, [page]);
  if (broken) {
    return html`<p class="problem" role="alert">This page has a fault: ${String(broken.message)}</p>
      <button onClick=${mend}>Draw it again</button>`;
  }
  if (!may(...scopes)) return html`<p class="problem" role="alert">Your key has none of the rights ${scopes.join(", ")}, which this page needs.</p>`;
  const Shown = modules.get(page) ?? loaded;
  return Shown ? html`<${Shown} key=${JSON.stringify(params)} params=${params} query=${query} />` : html`<p class="faint">Loading…</p>`;
}

function Newer() {
  return html`<p class="problem" role="alert">The server has a newer console, or does not answer.</p>
    <button onClick=${() => location.reload()}>Load it again</button>`;
}

function Navigation({ path, caller, keyed }) {
  const whole = caller.conversation === null;
  return html`<nav aria-label="Pages">
    <strong>Palaver</strong>
    <ul>${PAGES.filter(([, name, scopes]) => name && whole && may(...scopes)).map(([to, name]) => html`<li key=${to}>
      <${To} path=${to} aria-current=${path.split("/")[0] === to ? "page" : undefined}>${name}<//></li>`)}</ul>
    <div class="who">
      <span class="faint">${caller.name ?? (keyed ? "a key without a name" : "no key")}${caller.tenant && caller.tenant !== "default" ? `, ${caller.tenant}` : ""}</span>
      ${keyed && html`<button class="small" onClick=${() => signOut()}>Sign out</button>`}
    </div>
  </nav>`;
}

function App() {
  const session = useSession();
  const { path, query } = useRoute();
  const found = match(PAGES, path);
  useEffect(() => {
    document.title = `${found?.page[1] ?? path} · Palaver`;
  }, [path]);
  useEffect(() => {
    // A token of one conversation opens no list.
    const only = session.caller?.conversation;
    if (only && path === FIRST) go(`conversations/${only}`);
  }, [session, path]);
  useEffect(() => {
    if (session.state !== "away") return undefined;
    const timer = setTimeout(open, 2000);
    return () => clearTimeout(timer);
  }, [session]);
  if (session.state === "asking") return html`<main class="sign-in"><p class="faint">Loading…</p></main>`;
  if (session.state === "away") return html`<main class="sign-in"><p class="problem" role="alert">${session.why}</p></main>`;
  if (session.state === "out") return html`<${SignIn} why=${session.why} />`;
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.querySelector("main").focus(); }}>To the page</a>
    <${Navigation} path=${path} caller=${session.caller} keyed=${session.keyed} />
    <main id="main" tabindex="-1">
      ${found ? html`<${Page} key=${found.page[0]} found=${found} query=${query} />`
        : html`<p>There is no such page. <${To} path=${FIRST}>To the first one<//></p>`}
    </main>
    <${DialogPlace} />`;
}

render(html`<${App} />`, document.querySelector("#app"));
open();
