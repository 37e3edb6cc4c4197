// Elements of templates: what all other modules draw with. Text that is put into one stays text.
import htm from "../vendor/htm/htm.mjs";
import { h } from "../vendor/preact/preact.mjs";

export { render } from "../vendor/preact/preact.mjs";
export { useEffect, useErrorBoundary, useLayoutEffect, useMemo, useRef, useState } from "../vendor/preact/hooks.mjs";

/** Draw a template. */
export const html = htm.bind(h);
