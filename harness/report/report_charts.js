// The grid of each test, and charts of the cases that the filters leave: heat map, contexts, times.

const ORDER = ["failed", "crashed", "hung", "error", "expected", "passed", "skipped", "unsupported"];
const LINES = [1, 2, 3, 4, 5, 6].map(at => `var(--line${at})`);

// As wide as there is room: what is drawn wider becomes too small to read.
const widthOf = section => Math.max(320, Math.min(section.clientWidth || 1000, 1200));

const MOST_ROWS = 24, MOST_COLUMNS = 16;
const isTested = (data, at) => !["unsupported", "skipped"].includes(data.state(at));

const keyOf = (data, names, at) => names.map(name => data.value(name, at)).join("\u0001");

// The axes of a suite's grid: columns by one axis, rows by the others that tell cases apart.
function gridAxes(data, suite, cases) {
  const asked = data.rows.grids.filter(([name]) => name === suite).flatMap(([, ...pair]) => pair);
  const values = name => new Set(cases.map(at => data.value(name, at))).size;
  const varied = data.axisNames.filter(name => name !== "suite" && values(name) > 1);
  const rank = name => (asked.includes(name) ? 2 : 0) + spread(data, name, cases);
  varied.sort((a, b) => rank(b) - rank(a));
  const fitting = varied.filter(name => values(name) <= MOST_COLUMNS);
  const isNumber = name => cases.every(at => /^\d+$/.test(data.value(name, at)));
  const column = fitting.find(name => asked.includes(name) && isNumber(name)) ?? fitting.find(name => asked.includes(name) && name !== "device") ?? fitting[0];
  const rows = [], count = names => new Set(cases.map(at => keyOf(data, names, at))).size;
  for (const name of varied.filter(name => name !== column)) {
    const more = [...rows, name];
    // an axis that follows from the others adds no cell
    if (count(more) <= MOST_ROWS && count([column, ...more]) > count([column, ...rows])) rows.push(name);
  }
  return [rows, column];
}

function outcomeCell(data, found, where, open, set) {
  const worst = ORDER.find(name => found.some(at => data.state(at) === name));
  const passed = found.filter(at => data.state(at) === "passed").length;
  const tested = found.filter(at => isTested(data, at)).length;
  const codes = new Set(found.map(at => data.code(at)).filter(Boolean)), code = codes.size === 1 ? [...codes][0] : "";
  const text = found.length === 1 || !tested ? code || (worst === "passed" ? "" : worst) : tested > passed ? `${tested - passed} of ${tested}${code && ": " + code}` : tested;
  return el("td", {}, el("button", {class: "o-" + worst, title: `${where}: ${tally(data, found)}`, "aria-label": `${where}: ${tally(data, found)}`, onclick: () => {
    if (found.length === 1) open(found[0]);
    else { change(set); document.getElementById("cases").scrollIntoView(); }
  }}, text));
}

// A grid for each test over its own axes, the worst first; tests without a tested case are only named.
function matrix(data, section, open) {
  const byTest = new Map();
  for (let at = 0; at < data.count; at++) {
    const test = data.case(at).replace(/\[.*/s, "");
    if (!byTest.has(test)) byTest.set(test, []);
    byTest.get(test).push(at);
  }
  const untested = [], drawn = [];
  for (const [test, all] of byTest) {
    const suite = data.value("suite", all[0]), name = test.replace(/^.*::/, "");
    const cases = all.filter(at => isTested(data, at));
    if (!cases.length) { untested.push(name); continue; }
    const [rows, column] = gridAxes(data, suite, cases), lines = new Map();
    for (const at of cases) {
      const key = keyOf(data, rows, at);
      if (!lines.has(key)) lines.set(key, new Map());
      const cells = lines.get(key), value = column ? data.value(column, at) : "";
      if (!cells.has(value)) cells.set(value, []);
      cells.get(value).push(at);
    }
    const present = new Set(cases.map(at => column ? data.value(column, at) : ""));
    const columns = column ? data.valuesOf(column).filter(value => present.has(value)) : [""];
    const keys = [...lines.keys()].sort(BY_NUMBER);
    const body = keys.map((key, line) => {
      const values = rows.length ? key.split("\u0001") : [], above = line ? keys[line - 1].split("\u0001") : [];
      const same = values.findIndex((value, place) => value !== above[place]);
      return el("tr", {}, values.map((value, place) => el("th", {scope: "row", title: value}, place < same ? "" : value)), columns.map(value => {
        const found = lines.get(key).get(value);
        const named = [...rows.map((name, place) => [name, values[place]]), ...(column ? [[column, value]] : [])];
        const set = {"a.suite": suite, q: name, ...Object.fromEntries(named.map(([name, one]) => ["a." + name, one]))};
        return found ? outcomeCell(data, found, named.map(pair => pair.join(" ")).join(", ") || name, open, set) : el("td");
      }));
    });
    const head = el("tr", {}, rows.map(name => el("th", {scope: "col"}, name)), columns.map(value => el("th", {scope: "col", title: value}, value)));
    const count = names => cases.filter(at => names.includes(data.state(at))).length;
    const file = test.slice(0, -name.length - 2).replace(/^.*\//, "");
    const table = el("div", {class: "scroll"}, el("table", {class: "heat"}, el("thead", {}, column ? el("tr", {}, rows.map(() => el("td")), el("th", {scope: "colgroup", colspan: columns.length}, column)) : null, head), el("tbody", {}, body)));
    drawn.push([count(["failed", "crashed", "hung", "error"]), count(["expected"]), cases.length,
      el("details", {}, el("summary", {}, el("b", {}, name), " ", el("span", {class: "dim"}, file, file && ": ", tally(data, cases))), table)]);
  }
  if (!drawn.length) { section.replaceChildren(); return; }
  drawn.sort((a, b) => b[0] - a[0] || b[1] - a[1] || b[2] - a[2]);
  drawn.forEach(([bad, expected, , box], place) => { box.open = bad || expected || place < 4; });
  put(section, el("h2", {}, "Matrix"), el("div", {class: "matrix"}, drawn.map(([, , , box]) => box)),
    untested.length ? el("p", {class: "dim"}, `Not tested here (unsupported or skipped): ${untested.join(", ")}.`) : null);
}

// Pairs of axes to look at: what tests asked for, and all pairs of versions.
function maps(data) {
  const pairs = data.rows.versions.flatMap((one, at, all) => all.slice(at + 1).map(other => [null, one, other]));
  return [...data.rows.grids, ...pairs].filter(([, ...pair]) => pair.every(name => data.axisNames.includes(name) && data.valuesOf(name).length > 1));
}

function heat(data, shown, section, open) {
  const varied = data.axisNames.filter(name => tellsApart(data, name, shown));
  const chosen = [state.get("rows"), state.get("columns")].filter(name => data.axisNames.includes(name));
  const names = [...new Set([...varied, ...chosen])];
  if (names.length < 2) { section.replaceChildren(); return; }
  const broken = name => spread(data, name, shown);
  const ranked = [...names].sort((a, b) => broken(b) - broken(a));
  const row = names.includes(state.get("rows")) ? state.get("rows") : ranked[0];
  const column = names.includes(state.get("columns")) && state.get("columns") !== row
    ? state.get("columns") : ranked.find(name => name !== row);
  const cells = new Map();
  for (const at of shown) {
    const key = data.value(row, at) + "\u0001" + data.value(column, at);
    if (!cells.has(key)) cells.set(key, []);
    cells.get(key).push(at);
  }
  const present = name => {
    const values = new Set(shown.map(at => data.value(name, at)));
    return data.valuesOf(name).filter(value => values.has(value));
  };
  const rows = present(row).slice(0, 200), columns = present(column).slice(0, 60);
  const table = el("table", {class: "heat"},
    el("thead", {}, el("tr", {}, el("th", {scope: "col"}, `${row} \\ ${column}`), columns.map(value => el("th", {scope: "col", title: value}, value)))),
    el("tbody", {}, rows.map(value => el("tr", {}, el("th", {scope: "row", title: value}, value), columns.map(other => {
      const found = cells.get(value + "\u0001" + other);
      if (!found) return el("td");
      return outcomeCell(data, found, `${row} ${value}, ${column} ${other}`, open, {["a." + row]: value, ["a." + column]: other});
    })))));
  put(section,
    el("h2", {}, "Any two axes"),
    el("div", {class: "row noprint"},
      select("rows", names, row, value => change({rows: value})),
      select("columns", names.filter(name => name !== row), column, value => change({columns: value})),
      maps(data).map(([suite, rows, columns]) => el("button", {onclick: () => change({rows, columns, ...(suite ? {"a.suite": suite} : {})})},
        `${rows} × ${columns}${suite ? " of " + suite : ""}`))),
    el("p", {class: "dim"}, "✓: how many passed. Other signs: the worst outcome, how many of how many tested cases did not pass, and their code if they have one in common."),
    el("div", {class: "scroll"}, table));
}

function spread(data, name, shown) {
  // how much the share of what passed differs between the values of an axis; many values make no map at a glance
  const by = new Map();
  for (const at of shown) {
    if (data.state(at) === "unsupported" || data.state(at) === "skipped") continue;
    const value = data.value(name, at), seen = by.get(value) ?? [0, 0];
    seen[0] += data.state(at) === "passed"; seen[1] += 1;
    by.set(value, seen);
  }
  const shares = [...by.values()].map(([passed, all]) => passed / all);
  const values = by.size;
  return values < 2 ? -1 : Math.max(...shares) - Math.min(...shares) + Math.min(values, 12) / 100 - (values > 24 ? 1 : 0);
}

function tally(data, found) {
  return ORDER.map(name => [name, found.filter(at => data.state(at) === name).length])
    .filter(([, count]) => count).map(([name, count]) => `${count} ${name}`).join(", ");
}

// A frame with lines at round values; `x` and `y` map values to places in it.
function frame({width, height = 240, x, y, xLabel, yLabel, yText, xText = number, title}) {
  const left = 70, right = 20, top = 22, bottom = 34;
  const toX = value => left + (value - x[0]) / ((x[1] - x[0]) || 1) * (width - left - right);
  const toY = value => height - bottom - (value - y[0]) / ((y[1] - y[0]) || 1) * (height - top - bottom);
  const svg = el("svg", {class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title});
  for (const value of ticks(y[0], y[1])) {
    svg.append(el("line", {class: "grid", x1: left, x2: width - right, y1: toY(value), y2: toY(value)}),
      el("text", {x: left - 6, y: toY(value) + 4, "text-anchor": "end"}, yText(value)));
  }
  // there is no half context
  for (const value of ticks(x[0], x[1], width / 90, 1)) svg.append(el("text", {x: toX(value), y: height - bottom + 15, "text-anchor": "middle"}, xText(value)));
  svg.append(el("text", {x: width - right, y: height - 4, "text-anchor": "end"}, xLabel), el("text", {x: 0, y: 11}, yLabel));
  return {svg, toX, toY, width, height, left, right, top, bottom};
}

function ladder(data, shown, section, open) {
  const wanted = new Set(shown), all = data.ladders.filter(one => wanted.has(one.case));
  if (!all.length) { section.replaceChildren(); return; }
  // what is drawn together must be about as long: a thousand small ones would hide where sixty large ones end
  const reach = one => Math.max(one.loads, one.failed_at ?? 0);
  const found = all.filter(one => reach(one) < 4 * reach(all[0]) && reach(one) * 4 > reach(all[0])).slice(0, LINES.length);
  found.forEach((one, line) => { one.line = line; });
  const most = Math.max(...found.map(reach)), wide = widthOf(section), width = wide > 1000 ? (wide - 24) / 2 : wide;
  const chart = (values, text, yLabel, title) => {
    if (!found.some(one => values(one).length)) return null;
    const highest = found.flatMap(values).reduce((a, b) => Math.max(a, b), 0);
    const drawn = frame({width, x: [0, most], y: [0, highest * 1.06], xLabel: "contexts loaded", yLabel, yText: text, title});
    found.forEach((one, number_) => {
      const list = values(one), colour = LINES[number_];
      if (!list.length) return;
      const step = one.loads / list.length;
      const points = list.map((value, at) => `${drawn.toX((at + 1) * step).toFixed(1)},${drawn.toY(value).toFixed(1)}`);
      drawn.svg.append(el("polyline", {points: points.join(" "), fill: "none", stroke: colour, "stroke-width": 1.8}));
      if (one.failed_at !== null) {
        const x = drawn.toX(one.failed_at), y = drawn.toY(list[list.length - 1]);
        drawn.svg.append(el("path", {d: `M${x - 5} ${y - 5}l10 10m0 -10l-10 10`, stroke: colour, "stroke-width": 2.5},
          el("title", {}, `${one.failed_at - 1} loaded, the next failed`)));
      }
    });
    return el("div", {}, el("h3", {}, title), drawn.svg);
  };
  put(section,
    el("h2", {}, "Memory and time against contexts"),
    el("div", {class: "legend"}, found.map((one, number_) => el("a", {href: "#", onclick: event => { event.preventDefault(); open(one.case); }},
      el("i", {style: `background:${LINES[number_]}`}), middle(data.short(one.case))))),
    el("div", {class: "charts"},
      estimates(found.filter(one => one.estimate_bytes && one.failed_at !== null), width),
      chart(one => one.rss_bytes, megabytes, "resident memory", "Memory of the process after each"),
      chart(one => one.load_us, micros, "time", "Time to load each")),
    el("p", {class: "dim"}, "✕: the next context failed to load.",
      all.length > found.length ? ` Drawn are ${found.length} of ${number(all.length)} cases, failed ones first; the filters below choose others.` : ""));
}

// The backend's estimate of what the contexts take in a protection domain, up to the one that it refused.
function estimates(found, width) {
  if (!found.length) return null;
  found = [...new Map(found.map(one => [`${one.failed_at} ${one.estimate_bytes}`, one])).values()];
  const title = "Estimated memory in the protection domain (PD)", most = Math.max(...found.map(one => one.failed_at));
  const highest = Math.max(...found.map(one => one.failed_at * one.estimate_bytes));
  const drawn = frame({width, x: [0, most], y: [0, highest * 1.06], xLabel: "contexts loaded", yLabel: "estimate", yText: megabytes, title});
  const edges = found.map(one => {
    const colour = LINES[one.line], [fits, refused] = [one.failed_at - 1, one.failed_at].map(count => count * one.estimate_bytes);
    drawn.svg.append(
      el("rect", {x: drawn.left, width: drawn.width - drawn.left - drawn.right, y: drawn.toY(refused), height: drawn.toY(fits) - drawn.toY(refused), fill: colour, "fill-opacity": 0.18},
        el("title", {}, `the PD is full between ${megabytes(fits)} and ${megabytes(refused)}`)),
      el("line", {x1: drawn.toX(0), y1: drawn.toY(0), x2: drawn.toX(refused / one.estimate_bytes), y2: drawn.toY(refused), stroke: colour, "stroke-width": 1.8}));
    return el("span", {}, el("i", {style: `background:${colour}`}), `PD full: ${one.failed_at - 1} fit, ${megabytes(fits)} to ${megabytes(refused)}`);
  });
  return el("div", {}, el("h3", {}, title), drawn.svg, el("div", {class: "legend"}, edges));
}

// How the times of one case are distributed: bars of a histogram, and its percentiles.
function distribution(name, values) {
  const ordered = [...values].sort((a, b) => a - b), low = ordered[0], high = ordered[ordered.length - 1] || 1;
  const bins = binned(ordered, low, high, 40), most = Math.max(...bins), title = `Distribution of ${name}, ${ordered.length} values`;
  const drawn = frame({width: 640, x: [low, high], y: [0, most * 1.12], xLabel: name, yLabel: "values", yText: number, xText: micros, title});
  const wide = (drawn.toX(high) - drawn.toX(low)) / 40;
  bins.forEach((count, at) => count && drawn.svg.append(el("rect", {x: drawn.toX(low) + at * wide, width: Math.max(1, wide - 1), y: drawn.toY(count),
    height: drawn.toY(0) - drawn.toY(count), fill: LINES[0], "fill-opacity": 0.75}, el("title", {}, counted(count, "value")))));
  const marks = [50, 90, 99].map(percent => [percent, percentile(ordered, percent)]);
  marks.forEach(([percent, value], line) => drawn.svg.append(el("line", {x1: drawn.toX(value), x2: drawn.toX(value), y1: drawn.top, y2: drawn.height - drawn.bottom,
    stroke: LINES[line + 1], "stroke-width": 2, "stroke-dasharray": "5 3"})));
  return el("figure", {}, el("figcaption", {}, title), drawn.svg, el("div", {class: "legend"},
    marks.map(([percent, value], line) => el("span", {}, el("i", {style: `background:${LINES[line + 1]}`}), `p${percent} ${micros(value)}`))));
}

function times(data, shown, section, open) {
  const names = data.figureNames.filter((_, place) => shown.some(at => data.figures(at).some(one => one[0] === place)));
  if (!names.length) { section.replaceChildren(); return; }
  const name = names.includes(state.get("time")) ? state.get("time") : names.includes("execute_us") ? "execute_us" : names[0];
  const axes = data.axisNames.filter(axis => tellsApart(data, axis, shown));
  const by = axes.includes(state.get("by")) ? state.get("by") : ["suite", "workload"].find(axis => axes.includes(axis)) ?? axes[0];
  const place = data.figureNames.indexOf(name);
  const groups = new Map();
  for (const at of shown) {
    const figure = data.figures(at).find(one => one[0] === place);
    if (!figure) continue;
    const key = by ? data.value(by, at) : "all";
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push([at, figure]);
  }
  const listed = by ? data.valuesOf(by).filter(key => groups.has(key)).slice(0, 40).map(key => [key, groups.get(key)]) : [...groups];
  const medians = listed.flatMap(([, list]) => list.flatMap(([, one]) => [one[2], one[6]])).filter(value => value > 0);
  if (!medians.length) { section.replaceChildren(); return; }
  const low = Math.log10(Math.min(...medians)), high = Math.max(Math.log10(Math.max(...medians)), low + 0.3);
  const width = widthOf(section), height = listed.length * 26 + 54, left = width > 600 ? 170 : 100;
  const parts = high - low < 1.2 ? [1, 2, 3, 5, 7] : width < 600 ? [1] : [1, 3];
  const toX = value => left + (Math.log10(Math.max(value, 1e-9)) - low) / (high - low) * (width - left - 20);
  const svg = el("svg", {class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${name} by ${by}`});
  for (let power = Math.floor(low); power <= Math.ceil(high); power++) {
    for (const part of parts) {
      const value = part * 10 ** power;
      if (Math.log10(value) < low || Math.log10(value) > high) continue;
      svg.append(el("line", {class: "grid", x1: toX(value), x2: toX(value), y1: 4, y2: height - 40}),
        el("text", {x: toX(value), y: height - 24, "text-anchor": "middle"}, micros(value)));
    }
  }
  svg.append(el("text", {x: width - 20, y: height - 6, "text-anchor": "end"}, `${name}, on a logarithmic scale`));
  listed.forEach(([key, list], line) => {
    const y = 16 + line * 26;
    svg.append(el("text", {class: "ink", x: left - 8, y: y + 4, "text-anchor": "end"}, shortened(key, width > 600 ? 26 : 13)));
    const bins = new Map();
    for (const [, one] of list) { const bin = Math.round(toX(one[4]) / 6); bins.set(bin, [...bins.get(bin) ?? [], one[4]]); }
    const highest = Math.max(...[...bins.values()].map(one => one.length));
    // of many cases dots would be a blot
    if (list.length > 60) for (const [bin, values] of bins) {
      const tall = Math.max(2, 20 * Math.sqrt(values.length / highest));
      svg.append(el("rect", {x: bin * 6 - 2.5, y: y + 10 - tall, width: 5, height: tall, fill: LINES[0], "fill-opacity": 0.75},
        el("title", {}, `${counted(values.length, "case")} with a median of about ${micros(values[0])}`)));
    }
    else list.forEach(([at, [, n, least, quarter, middle, three, most]]) => {
      svg.append(el("line", {x1: toX(quarter), x2: toX(three), y1: y, y2: y, stroke: LINES[0], "stroke-opacity": 0.35, "stroke-width": 5}),
        el("circle", {cx: toX(middle), cy: y, r: 3.4, fill: LINES[0], "fill-opacity": 0.6, style: "cursor:pointer", onclick: () => open(at)},
          el("title", {}, `${data.short(at)}: ${counted(n, "value")}, ${micros(least)} to ${micros(most)}, median ${micros(middle)}`)));
    });
    const all = list.map(([, one]) => one[4]).sort((a, b) => a - b), middle = all[Math.floor(all.length / 2)];
    svg.append(el("line", {x1: toX(middle), x2: toX(middle), y1: y - 9, y2: y + 9, stroke: LINES[1], "stroke-width": 2}));
  });
  put(section,
    el("h2", {}, "Times"),
    el("div", {class: "row noprint"}, select("time", names, name, value => change({time: value})),
      by ? select("by", axes, by, value => change({by: value})) : null,
      el("span", {class: "dim"}, "dot: the median of a case, with its quartiles; bars: medians of many cases; line: the median of all")),
    svg);
}
