// What the page's script is made of: elements, numbers, packed data, and the state in the URL.

// What would steer a terminal, or turn the direction of text, is shown as what it is.
const STEERING = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff\ufff9-\ufffb]/gu;
function plain(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return String(text).replace(STEERING, sign => "\\u" + sign.codePointAt(0).toString(16).padStart(4, "0"));
}

// An element: attributes, "on..." for listeners, and children; text is never taken for markup.
const SVG = new Set(["svg", "g", "path", "line", "text", "rect", "circle", "polyline", "title"]);
function el(name, attributes = {}, ...children) {
  const made = SVG.has(name) ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : plain(value));
  }
  return put(made, ...children);
}

// Puts children in the place of what an element held; lists are taken apart, null and false left out.
function put(parent, ...children) {
  const kept = children.flat(9).filter(child => child !== null && child !== undefined && child !== false);
  parent.replaceChildren(...kept.map(child => child instanceof Node ? child : plain(child)));
  return parent;
}

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), sign => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

function seconds(value) {
  if (value < 60) return value.toFixed(2) + " s";
  const whole = Math.round(value), minutes = Math.floor(whole / 60);
  return minutes < 60 ? `${minutes} min ${whole % 60} s` : `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}
function micros(value) {
  return value < 1000 ? `${Math.round(value)} µs` : value < 1e6 ? `${round3(value / 1000)} ms` : `${round3(value / 1e6)} s`;
}
function megabytes(value) { return `${round3(value / 1e6)} MB`; }
function round3(value) { return Number(value.toPrecision(3)).toLocaleString("en"); }
function counted(number, what) { return `${number} ${what}${number === 1 ? "" : "s"}`; }
function number(value) { return value.toLocaleString("en", {maximumFractionDigits: 6}); }

function percentile(ordered, percent) { return ordered[Math.ceil(ordered.length * percent / 100) - 1]; }
// A figure in the unit that its name ends with.
function measured(name, value) { return (name.endsWith("_us") ? micros : name.endsWith("_bytes") ? megabytes : number)(value); }

// The number of values in each of `parts` equal parts of the range from `low` to `high`.
function binned(values, low, high, parts) {
  const bins = new Array(parts).fill(0);
  for (const value of values) bins[Math.min(parts - 1, Math.floor((value - low) / ((high - low) || 1) * parts))] += 1;
  return bins;
}

const BY_NUMBER = new Intl.Collator("en", {numeric: true}).compare;
function middle(text) { return text.length > 90 ? text.slice(0, 30) + "…" + text.slice(-59) : text; }
function shortened(text, most) { return text.length > most ? text.slice(0, most - 1) + "…" : text; }

// Round values from about `low` to `high`, for the lines of a chart, at least `least` apart.
function ticks(low, high, most = 5, least = 0) {
  if (!(high > low)) return [low];
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max([1, 2, 5, 10].find(one => one * power >= rough) * power, least);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(at);
  return found;
}

// What is shown, and in which order, is in the URL: a link to it can be sent to somebody.
const state = new URLSearchParams(location.hash.slice(1));
const listeners = [];
function change(values) {
  for (const [key, value] of Object.entries(values)) {
    if (value === null || value === "") state.delete(key); else state.set(key, value);
  }
  const text = state.toString();
  history.replaceState(null, "", text ? "#" + text : location.pathname + location.search);
  listeners.forEach(listener => listener());
}
window.addEventListener("hashchange", () => {
  const now = new URLSearchParams(location.hash.slice(1));
  for (const key of [...state.keys()]) state.delete(key);
  for (const [key, value] of now) state.set(key, value);
  listeners.forEach(listener => listener());
});

function select(label, values, chosen, listener, {any = false, className = "axis"} = {}) {
  const box = el("select", {"aria-label": label, onchange: event => listener(event.target.value)});
  if (any) box.append(el("option", {value: ""}, "any"));
  values.forEach(value => box.append(el("option", {value, selected: value === chosen}, value)));
  box.value = chosen ?? "";
  return el("label", {class: chosen && any ? className + " set" : className}, label, box);
}

async function copy(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "copied";
  } catch {
    const area = el("textarea", {"aria-label": "to be copied"});
    area.value = text;
    button.after(area);
    area.select();
    button.textContent = document.execCommand("copy") ? "copied" : "select and copy it here";
    if (button.textContent === "copied") area.remove();
  }
  setTimeout(() => { button.textContent = before; }, 2000);
}

// Tables whose rows may stand in another order: by the column whose head was clicked, the largest first.
document.addEventListener("click", event => {
  const head = event.target.closest?.("table.sortable th"), body = head?.closest("table").tBodies[0];
  if (!head) return;
  const up = head.getAttribute("aria-sort") === "descending", at = head.cellIndex;
  const value = row => row.cells[at].textContent.replaceAll(",", "");
  const rows = [...body.rows].sort((a, b) => BY_NUMBER(value(a), value(b)) * (up ? 1 : -1));
  head.parentNode.querySelectorAll("th").forEach(one => one.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  body.replaceChildren(...rows);
});
