// Plots over time, in SVG: bars on top of each other, or lines. What a plot shows stands in a table below it, too.
import { html, useState } from "./html.js";

const WIDTH = 640;
const HEIGHT = 150;
const LEFT = 70;
const BOTTOM = 18;
const TOP = 8;
const MARKS = 3;

/** The least number of the form 1, 2 or 5 times a power of ten that is not below another. */
export function ceiling(number) {
  if (!(number > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(number));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= number * (1 - 1e-9));
}

function clock(at, span) {
  const moment = new Date(at);
  return span >= 3600 ? moment.toLocaleDateString([], { weekday: "short", hour: "2-digit" })
    : moment.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

function Axes({ most, words, times, span, across }) {
  const up = [0, 0.5, 1].map((part) => [TOP + (1 - part) * (HEIGHT - TOP - BOTTOM), words(part * most)]);
  const places = Array.from({ length: MARKS }, (_, place) => Math.round((place * (times.length - 1)) / (MARKS - 1)));
  return html`${up.map(([y, text]) => html`<g key=${y}><line class="grid" x1=${LEFT} x2=${WIDTH} y1=${y} y2=${y} />
      <text x=${LEFT - 6} y=${y + 4} text-anchor="end">${text}</text></g>`)}
    ${places.map((place, number) => html`<text key=${number} x=${across(place)} y=${HEIGHT - 4}
      text-anchor=${["start", "middle", "end"][number]}>${clock(times[place], span)}</text>`)}`;
}

function Bars({ series, times, height, across, wide, told }) {
  return times.map((at, place) => {
    let below = 0;
    const parts = series.map(({ name, values }, number) => {
      const value = values[place] ?? 0;
      const top = height(below + value);
      const part = value > 0 && html`<rect key=${name} class="series-${number % 8}" x=${across(place)} width=${wide}
        y=${top} height=${Math.max(height(below) - top, 0.5)} />`;
      below += value;
      return part;
    });
    return html`<g key=${at}><title>${told(place)}</title>
      <rect class="ground" x=${across(place)} width=${wide} y=${TOP} height=${HEIGHT - TOP - BOTTOM} />${parts}</g>`;
  });
}

function Lines({ series, height, across, wide, told }) {
  return series.map(({ name, values }, number) => {
    const points = values.map((value, place) => [place, value]).filter(([, value]) => value !== null && value !== undefined);
    const drawn = points.map(([place, value]) => `${across(place) + wide / 2},${height(value)}`).join(" ");
    return html`<g key=${name} class="line series-${number % 8}"><polyline points=${drawn} />
      ${points.map(([place, value]) => html`<circle key=${place} cx=${across(place) + wide / 2} cy=${height(value)} r="2.5"><title>${told(place)}</title></circle>`)}</g>`;
  });
}

/**
 * A plot. `times` are the beginnings of spans of `span` seconds, `series` are {name, values}, a value or null for each
 * of them; `words(value)` writes one. Bars stand on each other; `lines` do not.
 */
export function Plot({ title, times, span, series, words, lines = false }) {
  const [listed, list] = useState(false);
  const shown = series.filter(({ values }) => values.some((value) => value > 0));
  const sums = times.map((_, place) => shown.map(({ values }) => values[place] ?? 0).reduce((one, other) => (lines ? Math.max(one, other) : one + other), 0));
  const most = ceiling(Math.max(...sums, 0));
  const wide = (WIDTH - LEFT) / times.length;
  const across = (place) => LEFT + place * wide;
  const height = (value) => TOP + (1 - value / most) * (HEIGHT - TOP - BOTTOM);
  const told = (place) => [new Date(times[place]).toLocaleString(), ...shown.map(({ name, values }) => `${name}: ${words(values[place] ?? 0)}`)].join("\n");
  const Kind = lines ? Lines : Bars;
  return html`<figure class="plot"><figcaption><h2>${title}</h2>
      <ul>${shown.map(({ name }, number) => html`<li key=${name} class="series-${number % 8}">${name}</li>`)}</ul>
      ${shown.length > 0 && html`<button class="small" aria-expanded=${String(listed)} onClick=${() => list(!listed)}>as a table</button>`}</figcaption>
    ${shown.length === 0 ? html`<p class="empty">Nothing in this time.</p>` : html`
      <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label=${`${title}: ${shown.map(({ name }) => name).join(", ")}`}>
        <${Axes} most=${most} words=${words} times=${times} span=${span} across=${across} />
        <${Kind} series=${shown} times=${times} height=${height} across=${across} wide=${Math.max(wide - 1, 1)} told=${told} />
      </svg>`}
    ${listed && html`<div class="table" tabindex="0" role="region" aria-label=${`${title}, as a table`}><table>
      <thead><tr><th scope="col">from</th>${shown.map(({ name }) => html`<th scope="col" class="number">${name}</th>`)}</tr></thead>
      <tbody>${times.map((at, place) => sums[place] > 0 && html`<tr key=${at}><td>${new Date(at).toLocaleString()}</td>
        ${shown.map(({ name, values }) => html`<td key=${name} class="number">${words(values[place] ?? 0)}</td>`)}</tr>`)}</tbody></table></div>`}
  </figure>`;
}
