// Charts of the cases that the filters leave: heat map, ladder of contexts, times, timeline.

const ORDER = ["failed", "crashed", "hung", "error", "expected", "passed", "skipped", "unsupported"];
const LINES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#56b4e9"];

function heat(data, shown, section) {
  const names = data.axisNames.filter(name => tellsApart(data, name, shown));
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
      const worst = ORDER.find(name => found.some(at => data.state(at) === name));
      const passed = found.filter(at => data.state(at) === "passed").length;
      const tested = found.filter(at => !["unsupported", "skipped"].includes(data.state(at))).length;
      const text = found.length === 1 || !tested ? worst : `${passed} of ${tested}`;
      const set = {["a." + row]: value, ["a." + column]: other};
      return el("td", {}, el("button", {class: "o-" + worst, title: `${row} ${value}, ${column} ${other}: ${tally(data, found)}`,
        onclick: () => { change(set); document.getElementById("cases").scrollIntoView(); }}, text));
    })))));
  put(section,
    el("h2", {}, "Any two axes"),
    el("div", {class: "row noprint"},
      select("rows", names, row, value => change({rows: value})),
      select("columns", names.filter(name => name !== row), column, value => change({columns: value})),
      el("span", {class: "dim"}, "passed of those that could be tested; the colour is the worst outcome")),
    el("div", {class: "scroll"}, table));
}

function spread(data, name, shown) {
  // how much the share of what passed differs between the values of an axis
  const by = new Map();
  for (const at of shown) {
    if (data.state(at) === "unsupported" || data.state(at) === "skipped") continue;
    const value = data.value(name, at), seen = by.get(value) ?? [0, 0];
    seen[0] += data.state(at) === "passed"; seen[1] += 1;
    by.set(value, seen);
  }
  const shares = [...by.values()].map(([passed, all]) => passed / all);
  const values = by.size;
  return values < 2 ? -1 : Math.max(...shares) - Math.min(...shares) + Math.min(values, 12) / 100;
}

function tally(data, found) {
  return ORDER.map(name => [name, found.filter(at => data.state(at) === name).length])
    .filter(([, count]) => count).map(([name, count]) => `${count} ${name}`).join(", ");
}

// A frame with lines at round values; `x` and `y` map values to places in it.
function frame({width = 1000, height = 240, x, y, xLabel, yText, xText = number, title}) {
  const left = 70, right = 16, top = 10, bottom = 34;
  const toX = value => left + (value - x[0]) / ((x[1] - x[0]) || 1) * (width - left - right);
  const toY = value => height - bottom - (value - y[0]) / ((y[1] - y[0]) || 1) * (height - top - bottom);
  const svg = el("svg", {class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title});
  for (const value of ticks(y[0], y[1])) {
    svg.append(el("line", {class: "grid", x1: left, x2: width - right, y1: toY(value), y2: toY(value)}),
      el("text", {x: left - 6, y: toY(value) + 4, "text-anchor": "end"}, yText(value)));
  }
  for (const value of ticks(x[0], x[1], 10)) svg.append(el("text", {x: toX(value), y: height - bottom + 15, "text-anchor": "middle"}, xText(value)));
  svg.append(el("text", {x: width - right, y: height - 4, "text-anchor": "end"}, xLabel));
  return {svg, toX, toY, width, height, left, right, top, bottom};
}

function ladder(data, shown, section, open) {
  const wanted = new Set(shown);
  const found = data.ladders.filter(one => wanted.has(one.case)).slice(0, LINES.length);
  if (!found.length) { section.replaceChildren(); return; }
  const most = Math.max(...found.map(one => Math.max(one.loads, one.failed_at ?? 0, one.forecast ?? 0)));
  const chart = (values, text, title) => {
    const all = found.flatMap(values);
    if (!all.length) return null;
    const drawn = frame({x: [0, most], y: [0, Math.max(...all)], xLabel: "contexts loaded", yText: text, title, height: 220});
    found.forEach((one, number_) => {
      const list = values(one), step = one.loads / list.length;
      if (!list.length) return;
      const points = list.map((value, at) => `${drawn.toX((at + 1) * step).toFixed(1)},${drawn.toY(value).toFixed(1)}`);
      const colour = LINES[number_];
      drawn.svg.append(el("polyline", {points: points.join(" "), fill: "none", stroke: colour, "stroke-width": 1.8}));
      if (one.failed_at !== null) {
        const x = drawn.toX(one.failed_at), y = drawn.toY(list[list.length - 1]);
        drawn.svg.append(el("path", {d: `M${x - 5} ${y - 5}l10 10m0 -10l-10 10`, stroke: colour, "stroke-width": 2.5},
          el("title", {}, `load ${one.failed_at} failed`)));
      }
      if (one.forecast !== null) {
        const x = drawn.toX(one.forecast);
        drawn.svg.append(el("line", {x1: x, x2: x, y1: drawn.top, y2: drawn.height - drawn.bottom, stroke: colour, "stroke-dasharray": "4 4"},
          el("title", {}, `forecast: ${one.forecast} fit`)));
      }
    });
    return [el("h3", {}, title), drawn.svg];
  };
  const budgets = [...new Set(found.map(one => one.budget_bytes).filter(Boolean))];
  put(section,
    el("h2", {}, "Contexts, one after the other"),
    el("div", {class: "legend"}, found.map((one, number_) => el("a", {href: "#", onclick: event => { event.preventDefault(); open(one.case); }},
      el("i", {style: `background:${LINES[number_]}`}), data.short(one.case)))),
    chart(one => one.load_us, micros, "Time to load each"),
    chart(one => one.rss_bytes, megabytes, "Memory of the process after each"),
    el("p", {class: "dim"}, "✕ the load that failed, dashed: as many as were forecast to fit",
      budgets.length ? `; a protection domain (PD) holds ${budgets.map(megabytes).join(", ")}` : ""));
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
  const listed = [...groups].slice(0, 40);
  const medians = listed.flatMap(([, list]) => list.flatMap(([, one]) => [one[2], one[6]])).filter(value => value > 0);
  if (!medians.length) { section.replaceChildren(); return; }
  const low = Math.log10(Math.min(...medians)), high = Math.max(Math.log10(Math.max(...medians)), low + 0.3);
  const height = listed.length * 26 + 40, left = 170, width = 1000;
  const toX = value => left + (Math.log10(Math.max(value, 1e-9)) - low) / (high - low) * (width - left - 20);
  const svg = el("svg", {class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${name} by ${by}`});
  for (let power = Math.floor(low); power <= Math.ceil(high); power++) {
    for (const part of [1, 3]) {
      const value = part * 10 ** power;
      if (Math.log10(value) < low || Math.log10(value) > high) continue;
      svg.append(el("line", {class: "grid", x1: toX(value), x2: toX(value), y1: 4, y2: height - 26}),
        el("text", {x: toX(value), y: height - 10, "text-anchor": "middle"}, micros(value)));
    }
  }
  listed.forEach(([key, list], line) => {
    const y = 16 + line * 26;
    svg.append(el("text", {class: "ink", x: left - 8, y: y + 4, "text-anchor": "end"}, key.length > 26 ? key.slice(0, 25) + "…" : key));
    list.slice(0, 600).forEach(([at, [, n, least, quarter, middle, three, most]]) => {
      svg.append(el("line", {x1: toX(quarter), x2: toX(three), y1: y, y2: y, stroke: LINES[0], "stroke-opacity": 0.35, "stroke-width": 5}),
        el("circle", {cx: toX(middle), cy: y, r: 3.4, fill: LINES[0], "fill-opacity": 0.6, style: "cursor:pointer", onclick: () => open(at)},
          el("title", {}, `${data.short(at)}: ${n} values, ${micros(least)} to ${micros(most)}, median ${micros(middle)}`)));
    });
    const all = list.map(([, one]) => one[4]).sort((a, b) => a - b), middle = all[Math.floor(all.length / 2)];
    svg.append(el("line", {x1: toX(middle), x2: toX(middle), y1: y - 9, y2: y + 9, stroke: LINES[1], "stroke-width": 2}));
  });
  put(section,
    el("h2", {}, "Times"),
    el("div", {class: "row noprint"}, select("time", names, name, value => change({time: value})),
      by ? select("by", axes, by, value => change({by: value})) : null,
      el("span", {class: "dim"}, "a dot is a case's median, the band its quartiles, the line the median of all")),
    svg);
}

function timeline(data, shown, section, open) {
  const lanes = [...new Set([...shown.map(at => data.device(at)), ...data.events.map(event => event.device)])].slice(0, 60);
  if (!shown.length) { section.replaceChildren(); return; }
  const ends = [...shown.map(at => data.start(at) + data.seconds(at) * 1000), ...data.events.map(one => one.start + one.seconds * 1000)];
  const last = ends.reduce((a, b) => Math.max(a, b), 1) / 1000;
  const height = lanes.length * 34 + 40, left = 120, width = 1000;
  const toX = ms => left + ms / 1000 / last * (width - left - 10);
  const svg = el("svg", {class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `what ran when on ${lanes.length} devices, ${seconds(last)} in all`});
  for (const value of ticks(0, last, 8)) svg.append(
    el("line", {class: "grid", x1: toX(value * 1000), x2: toX(value * 1000), y1: 4, y2: height - 26}),
    el("text", {x: toX(value * 1000), y: height - 10, "text-anchor": "middle"}, value < 60 ? `${number(value)} s` : `${round3(value / 60)} min`));
  lanes.forEach((device, line) => {
    const top = 8 + line * 34;
    svg.append(el("text", {class: "ink", x: left - 8, y: top + 15, "text-anchor": "end"}, device.length > 18 ? device.slice(0, 17) + "…" : device));
    // as many as can be told apart: what begins within the same pixel is drawn once, the worst of it
    const drawn = new Map();
    for (const at of shown) {
      if (data.device(at) !== device) continue;
      const x = toX(data.start(at)), key = Math.round(x * 2), before = drawn.get(key);
      if (before === undefined || ORDER.indexOf(data.state(at)) < ORDER.indexOf(data.state(before))) drawn.set(key, at);
    }
    for (const at of drawn.values()) svg.append(el("rect", {class: "o-" + data.state(at), x: toX(data.start(at)).toFixed(1), y: top,
      width: Math.max(0.8, toX(data.seconds(at) * 1000) - left - 0.3).toFixed(1), height: 18, style: "cursor:pointer", onclick: () => open(at)},
      el("title", {}, `${data.short(at)}: ${data.state(at)}, ${seconds(data.seconds(at))}`)));
    for (const event of data.events.filter(one => one.device === device)) {
      const x = toX(event.start);
      svg.append(el("path", {d: `M${x} ${top + 21}l4 7h-8z`, fill: `var(--${{good: "passed", suspect: "skipped", bad: "error"}[event.state] ?? "skipped"})`},
        el("title", {}, `${event.event}: ${event.state}${event.celsius ? `, ${event.celsius} °C` : ""} ${event.detail}`)));
    }
  });
  const told = data.events.filter(one => one.event !== "health" || one.state !== "good").slice(0, 400);
  put(section, el("h2", {}, "When, on which device"), svg,
    told.length ? el("details", {}, el("summary", {}, `${told.length} events of devices`), el("div", {class: "scroll"}, el("table", {}, el("tbody", {},
      told.map(one => el("tr", {}, el("td", {}, seconds(one.start / 1000)), el("td", {class: "mono"}, one.device), el("td", {}, one.event),
        el("td", {}, one.state), el("td", {}, one.celsius ? `${one.celsius} °C` : ""), el("td", {}, one.detail))))))) : "");
}
