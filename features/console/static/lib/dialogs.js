// One dialog at a time, over everything: the browser's own, so that focus and Escape are as people expect.
import { html, useEffect, useRef, useState } from "./html.js";

let tell = () => {};

/** Show something in a dialog until it is closed. */
export function openDialog(content) {
  tell(content);
}

/** Close the dialog. */
export function closeDialog() {
  tell(null);
}

/** The place of the dialog, once a page. */
export function DialogPlace() {
  const [content, set] = useState(null);
  const place = useRef(null);
  const ours = useRef(false);
  tell = set;
  useEffect(() => {
    if (content && !place.current.open) place.current.showModal();
    if (!content && place.current.open) {
      ours.current = true;
      place.current.close();
    }
  }, [content]);
  // The browser says it late: by then there may be another one, unless it was the user's Escape.
  function closed() {
    if (!ours.current) set(null);
    ours.current = false;
  }
  return html`<dialog ref=${place} onClose=${closed} aria-label="Dialog">
    ${content}${content && html`<button class="close" onClick=${closeDialog} aria-label="Close">×</button>`}
  </dialog>`;
}

/** A button whose work takes a while: it says so, cannot be pressed twice, and shows what went wrong. */
export function Act({ children, does, done, disabled, why, kind = "" }) {
  const [state, set] = useState({ busy: false, problem: null });
  async function press(event) {
    event.preventDefault();
    set({ busy: true, problem: null });
    try {
      const result = await does();
      set({ busy: false, problem: null });
      done?.(result);
    } catch (problem) {
      set({ busy: false, problem });
    }
  }
  return html`<span class="act">
    <button class=${kind} onClick=${press} disabled=${disabled || state.busy} title=${disabled ? why : undefined}
      aria-busy=${state.busy}>${children}</button>
    ${state.problem && html`<span class="problem" role="alert">${state.problem.message}</span>`}
  </span>`;
}

/** Ask once more before something that cannot be taken back. */
export function confirm({ title, text, does, label, done }) {
  openDialog(html`<h2>${title}</h2><p>${text}</p>
    <${Act} kind="danger" does=${does} done=${(result) => { closeDialog(); done?.(result); }}>${label}<//>`);
}
