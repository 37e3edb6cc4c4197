// What became of runs and steps in the last hour, day or week.
import { html } from "../lib/html.js";
import { request, useLive } from "../lib/api.js";
import { Field, Trouble, count, money } from "../lib/parts.js";
import { Plot } from "../lib/plot.js";
import { setQuery } from "../lib/router.js";
import { useSession } from "../lib/session.js";
import { duration } from "../lib/time.js";

const WINDOWS = { hour: "the last hour", day: "the last day", week: "the last week" };
const ENDS = ["completed", "incomplete", "failed", "cancelled", "expired"];
const SECOND = 1000;
const KINDS = 8;

/** The spans of a window, each with its counts, or null where nothing happened. */
function spansOf(report) {
  const found = new Map(report.data.map((span) => [Date.parse(span.start), span]));
  const [from, to, length] = [Date.parse(report.start), Date.parse(report.end), report.span_seconds * SECOND];
  return Array.from({ length: Math.round((to - from) / length) }, (_, place) => [from + place * length, found.get(from + place * length) ?? null]);
}

/** A series for each name that counts have, the largest ones first; what is left of many is one together. */
function byName(spans, counts) {
  const sums = new Map();
  for (const [, span] of spans) for (const [name, value] of Object.entries(span ? counts(span) : {})) sums.set(name, (sums.get(name) ?? 0) + value);
  const names = [...sums].sort(([, one], [, other]) => other - one).map(([name]) => name);
  const [own, others] = names.length > KINDS ? [names.slice(0, KINDS - 1), names.slice(KINDS - 1)] : [names, []];
  const values = (wanted) => spans.map(([, span]) => (span ? wanted.reduce((all, name) => all + (counts(span)[name] ?? 0), 0) : 0));
  return [...own.map((name) => ({ name, values: values([name]) })), ...(others.length ? [{ name: `${others.length} others`, values: values(others) }] : [])];
}

function models(span, value) {
  return Object.fromEntries(span.models.map((model) => [model.model, value(model)]));
}

function percentiles(spans, name) {
  return ["p50", "p99"].map((percent) => ({ name: percent, values: spans.map(([, span]) => span?.[name][`${percent}_seconds`] ?? null) }));
}

function steps(span) {
  return Object.fromEntries(Object.entries(span.steps).map(([kind, outcomes]) => [kind, Object.values(outcomes).reduce((all, each) => all + each, 0)]));
}

function Totals({ total, seconds }) {
  const cost = total.models.reduce((all, model) => all + model.cost_usd, 0);
  const done = Object.values(steps(total)).reduce((all, each) => all + each, 0);
  const facts = [
    ["Runs submitted", count(total.runs.submitted)], ["completed", count(total.runs.completed)], ["failed", count(total.runs.failed)],
    ["Steps a second", (done / seconds).toFixed(2)], ["Queue time, p99", time(total.queue_time.p99_seconds)],
    ["Model calls, p50", time(total.model_calls.p50_seconds)], ["Cost", money(cost)],
  ];
  return html`<dl class="facts">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

function time(seconds) {
  return seconds === null || seconds === undefined ? "–" : duration(seconds * SECOND);
}

export default function Statistics({ query }) {
  const { caller } = useSession();
  const chosen = WINDOWS[query.window] ? query.window : "hour";
  const { data, problem } = useLive((signal) => request("GET", "v1/statistics", { query: { window: chosen, tenant: query.tenant }, signal }), [chosen, query.tenant], 10_000);
  const spans = data ? spansOf(data) : [];
  const times = spans.map(([at]) => at);
  const plot = (title, series, words, more) => html`<${Plot} key=${title} title=${title} times=${times} span=${data.span_seconds} series=${series} words=${words} ...${more} />`;
  const aSecond = (series) => series.map(({ name, values }) => ({ name, values: values.map((value) => value / data.span_seconds) }));
  return html`<h1>Statistics</h1><${Trouble} problem=${problem} waits=${!data} />
    <p class="row end">
      <label>Of<select value=${chosen} onChange=${(event) => setQuery({ window: event.target.value })}>
        ${Object.entries(WINDOWS).map(([name, words]) => html`<option value=${name}>${words}</option>`)}</select></label>
      ${caller?.operator && html`<label>Tenant<${Field} value=${query.tenant} placeholder="all together" size="12" put=${(tenant) => setQuery({ tenant })} /></label>`}
    </p>
    ${data && html`<${Totals} total=${data.total} seconds=${spans.length * data.span_seconds} />
      <div class="plots">
        ${plot("Runs by what became of them", ENDS.map((name) => ({ name, values: spans.map(([, span]) => span?.runs[name] ?? 0) })), count)}
        ${plot("Steps a second", aSecond(byName(spans, steps)), (value) => value.toFixed(2))}
        ${plot("Queue time", percentiles(spans, "queue_time"), time, { lines: true })}
        ${plot("Model calls", percentiles(spans, "model_calls"), time, { lines: true })}
        ${plot("Tokens by model", byName(spans, (span) => models(span, (model) => model.input_tokens + model.output_tokens)), count)}
        ${plot("Money by model", byName(spans, (span) => models(span, (model) => model.cost_usd)), money)}
        ${plot("Errors of runs by class", byName(spans, (span) => span.run_errors), count)}
        ${plot("Errors of steps by class", byName(spans, (span) => span.step_errors), count)}
      </div>`}`;
}
