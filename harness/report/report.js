// The page: filters, the table of cases, the view of one, and what redraws when.

class Data {
  constructor(rows, blocks) {
    this.rows = rows;
    this.blocks = blocks;
    this.opened = new Map();
    this.count = rows.case.length;
    this.ladders = rows.ladders;
    this.figureNames = rows.figure_names;
    this.axisNames = ["suite", "device", ...rows.axes.filter(name => name !== "suite" && name !== "device")];
    this.columns = new Map(rows.axes.map((name, place) => [name, rows.values[place]]));
    this.columns.set("suite", rows.suite).set("device", rows.device);
    this.distinct = new Map();
  }
  value(axis, at) { return this.rows.pool[this.columns.get(axis)[at]] ?? "–"; }
  valuesOf(axis) {
    if (!this.distinct.has(axis)) {
      const places = new Set(this.columns.get(axis));
      const values = [...new Set([...places].map(place => this.rows.pool[place] ?? "–"))];
      this.distinct.set(axis, values.sort(BY_NUMBER));
    }
    return this.distinct.get(axis);
  }
  state(at) { return this.rows.pool[this.rows.state[at]]; }
  device(at) { return this.rows.pool[this.rows.device[at]] ?? "–"; }
  case(at) { return this.rows.case[at]; }
  why(at) { return this.rows.pool[this.rows.why[at]] ?? ""; }
  seconds(at) { return this.rows.seconds[at]; }
  figures(at) { return this.rows.figures[at]; }
  since(at) { return this.rows.since && this.rows.pool[this.rows.since[at]]; }
  code(at) { return this.rows.pool[this.rows.code[at]]; }
  group(at) { return this.rows.group[at]; }
  short(at) { return this.case(at).replace(/^.*::/, ""); }
  axesOf(at) { return this.short(at).replace(/^[^[]*/, ""); }
  // How all names end, from a "-" on: it tells no case apart, and versions stand before it.
  get ending() {
    if (this.end === undefined) {
      this.end = this.count > 1 ? this.axesOf(0) : "";
      for (let at = 1; at < this.count && this.end; at++) {
        const name = this.axesOf(at);
        while (!name.endsWith(this.end)) this.end = this.end.slice(1);
      }
      this.end = this.end.includes("-") ? this.end.slice(this.end.indexOf("-")) : "";
    }
    return this.end;
  }
  text(at) {
    this.texts ??= [];
    return this.texts[at] ??= [this.case(at), this.state(at), this.why(at), ...this.axisNames.map(name => this.value(name, at))].join(" ").toLowerCase();
  }
  async details(at) {
    const block = Math.floor(at / BLOCK);
    if (!this.opened.has(block)) this.opened.set(block, unpacked(this.blocks[block]));
    return (await this.opened.get(block))[at % BLOCK];
  }
}
const BLOCK = 128, ROW = 34;

function filtered(data) {
  const words = (state.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const states = state.get("state") ? new Set(state.get("state").split(",")) : null;
  const groups = state.get("group") ? new Set(state.get("group").split(",").map(Number)) : null;
  const since = state.get("since");
  const axes = data.axisNames.map(name => [name, state.get("a." + name)]).filter(([, value]) => value !== null);
  const found = [];
  for (let at = 0; at < data.count; at++) {
    if (states && !states.has(data.state(at))) continue;
    if (since !== null && data.since(at) !== since) continue;
    if (groups && !groups.has(data.group(at))) continue;
    if (!axes.every(([name, value]) => data.value(name, at) === value)) continue;
    if (words.length && !words.every(word => data.text(at).includes(word))) continue;
    found.push(at);
  }
  return sorted(data, found);
}

function sorted(data, found) {
  const [name, down] = (state.get("sort") ?? "outcome").split(":");
  const keys = {outcome: at => ORDER.indexOf(data.state(at)), time: at => data.seconds(at), case: at => data.case(at), why: at => data.why(at)};
  const key = keys[name] ?? (data.columns.has(name) ? at => data.value(name, at) : null);
  if (!key) return found;
  const values = new Map(found.map(at => [at, key(at)]));
  found.sort((a, b) => {
    const x = values.get(a), y = values.get(b);
    return (typeof x === "number" ? x - y : BY_NUMBER(x, y)) || a - b;
  });
  return down ? found.reverse() : found;
}

function drawFilters(data, shown, box) {
  const search = box.querySelector("input") ?? el("input", {type: "search", "aria-label": "Words that must all occur", placeholder: "Words that must all occur ( / )",
    oninput: event => change({q: event.target.value})});
  if (document.activeElement !== search) search.value = state.get("q") ?? "";
  const states = ORDER.filter(name => data.states.has(name));
  const chosen = new Set((state.get("state") ?? "").split(",").filter(Boolean));
  const buttons = states.map(name => el("button", {class: "o o-" + name, "aria-pressed": String(chosen.has(name)), onclick: () => {
    if (!chosen.delete(name)) chosen.add(name);
    change({state: [...chosen].join(",")});
  }}, `${number(data.states.get(name))} ${name}`));
  const varied = data.axisNames.filter(name => data.valuesOf(name).length > 1);
  const pick = name => select(name, data.valuesOf(name), state.get("a." + name) ?? "", value => change({["a." + name]: value}), {any: true});
  const first = varied.filter((name, place) => place < 4 || state.get("a." + name)), others = varied.filter(name => !first.includes(name));
  const before = box.querySelector("details");
  const axes = [...first.map(pick), others.length
    ? el("details", {open: before?.open}, el("summary", {}, `${others.length} more axes`), el("div", {class: "row"}, others.map(pick))) : null].filter(Boolean);
  const any = ["q", "state", "group", "since", ...data.axisNames.map(name => "a." + name)].filter(key => state.get(key));
  const clear = el("button", {onclick: () => change(Object.fromEntries(any.map(key => [key, null]))), hidden: !any.length}, "show all");
  const count = el("span", {class: "dim", id: "count", role: "status"}, `${number(shown.length)} of ${number(data.count)}`);
  const rest = [...buttons, ...axes, clear, count];
  if (search.isConnected) { [...box.children].slice(1).forEach(child => child.remove()); box.append(...rest); }
  else box.replaceChildren(search, ...rest);
}

// Whether an axis has several values among these cases, and most of them have one.
function tellsApart(data, name, shown) {
  const values = new Set(shown.map(at => data.value(name, at)));
  return values.size > 1 && shown.filter(at => data.value(name, at) !== "–").length * 2 > shown.length;
}

// Cases of one test that came to the same are one line, unless they are sorted, or their line was opened.
const unfolded = new Set();
function linesOf(data, shown) {
  if (state.get("sort")) return shown.map(at => [at]);
  const groups = new Map();
  for (const at of shown) {
    const key = [data.short(at).replace(/\[.*/, ""), data.state(at), data.why(at)].join("\u0001");
    if (!groups.has(key)) groups.set(key, Object.assign([], {key}));
    groups.get(key).push(at);
  }
  return [...groups.values()].flatMap(group => group.length < 4 || unfolded.has(group.key) ? group.map(at => [at]) : [group]);
}

// Durations of the cases of a line as bars of a histogram from 0 to the longest.
function histogram(values) {
  const most = values.reduce((a, b) => Math.max(a, b), 0) || 1;
  const bins = binned(values, 0, most, 20), highest = Math.max(...bins);
  return el("svg", {class: "spark", viewBox: "0 0 60 18", width: 60, height: 18, role: "img", "aria-label": `0 to ${seconds(most)}`},
    bins.map((count, place) => count > 0 && el("rect", {x: place * 3, width: 2.4, y: 18 - Math.max(2, count / highest * 18), height: Math.max(2, count / highest * 18), fill: "currentColor"})));
}

function drawTable(data, shown, section, open) {
  const lines = linesOf(data, shown);
  // the case has a third of the width, and why it failed what is left: not less than 280
  const room = Math.max(0, Math.floor((section.clientWidth * 0.68 - 132 - 90 - 280) / 112));
  const axes = data.axisNames.filter(name => name !== "suite" && tellsApart(data, name, shown)).slice(0, Math.min(room, 8));
  const narrow = section.clientWidth < 600;
  const columns = narrow ? [["outcome", 118], ["case", 0], ["time", 76]]
    : [["outcome", 132], ["case", "32%"], ...axes.map(name => [name, 112]), ["time", 90], ["why", 0]];
  const [by, down] = (state.get("sort") ?? "outcome").split(":");
  const head = el("tr", {}, columns.map(([name, width]) => el("th", {scope: "col", style: width ? `width:${width}${width > 0 ? "px" : ""}` : null,
    "aria-sort": by === name ? (down ? "descending" : "ascending") : "none"},
    el("button", {onclick: () => change({sort: by !== name ? name : down ? null : name + ":down"})}, name + (by === name ? (down ? " ↓" : " ↑") : "")))));
  const body = el("tbody");
  const least = narrow ? 0 : 132 + 90 + 112 * axes.length + 2 * 160;
  const view = el("div", {class: "view", tabindex: "-1"}, el("table", {style: `min-width:${least}px`, "aria-rowcount": lines.length + 1}, el("thead", {}, head), body));
  const cell = (name, at) => name === "outcome" ? el("td", {}, el("span", {class: "o o-" + data.state(at)}, data.state(at)))
    : name === "case" ? el("td", {class: "mono", title: data.case(at)}, el("div", {}, el("span", {}, data.short(at).replace(/\[.*/, "")),
      el("span", {class: "tail dim"}, el("bdi", {}, data.axesOf(at).slice(0, data.axesOf(at).length - data.ending.length),
        data.ending && [el("i", {class: "cut"}, "…"), el("i", {class: "paper"}, data.ending)]))))
    : name === "time" ? el("td", {class: "n"}, seconds(data.seconds(at)))
    : name === "why" ? el("td", {class: "dim", title: data.why(at)}, data.why(at))
    : el("td", {title: data.value(name, at)}, data.value(name, at));
  const range = list => { const all = list.map(data.seconds, data).sort((a, b) => a - b), least = seconds(all[0]), most = seconds(all[all.length - 1]); return least === most ? least : `${least} – ${most}`; };
  const folded = (name, list) => {
    if (name === "case") return el("td", {class: "mono", title: data.case(list[0])}, `${data.short(list[0]).replace(/\[.*/, "")} × ${number(list.length)}`);
    if (name === "time") return el("td", {class: "n", title: range(list)}, histogram(list.map(data.seconds, data)));
    if (!data.columns.has(name)) return cell(name, list[0]);
    const values = [...new Set(list.map(at => data.value(name, at)))];
    return el("td", {class: values.length > 1 ? "dim" : null, title: values.slice(0, 40).join(", ")}, values.length > 1 ? `${values.length} values` : values[0]);
  };
  const choose = line => {
    if (lines[line].length === 1) { open(lines[line][0]); return; }
    unfolded.add(lines[line].key);
    drawTable(data, shown, section, open);
    section.querySelector(`[data-at="${lines[line][0]}"]`)?.focus({preventScroll: true});
  };
  const space = height => height > 0 && el("tr", {class: "space", "aria-hidden": "true"}, el("td", {colspan: columns.length, style: `height:${height}px`}));
  let from = -1, to = -1;
  const fill = (first, last) => {
    if (first === from && last === to) return;
    [from, to] = [first, last];
    const focused = document.activeElement?.dataset?.at;
    body.replaceChildren(...[space(first * ROW), ...lines.slice(first, last).map((list, line) => el("tr", {tabindex: "0", "data-at": list[0], "data-cases": list.length,
      "aria-rowindex": first + line + 2, "aria-expanded": list.length > 1 ? "false" : null, onclick: () => choose(first + line), onkeydown: event => move(event, first + line)},
      columns.map(([name]) => list.length > 1 ? folded(name, list) : cell(name, list[0])))), space((lines.length - last) * ROW)].filter(Boolean));
    if (focused !== undefined) body.querySelector(`[data-at="${focused}"]`)?.focus({preventScroll: true});
  };
  const look = () => {
    const height = Math.max(view.clientHeight, 600), first = Math.max(0, Math.floor(view.scrollTop / ROW) - 15);
    fill(first, Math.min(lines.length, first + Math.ceil(height / ROW) + 30));
  };
  const move = (event, line) => {
    if (event.key === "Enter") { event.preventDefault(); choose(line); return; }
    const next = {ArrowDown: line + 1, ArrowUp: line - 1, j: line + 1, k: line - 1}[event.key];
    if (next === undefined || next < 0 || next >= lines.length) return;
    event.preventDefault();
    const top = next * ROW;
    if (top < view.scrollTop) view.scrollTop = top;
    if (top + 2 * ROW > view.scrollTop + view.clientHeight - ROW) view.scrollTop = top - view.clientHeight + 3 * ROW;
    look();
    body.querySelector(`[data-at="${lines[next][0]}"]`)?.focus({preventScroll: true});
  };
  view.addEventListener("scroll", look, {passive: true});
  section.replaceChildren(view);
  look();
  drawTable.sized?.disconnect();
  drawTable.sized = new ResizeObserver(look);
  drawTable.sized.observe(view);
  window.onbeforeprint = () => fill(0, Math.min(lines.length, 2000));
  window.onafterprint = () => { from = -1; look(); };
}

function bugReport(record) {
  const error = record.error ?? {}, device = record.device ?? {}, fence = "```";
  const quote = text => fence + "\n" + plain(text ?? "").replaceAll("```", "'''") + "\n" + fence;
  const code = !error.code ? "" : ` ${error.code} (${error.hex}${error.symbol ? ", " + error.symbol : ""})`;
  const lines = [`## ${plain(record.case.replace(/^.*::/, ""))}: ${record.outcome}${error.api ? ", " + plain(error.api) + code : ""}`, ""];
  if (error.message) lines.push(quote(error.message));
  if ((error.chain ?? []).length > 1) lines.push("Error chain, the first cause first:", quote(error.chain.map(link => link.message).join("\n")));
  if (error.diagnosis) lines.push(`Looks like **${plain(error.diagnosis.words)}** (${plain(error.diagnosis.id)}${error.diagnosis.confidence ? ", " + error.diagnosis.confidence : ""}).`, "");
  lines.push("| | |", "|---|---|");
  const told = {...(record.axes ?? {}), ...Object.fromEntries(Object.entries(record.runtime ?? {}).map(([key, value]) => ["runtime " + key, value])),
    ...Object.fromEntries(Object.entries(device).filter(([key]) => key !== "serial").map(([key, value]) => ["device " + key, value])), started: record.started};
  for (const [key, value] of Object.entries(told)) if (value !== null && value !== undefined)
    lines.push(`| ${plain(key).replaceAll("|", "\\|")} | ${plain(value).replaceAll("|", "\\|").replaceAll("\n", " ")} |`);
  lines.push("", "Run it again:", quote(record.again), "");
  return lines.join("\n");
}

function figure(value, name = "") {
  if (typeof value === "number") return measured(name, value);
  if (value === null || typeof value !== "object") return String(value);
  const entries = Object.entries(value), listed = Array.isArray(value);
  if (listed && entries.length > 1 && value.every(one => typeof one === "number")) return series(value, name);
  if (entries.length <= 6 && entries.every(([, one]) => one === null || typeof one !== "object"))
    return entries.map(([key, one]) => listed ? figure(one, name) : `${key} ${figure(one, /_[a-z]+$/.test(key) ? key : name)}`).join(", ") || "none";
  return el("pre", {}, JSON.stringify(value, null, 1));
}

function series(values, name) {
  const ordered = [...values].sort((a, b) => a - b), low = ordered[0], high = ordered[ordered.length - 1], text = value => measured(name, value);
  const step = 180 / (values.length - 1), every = Math.ceil(values.length / 400);
  const points = values.map((one, at) => `${(at * step).toFixed(1)},${(24 - (one / 2 - low / 2) / ((high / 2 - low / 2) || 1) * 22).toFixed(1)}`)
    .filter((_, at) => at % every === 0);
  return [`${values.length} values: min ${text(low)}, median ${text(percentile(ordered, 50))}, max ${text(high)} `,
    el("svg", {class: "spark", viewBox: "0 0 180 26", width: 180, height: 26, role: "img", "aria-label": `${values.length} values`},
      el("polyline", {fill: "none", stroke: "currentColor", points: points.join(" ")}))];
}

function details(record, run) {
  const error = record.error, list = el("dl"), parts = [];
  const line = (name, ...value) => list.append(el("dt", {}, name), el("dd", {}, value));
  if (error) {
    const code = !error.code ? "" : ` ${error.code} ${error.hex ?? ""} ${error.symbol ?? ""}`;
    const where = error.step === undefined || error.step === null ? "" : ` (step ${error.step}${error.context === undefined || error.context === null ? "" : ", context " + error.context})`;
    parts.push(el("pre", {}, `${error.api ?? ""}${code}${where}\n${error.message ?? ""}`.trim()));
    const known = error.diagnosis;
    if (known) parts.push(el("p", {}, el("b", {}, known.words), ` (${known.id}${known.confidence ? ", " + known.confidence : ""})`,
      known.fix ? el("span", {}, ". What helps: " + known.fix) : "", known.thread?.startsWith("https://") ? [" ", el("a", {href: known.thread}, known.thread)] : ""));
    if ((error.chain ?? []).length > 1) parts.push(el("details", {open: true}, el("summary", {}, "Error chain, the first cause first"),
      el("ol", {class: "mono"}, error.chain.map(link => el("li", {}, link.message ?? "", el("span", {class: "dim"},
        link.code === undefined || link.code === null ? "" : ` ${link.code} ${link.hex ?? ""} ${link.symbol ?? ""}${link.source === "call" ? ", returned" : ""}`))))));
  }
  parts.push(el("h3", {}, "Run it again"), el("pre", {class: "command"}, record.again));
  if (record.cause) line("cause", record.cause);
  if (record.expected) { const id = record.expected.known_issue, link = run.issues[id]; line("known issue", link ? el("a", {href: link}, id) : id); }
  if (record.fixed) line("fixed?", `passed under the conditions of ${record.fixed.known_issues.join(", ")}`);
  for (const one of record.preflight ?? []) line("preflight", `${one.severity} ${one.code}: ${one.explanation}. ${one.fix}.`);
  for (const one of record.emulated ?? []) line("emulated", `${one.by}: ${one.call} ${one.answer}, ${one.words}`);
  line("started", record.started, (record.attempt ?? 1) > 1 ? `, attempt ${record.attempt}` : "");
  for (const [name, value] of Object.entries(record.axes ?? {})) if (value !== null) line(name, figure(value));
  if (record.outputs) line("outputs", record.outputs);
  for (const check of record.checks ?? []) line(check.name, el("span", {class: "o o-" + ({held: "passed", broken: "failed"}[check.verdict] ?? "skipped")}, check.verdict), " ", check.reason ?? "");
  for (const [name, value] of Object.entries(record.measurements ?? {})) line(name, figure(value, name));
  if (record.runtime) line("runtime", `${record.runtime.build_id ?? record.runtime.qnn} from ${record.runtime.source}`);
  for (const [name, value] of Object.entries(record.device ?? {})) line("device " + name, figure(value));
  for (const one of error?.libraries ?? []) line(one.hides ? "taken instead of ours" : "loaded", el("span", {class: "mono"},
    [one.path, one.version, one.build_id && `build id ${one.build_id}`, one.hides && `hides ${one.hides}`].filter(part => part).join(", ")));
  if (error) line("signature", el("span", {class: "mono"}, error.signature));
  for (const [name, value] of Object.entries(record.measurements ?? {}))
    if (name.endsWith("_us") && Array.isArray(value) && value.length >= 20 && value.every(one => typeof one === "number")) parts.push(distribution(name, value));
  parts.push(list);
  const logs = record.logs ?? [];
  if (logs.length) parts.push(el("h3", {}, "Logs"));
  for (const log of logs) {
    // in a site, whose pages have a way to others, logs do not lie beside this one
    const href = document.querySelector("nav") ? null : "./" + log.split("/").map(encodeURIComponent).join("/");
    const link = el("a", {href}, log), text = run.evidence[log];
    parts.push(text === undefined ? el("div", {}, link) : el("details", {}, el("summary", {}, log), link, el("pre", {}, text)));
  }
  return parts;
}

async function start() {
  const text = id => document.getElementById(id).textContent.trim();
  const rows = await unpacked(text("rows"));
  const data = new Data(rows, text("blocks").split(" "));
  data.states = new Map();
  rows.state.forEach(place => data.states.set(rows.pool[place], (data.states.get(rows.pool[place]) ?? 0) + 1));
  const byName = new Map(rows.case.map((name, at) => [name, at]));
  const dialog = document.getElementById("case"), section = id => document.getElementById(id);
  let shown = [], opened = null;

  async function view(at) {
    const record = await data.details(at);
    const line = shown.indexOf(at);
    opened = at;
    const copying = el("button", {onclick: event => copy(bugReport(record), event.target)}, "copy as a bug report");
    const go = by => { const next = shown[shown.indexOf(at) + by]; if (next !== undefined) open(next); };
    dialog.replaceChildren(
      el("div", {class: "top"}, el("div", {class: "row", style: "margin:0"}, el("span", {class: "o o-" + data.state(at)}, data.state(at)), copying,
        el("button", {onclick: () => go(-1), disabled: line <= 0, "aria-label": "the case before"}, "↑"),
        el("button", {onclick: () => go(1), disabled: line < 0 || line + 1 >= shown.length, "aria-label": "the next case"}, "↓"),
        el("button", {onclick: () => dialog.close(), style: "margin-left:auto"}, "close")),
        el("h2", {class: "mono"}, data.case(at))),
      el("div", {class: "body"}, details(record, rows)));
    dialog.scrollTop = 0;
    if (!dialog.open) dialog.showModal();
  }
  const open = at => change({case: data.case(at)});
  dialog.addEventListener("close", () => {
    const at = opened;
    opened = null;
    if (state.get("case")) change({case: null});
    document.querySelector(`#cases [data-at="${at}"]`)?.focus({preventScroll: true});
  });
  dialog.addEventListener("click", event => { if (event.target === dialog) dialog.close(); });
  document.addEventListener("keydown", event => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "");
    if (event.key === "/" && !typing && !dialog.open) { event.preventDefault(); document.querySelector("#filters input").focus(); }
  });

  let drawn = null;
  function draw() {
    const kept = new URLSearchParams(state);
    kept.delete("case");
    if (kept.toString() !== drawn) {
      drawn = kept.toString();
      shown = filtered(data);
      drawFilters(data, shown, section("filters"));
      drawTable(data, shown, section("cases"), open);
      heat(data, shown, section("heat"), open);
      ladder(data, shown, section("ladder"), open);
      times(data, shown, section("times"), open);
    }
    const at = byName.get(state.get("case"));
    if (at === undefined) { if (dialog.open) dialog.close(); } else if (at !== opened) view(at);
  }
  listeners.push(draw);
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (width === window.innerWidth) return;
    width = window.innerWidth;
    drawn = null;
    draw();
  });
  section("drawn").hidden = section("matrix").hidden = !data.count;
  if (data.count) { matrix(data, section("matrix"), open); draw(); }
  document.querySelectorAll("a[href^='#group='], a[href^='#state='], a[href^='#since=']").forEach(link => link.addEventListener("click", () => {
    setTimeout(() => section("filters").scrollIntoView(), 0);
  }));
}

start().catch(error => {
  const box = document.getElementById("trouble");
  box.hidden = false;
  box.textContent = "The table of cases cannot be drawn (" + error + "); all of it is in results.jsonl beside this page.";
});
