// The charts of one direction of a connection. Times are nanoseconds since its first segment, places are numbers of the sender's text.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const node = (id) => document.getElementById(id);
  const KINDS = ["new text", "retransmission", "out of order", "keep-alive"];
  const MARKS = ["SYN", "FIN", "RST", "zero window", "duplicate ACK"];
  const LETTERS = ["S", "F", "R", "Z", "·"];
  const FLAGS = [[2, "SYN"], [1, "FIN"], [4, "RST"], [8, "PSH"], [16, "ACK"]];
  const NEAR = 12; // pixels from the pointer to what it names
  const LOOKED_AT = 4000; // that many neighbours at most
  const hidden = new Set();
  let shown = data.directions[data.first] || data.directions[0];
  let view = null; // [from, to], seconds
  let places = null; // [low, high] of the time-sequence chart; null: all in view
  let charts = [];
  let colors = {};

  // Numbers with units, three digits.
  const digits = (n) => n.toLocaleString("en", { maximumSignificantDigits: 3 });
  const scaled = (n, units, base) => {
    let i = 0;
    while (Math.abs(n) >= base * 0.9995 && i < units.length - 1) { n /= base; i += 1; }
    return digits(n) + " " + units[i];
  };
  const count = (n) => scaled(n, ["", "k", "M", "G", "T"], 1000).trim();
  const bytes = (n) => scaled(n, ["B", "kB", "MB", "GB"], 1000);
  const bits = (n) => scaled(n * 8, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"], 1000);
  const span = (ns) => ns === 0 ? "0 s" : scaled(ns, ["ns", "µs", "ms", "s"], 1000);
  const moment = (ns) => (ns / 1e9).toFixed(9).replace(/0{1,6}$/, "") + " s";
  const whole = (n) => n.toLocaleString("en");

  // The first index whose time is not before `time`.
  const first = (times, time) => {
    let low = 0, high = times.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[middle] < time) low = middle + 1; else high = middle;
    }
    return low;
  };

  // What is drawn in each chart: `values` is a line or points, `bars` go from one place to another, `marks` are letters.
  const is = (kind) => (i, of) => of.kind[i] === kind;
  const sent = (of, i) => "segment: " + moment(of.time[i]) + "\n" + whole(of.begin[i]) + " to " + whole(of.end[i]) + " (" +
    whole(of.end[i] - of.begin[i]) + ")\n" + KINDS[of.kind[i]] + ", " + FLAGS.filter(([bit]) => of.flags[i] & bit).map(([, name]) => name).join(" ");
  const block = (of, i) => (of.again[i] ? "D-SACK: " : "SACK: ") + moment(of.time[i]) + "\n" + whole(of.begin[i]) + " to " + whole(of.end[i]);
  const answer = (of, i) => (of.again[i] ? "duplicate ACK: " : "ACK: ") + moment(of.time[i]) + "\nacknowledges " + whole(of.ack[i]) +
    "\nwindow " + bytes(of.window[i]) + (shown.is_scaled ? "" : " (not scaled)");
  const mark = (of, i) => MARKS[of.what[i]] + " of the " + of.from[i] + ": " + moment(of.time[i]) + "\nat " + whole(of.place[i]);
  const layers = (d) => {
    const edges = d.answers.ack.map((ack, i) => ack + d.answers.window[i]);
    const no = d.is_scaled ? "" : " (not scaled)";
    const bar = (key, label, color, of, only, text) => ({ key, label, color, type: "bars", of, only, text });
    const line = (key, label, color, times, values, more) => ({ key, label, color, type: "line", times, values, stepped: true, ...more });
    return [
      { title: "Time-sequence", format: count, height: 440, layers: [
        line("edge", "window edge" + no, "edge", d.answers.time, edges, { loose: true }),
        bar("sack", "SACK blocks", "sack", d.blocks, (i, of) => !of.again[i], block),
        bar("twice", "D-SACK blocks", "twice", d.blocks, (i, of) => of.again[i] > 0, block),
        line("ack", "acknowledged", "ack", d.answers.time, d.answers.ack, { of: d.answers, text: answer }),
        bar("sent", "segments", "sent", d.bars, is(0), sent),
        bar("probe", "keep-alives", "sent", d.bars, is(3), sent),
        bar("late", "out of order", "late", d.bars, is(2), sent),
        bar("again", "retransmissions", "again", d.bars, is(1), sent),
        { key: "marks", label: "marks (" + LETTERS.map((letter, i) => letter + " " + MARKS[i]).join(", ") + ")", color: "ink", type: "marks", of: d.marks, text: mark },
      ] },
      { title: "Bytes in flight and receive window", format: bytes, height: 190, layers: [
        line("window", "receive window" + no, "edge", d.answers.time, d.answers.window, { loose: true, unit: bytes }),
        line("flight", "in flight", "sent", d.flight[0], d.flight[1], { unit: bytes }),
      ] },
      { title: "Round-trip time", format: span, height: 170, layers: [
        line("trips", "from text to its ACK", "ack", d.round_trips[0], d.round_trips[1], { unit: span, dots: true }),
      ] },
      { title: "Rates, in each " + span(d.interval), format: bits, height: 180, layers: [
        line("throughput", "sent", "sent", d.throughput[0], d.throughput[1], { unit: bits, stepped: false }),
        line("goodput", "goodput (acknowledged)", "ack", d.goodput[0], d.goodput[1], { unit: bits, stepped: false }),
      ] },
    ].map((chart) => ({ ...chart, layers: chart.layers.filter(hasAny) }));
  };
  const hasAny = (layer) => layer.type === "line" ? layer.times.length > 0
    : layer.type === "bars" ? layer.of.time.some((_, i) => layer.only(i, layer.of)) : layer.of.time.length > 0;
  const isOn = (layer) => !hidden.has(layer.key);
  const times = (layer) => layer.type === "line" ? layer.times : layer.of.time;
  const low = (layer, i) => layer.type === "line" ? layer.values[i] : layer.type === "bars" ? layer.of.begin[i] : layer.of.place[i];
  const high = (layer, i) => layer.type === "bars" ? layer.of.end[i] : low(layer, i);

  // From the lowest to the highest value in view. A window far above what is sent does not flatten that.
  const extent = (chart) => {
    let [least, most, loose] = [Infinity, -Infinity, -Infinity];
    for (const layer of chart.layers.filter(isOn)) {
      const all = times(layer);
      const begin = Math.max(0, first(all, view[0] * 1e9) - (layer.stepped ? 1 : 0));
      for (let i = begin; i < all.length && all[i] <= view[1] * 1e9; i += 1) {
        if (layer.loose) { loose = Math.max(loose, high(layer, i)); continue; }
        least = Math.min(least, low(layer, i));
        most = Math.max(most, high(layer, i));
      }
    }
    const isSequence = chart.layers.some((layer) => layer.type === "marks" || layer.type === "bars");
    if (most === -Infinity) [least, most] = [0, Math.max(loose, 1)];
    if (!isSequence) least = 0;
    const size = Math.max(most - least, 1);
    most = Math.max(most, Math.min(loose, isSequence ? most + size / 2 : Math.max(most, 1) * 4));
    const room = Math.max(most - least, 1) * 0.05;
    return [isSequence ? least - room : 0, most + room];
  };

  // Drawing: canvas pixels of a time and a value.
  const mapper = (u) => {
    const { left, top, width, height } = u.bbox;
    const [x, y] = [u.scales.x, u.scales.y];
    return {
      x: (ns) => left + (ns / 1e9 - x.min) / (x.max - x.min) * width,
      y: (value) => top + height - (value - y.min) / (y.max - y.min) * height,
    };
  };
  const drawBars = (u, layer, to) => {
    const { of, only } = layer, { ctx } = u;
    const isOfMany = layer.key === "sent" || layer.key === "sack"; // others are looked for
    const wide = (isOfMany ? 1 : 3) * devicePixelRatio, least = (isOfMany ? 2 : 8) * devicePixelRatio;
    ctx.globalAlpha = layer.key === "sack" ? 0.5 : 1;
    let [column, top, bottom] = [NaN, 0, 0];
    const flush = () => {
      const more = Math.max(least - (bottom - top), 0);
      if (column === column) ctx.fillRect(column - wide / 2, top - more / 2, wide, bottom - top + more);
    };
    for (let i = first(of.time, view[0] * 1e9); i < of.time.length && of.time[i] <= view[1] * 1e9; i += 1) {
      if (!only(i, of)) continue;
      const [x, above, below] = [Math.round(to.x(of.time[i])), to.y(of.end[i]), to.y(of.begin[i])];
      if (x === column && above <= bottom + 1 && below >= top - 1) {
        top = Math.min(top, above); bottom = Math.max(bottom, below);
        continue;
      }
      flush();
      [column, top, bottom] = [x, above, below];
    }
    flush();
    ctx.globalAlpha = 1;
  };
  const drawLine = (u, layer, to) => {
    const { ctx } = u, { times, values } = layer;
    const end = view[1] * 1e9;
    let i = Math.max(0, first(times, view[0] * 1e9) - 1);
    if (layer.dots) {
      for (let seen = ""; i < times.length && times[i] <= end; i += 1) {
        const [x, y] = [Math.round(to.x(times[i])), Math.round(to.y(values[i]))];
        const size = 3 * devicePixelRatio;
        if (seen !== x + " " + y) ctx.fillRect(x - size / 2, y - size / 2, size, size);
        seen = x + " " + y;
      }
      return;
    }
    ctx.beginPath();
    let [column, least, most, last, isBegun] = [NaN, 0, 0, 0, false];
    const flush = () => { if (column === column && least !== most) { ctx.moveTo(column, least); ctx.lineTo(column, most); ctx.moveTo(column, last); } };
    for (; i < times.length; i += 1) {
      const [x, y] = [Math.round(to.x(times[i])), to.y(values[i])];
      if (x === column) { least = Math.min(least, y); most = Math.max(most, y); last = y; } else {
        flush();
        if (!isBegun) ctx.moveTo(x, y); else if (layer.stepped) { ctx.lineTo(x, last); ctx.lineTo(x, y); } else ctx.lineTo(x, y);
        [column, least, most, last, isBegun] = [x, y, y, y, true];
      }
      if (times[i] > end) break;
    }
    flush();
    ctx.lineWidth = devicePixelRatio * (layer.loose ? 1 : 1.5);
    ctx.stroke();
  };
  const drawMarks = (u, layer, to) => {
    const { of } = layer, { ctx } = u, seen = new Set();
    ctx.font = 13 * devicePixelRatio + "px system-ui, sans-serif";
    ctx.textAlign = "center";
    for (let i = first(of.time, view[0] * 1e9); i < of.time.length && of.time[i] <= view[1] * 1e9; i += 1) {
      const [x, y] = [Math.round(to.x(of.time[i])), Math.round(to.y(of.place[i]))];
      const cell = of.what[i] === 4 ? 1 : 10 * devicePixelRatio; // letters that lie over each other cannot be read
      const key = Math.floor(x / cell) + " " + Math.floor(y / cell) + " " + of.what[i];
      if (seen.has(key)) continue;
      seen.add(key);
      ctx.fillStyle = [colors.ink, colors.ink, colors.again, colors.edge, colors.ack][of.what[i]];
      ctx.fillText(LETTERS[of.what[i]], x, y - 4 * devicePixelRatio);
    }
  };
  const draw = (u, chart) => {
    const { ctx, bbox } = u, to = mapper(u);
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const layer of chart.layers.filter(isOn)) {
      ctx.fillStyle = ctx.strokeStyle = colors[layer.color];
      ({ bars: drawBars, line: drawLine, marks: drawMarks })[layer.type](u, layer, to);
    }
    ctx.restore();
  };

  // What the pointer is at: the nearest thing of the time-sequence chart, the values at this time of the others.
  const nearest = (u, chart, px, py) => {
    let best = null, least = NEAR;
    const at = (time) => u.valToPos(time / 1e9, "x"), place = (value) => u.valToPos(value, "y");
    const from = u.posToVal(px - NEAR, "x") * 1e9, until = u.posToVal(px + NEAR, "x") * 1e9;
    for (const layer of chart.layers.filter((layer) => isOn(layer) && layer.text)) {
      const all = times(layer);
      let looked = 0;
      for (let i = first(all, from); i < all.length && all[i] <= until && looked < LOOKED_AT; i += 1, looked += 1) {
        if (layer.only && !layer.only(i, layer.of)) continue;
        const [x, above, below] = [at(all[i]), place(high(layer, i)), place(low(layer, i))];
        const far = Math.hypot(x - px, Math.max(above - py, py - below, 0));
        if (far < least) { least = far; best = { x, y: Math.min(Math.max(py, above), below), text: layer.text(layer.of, i) }; }
      }
    }
    return best;
  };
  const valuesAt = (u, chart, px) => {
    const time = u.posToVal(px, "x") * 1e9, lines = [];
    let spot = null;
    for (const layer of chart.layers.filter((layer) => isOn(layer) && layer.unit)) {
      let i = first(layer.times, time);
      if (layer.stepped && !layer.dots) i -= 1;
      else if (i > 0 && (i >= layer.times.length || time - layer.times[i - 1] < layer.times[i] - time)) i -= 1;
      if (i < 0 || i >= layer.times.length) continue;
      lines.push(layer.label + ": " + layer.unit(layer.values[i]));
      if (layer.dots) spot = { x: u.valToPos(layer.times[i] / 1e9, "x"), y: u.valToPos(layer.values[i], "y"), time: layer.times[i] };
    }
    if (lines.length === 0) return null;
    return { x: spot ? spot.x : px, y: spot ? spot.y : null, text: moment(spot ? spot.time : Math.max(time, 0)) + "\n" + lines.join("\n") };
  };
  const point = (u, chart) => {
    const { left, top } = u.cursor, { hint, spot } = chart;
    const isHere = chart.isEntered && left >= 0 && top >= 0;
    const found = isHere ? nearest(u, chart, left, top) || valuesAt(u, chart, left) : null;
    hint.hidden = !found;
    spot.hidden = !found || found.y === null;
    if (!found) return;
    hint.textContent = found.text;
    const right = found.x + 14 + hint.offsetWidth > u.over.clientWidth;
    hint.style.left = Math.max(0, right ? found.x - 14 - hint.offsetWidth : found.x + 14) + "px";
    hint.style.top = Math.max(0, Math.min(top, u.over.clientHeight - hint.offsetHeight)) + "px";
    if (found.y !== null) { spot.style.left = found.x + "px"; spot.style.top = found.y + "px"; }
  };

  // What is in view.
  const length = () => Math.max(shown.duration / 1e9, 1e-6);
  const [earliest, latest] = [() => -0.01 * length(), () => 1.01 * length()]; // marks at both ends have room
  const show = (from, until, between) => {
    const size = Math.min(Math.max(until - from, 1e-8), latest() - earliest());
    from = Math.min(Math.max(from, earliest()), latest() - size);
    view = [from, from + size];
    places = between || null;
    for (const chart of charts) {
      const [least, most] = chart.isFirst && places ? places : extent(chart);
      chart.u.batch(() => {
        chart.u.setScale("x", { min: view[0], max: view[1] });
        chart.u.setScale("y", { min: least, max: most });
      });
    }
  };
  const zoom = (factor, around) => {
    const middle = around === undefined ? (view[0] + view[1]) / 2 : around;
    show(middle - (middle - view[0]) * factor, middle + (view[1] - middle) * factor);
  };
  const move = (part) => { const by = (view[1] - view[0]) * part; show(view[0] + by, view[1] + by, places); };
  const moves = { left: () => move(-0.25), right: () => move(0.25), in: () => zoom(0.5), out: () => zoom(2), all: () => show(earliest(), latest()) };
  const keys = { ArrowLeft: "left", ArrowRight: "right", "+": "in", "=": "in", "-": "out", 0: "all", Escape: "all" };
  const selected = (u, chart) => {
    const { left, top, width, height } = u.select;
    if (width < 3) return;
    const between = chart.isFirst && height > 3 && height < u.over.clientHeight - 3
      ? [u.posToVal(top + height, "y"), u.posToVal(top, "y")] : null;
    const [from, until] = [u.posToVal(left, "x"), u.posToVal(left + width, "x")];
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    show(from, until, between);
  };
  // Shift and the mouse, the middle button, or a finger moves; two fingers zoom.
  const listen = (u, chart) => {
    const fingers = new Map();
    const seconds = (px) => u.posToVal(px, "x");
    let held = null;
    const at = (event) => event.clientX - u.over.getBoundingClientRect().left;
    u.over.addEventListener("mouseenter", () => { chart.isEntered = true; });
    u.over.addEventListener("mouseleave", () => { chart.isEntered = false; point(u, chart); });
    u.over.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "mouse" && !event.shiftKey && event.button !== 1) return;
      event.preventDefault();
      u.over.setPointerCapture(event.pointerId);
      fingers.set(event.pointerId, at(event));
      held = { view, places, from: [...fingers.values()] };
    });
    u.over.addEventListener("pointermove", (event) => {
      if (!held || !fingers.has(event.pointerId)) return;
      fingers.set(event.pointerId, at(event));
      const now = [...fingers.values()], [a, b] = held.from;
      const each = (held.view[1] - held.view[0]) / u.over.clientWidth;
      if (now.length > 1 && b !== undefined) {
        const factor = Math.abs(b - a) / Math.max(Math.abs(now[1] - now[0]), 1);
        const middle = held.view[0] + each * (a + b) / 2;
        show(middle - (middle - held.view[0]) * factor, middle + (held.view[1] - middle) * factor);
      } else {
        const by = (a - now[0]) * each;
        show(held.view[0] + by, held.view[1] + by, held.places);
      }
    });
    const up = (event) => { if (fingers.delete(event.pointerId)) held = fingers.size > 0 ? { view, places, from: [...fingers.values()] } : null; };
    u.over.addEventListener("pointerup", up);
    u.over.addEventListener("pointercancel", up);
    u.over.addEventListener("wheel", (event) => {
      if (event.ctrlKey || event.metaKey) { event.preventDefault(); zoom(event.deltaY < 0 ? 0.8 : 1.25, seconds(at(event))); }
      else if (event.deltaX !== 0) { event.preventDefault(); move(event.deltaX / u.over.clientWidth); }
    }, { passive: false });
    u.over.addEventListener("dblclick", moves.all);
    u.root.parentElement.addEventListener("keydown", (event) => {
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      moves[keys[event.key]]();
    });
  };

  // The page.
  const element = (name, parent, properties) => parent.appendChild(Object.assign(document.createElement(name), properties));
  const axis = (format) => ({
    stroke: () => colors.ink, grid: { stroke: () => colors.grid, width: 1 }, ticks: { stroke: () => colors.line, width: 1 },
    values: (_, all) => all.map(format), font: "12px system-ui, sans-serif",
  });
  const options = (chart, width) => ({
    width, height: chart.tall, legend: { show: false }, padding: [8, 12, 0, 0],
    scales: { x: { time: false, auto: false, min: view[0], max: view[1] }, y: { auto: false, min: 0, max: 1 } },
    series: [{}, {}],
    axes: [{ ...axis((s) => span(Math.round(s * 1e9))), size: 32, space: 70 }, { ...axis(chart.format), size: 78 }],
    cursor: {
      y: false, points: { show: false }, drag: { setScale: false, x: true, y: chart.isFirst, uni: 24 },
      sync: { key: "plot", setSeries: false, filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
      bind: { dblclick: () => null, mousedown: (u, target, handler) => (event) => { if (!event.shiftKey) handler(event); } },
    },
    hooks: { draw: [(u) => draw(u, chart)], setCursor: [(u) => point(u, chart)], setSelect: [(u) => selected(u, chart)] },
  });
  const legend = (chart, parent) => {
    const row = element("div", parent, { className: "layers" });
    for (const layer of chart.layers) {
      const button = element("button", row, { type: "button" });
      element("i", button, {}).style.setProperty("--of", "var(--" + layer.color + ")");
      element("span", button, { textContent: layer.label });
      const press = () => button.setAttribute("aria-pressed", String(isOn(layer)));
      button.addEventListener("click", () => {
        if (!hidden.delete(layer.key)) hidden.add(layer.key);
        press();
        show(view[0], view[1], places);
      });
      press();
    }
  };
  const build = () => {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["ink", "grid", "line", "sent", "again", "late", "ack", "edge", "sack", "twice"]) colors[name] = style.getPropertyValue("--" + name).trim();
    for (const { u } of charts) u.destroy();
    const parent = node("charts");
    parent.replaceChildren();
    const before = view || [earliest(), latest()];
    view = before;
    charts = layers(shown).map((chart, i) => {
      element("h2", parent, { textContent: chart.title });
      if (chart.layers.length === 0) {
        element("p", parent, { className: "none", textContent: "nothing of it is in the capture" });
        return null;
      }
      const box = element("div", parent, { className: "chart", tabIndex: 0 });
      box.setAttribute("role", "group");
      box.setAttribute("aria-label", chart.title);
      chart.isFirst = i === 0;
      chart.tall = innerWidth < 600 ? Math.round(chart.height * 0.75) : chart.height;
      chart.box = box;
      chart.u = new uPlot(options(chart, box.clientWidth), [[0, latest()], [null, null]], box);
      chart.hint = element("div", chart.u.over, { className: "hint", hidden: true });
      chart.spot = element("div", chart.u.over, { className: "spot", hidden: true });
      legend(chart, parent);
      listen(chart.u, chart);
      return chart;
    }).filter((chart) => chart !== null);
    show(before[0], before[1], places);
  };
  const choose = (direction) => {
    shown = direction;
    [...node("directions").children].forEach((button, i) => button.setAttribute("aria-pressed", String(data.directions[i] === shown)));
    node("facts").replaceChildren();
    for (const [name, value] of shown.facts) {
      const row = element("div", node("facts"), {});
      element("dt", row, { textContent: name });
      element("dd", row, { textContent: value });
    }
    places = null;
    build();
  };

  document.title = data.title + " - netchan plot";
  node("title").textContent = data.title;
  const begin = new Date(data.begin_ms);
  if (!Number.isNaN(begin.getTime())) node("begin").textContent = "begins " + begin.toISOString().replace("T", " ").replace("Z", " UTC");
  for (const note of data.notes) element("li", node("notes"), { textContent: note });
  for (const direction of data.directions) {
    const button = element("button", node("directions"), { type: "button", textContent: direction.title });
    button.addEventListener("click", () => choose(direction));
  }
  for (const button of node("moves").children) button.addEventListener("click", () => moves[button.dataset.move]());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", build);
  new ResizeObserver(() => {
    for (const { u, box, tall } of charts) if (box.clientWidth > 0 && box.clientWidth !== u.width) u.setSize({ width: box.clientWidth, height: tall });
  }).observe(node("charts"));
  choose(shown);
})();
