// The form of a question: a field for each property of its schema, by the kinds that a server may ask for.
import { html } from "./html.js";
import { visible } from "./text.js";

const FORMATS = { email: "email", uri: "url", date: "date", "date-time": "text" };
const HINTS = { "date-time": "such as 2026-01-31T12:00:00Z" };

/** The choices that a schema offers: [value, words]; null if it offers none. */
function choicesOf(schema) {
  const titled = schema.oneOf ?? schema.anyOf;
  if (titled) return titled.map((each) => [each.const, each.title ?? String(each.const)]);
  return schema.enum?.map((value, place) => [value, schema.enumNames?.[place] ?? String(value)]) ?? null;
}

/** The content that a form begins with: what its fields have by default. */
export function begun(form) {
  const given = Object.entries(form?.properties ?? {}).filter(([, schema]) => schema.default !== undefined);
  return Object.fromEntries(given.map(([name, schema]) => [name, schema.default]));
}

/** What was filled in, as it is sent: a field that was left empty is left out, if it may be. */
export function filled(form, content) {
  const kept = Object.entries(form.properties ?? {}).flatMap(([name, schema]) => {
    const required = form.required?.includes(name);
    const value = content[name] ?? (required ? { boolean: false, array: [], string: choicesOf(schema) ? undefined : "" }[schema.type] : undefined);
    const empty = value === undefined || value === null || Number.isNaN(value) || (!required && (value === "" || value.length === 0));
    return empty ? [] : [[name, value]];
  });
  return Object.fromEntries(kept);
}

function Several({ name, schema, label, value = [], set }) {
  const choices = choicesOf(schema.items) ?? [];
  const change = (each) => (event) => set(choices.map(([one]) => one).filter((one) => (one === each ? event.target.checked : value.includes(one))));
  const bounds = [schema.minItems && `at least ${schema.minItems}`, schema.maxItems && `at most ${schema.maxItems}`].filter(Boolean).join(", ");
  return html`<fieldset class="choices"><legend>${visible(label)}${bounds && ` (${bounds})`}</legend>
    ${choices.map(([each, words]) => html`<label key=${each}><span><input type="checkbox" name=${name} value=${each} checked=${value.includes(each)}
      onChange=${change(each)} /> ${visible(words)}</span></label>`)}</fieldset>`;
}

function One({ name, choices, label, value, set }) {
  return html`<label>${visible(label)}<select name=${name} value=${value ?? ""} onChange=${(event) => set(event.target.value || undefined)}>
    <option value=""></option>${choices.map(([each, words]) => html`<option key=${each} value=${each}>${visible(words)}</option>`)}</select></label>`;
}

function Plain({ name, schema, label, value, set }) {
  const number = schema.type === "number" || schema.type === "integer";
  const rules = number
    ? { type: "number", min: schema.minimum, max: schema.maximum, step: schema.type === "number" ? "any" : 1 }
    : { type: FORMATS[schema.format] ?? "text", minlength: schema.minLength, maxlength: schema.maxLength, placeholder: HINTS[schema.format] };
  return html`<label>${visible(label)}<input name=${name} ...${rules} value=${value ?? ""}
    onInput=${(event) => set(number ? event.target.valueAsNumber : event.target.value)} /></label>`;
}

function Field({ name, schema, required, value, set }) {
  const label = `${schema.title ?? name}${required ? "" : " (may be left out)"}`;
  const choices = choicesOf(schema);
  if (schema.type === "array") return html`<${Several} name=${name} schema=${schema} label=${label} value=${value} set=${set} />`;
  if (choices) return html`<${One} name=${name} choices=${choices} label=${label} value=${value} set=${set} />`;
  if (schema.type === "boolean") {
    return html`<label><span><input type="checkbox" name=${name} checked=${Boolean(value)} onChange=${(event) => set(event.target.checked)} /> ${visible(label)}</span></label>`;
  }
  return html`<${Plain} name=${name} schema=${schema} label=${label} value=${value} set=${set} />`;
}

/** All fields of a form; `set` is given a function of the content before. */
export function Form({ form, content, set }) {
  return html`<div class="form">${Object.entries(form.properties ?? {}).map(([name, schema]) => html`<div key=${name} class="row">
    <${Field} name=${name} schema=${schema} required=${form.required?.includes(name)} value=${content[name]}
      set=${(value) => set((before) => ({ ...before, [name]: value }))} />
    ${schema.description && html`<small>${visible(schema.description)}</small>`}</div>`)}</div>`;
}
