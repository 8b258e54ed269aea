// --- Graphs of what history.js keeps, and the load of devices below them, over the same time ---

const SPANS_MIN = [5, 15, 60];  // what is shown: the shortest that holds all
const GAP_SLOTS = 3;            // a line is broken where so many are missing
const QUANTILES = ["p50", "p99"];
const GRAPHS = [
  { id: "tokens", unit: "tokens/s", lines: ["in", "out"], words: ["in", "out"] },
  { id: "queue", unit: "requests", lines: ["running", "waiting"], words: ["running", "waiting"] },
  { id: "ttft", unit: "first token, ms", lines: ["first50", "first99"], words: QUANTILES },
  { id: "gaps", unit: "token gap, ms", lines: ["gap50", "gap99"], words: QUANTILES },
];
const ROW_PX = 15, ROWS_NAMED = 16, ROWS_PX = 240;  // of the load; more rows than can be named are thin
const LOADS = 5;                                    // levels, of a fifth each
const POINT = "Point at a graph to see what was then. Upright lines are the cluster's events: dotted, " +
  "or, where something was lost, solid with a head.";
let marks = [];   // events: {at: slot, bad, text}, the oldest first
let span = null;  // what is shown: {first, slots, shown}

/** The least of 1, 2, 5, 10, 20, ... that is not below the value. */
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}

/** A pen for a canvas as large as it is seen. */
function penOf(canvas) {
  canvas.width = Math.max(2, Math.floor(canvas.clientWidth * devicePixelRatio));
  canvas.height = Math.max(2, Math.floor(canvas.clientHeight * devicePixelRatio));
  return canvas.getContext("2d");
}

function stroke(pen, points) {
  pen.beginPath();
  points.forEach(([x, y], i) => (i === 0 ? pen.moveTo(x, y) : pen.lineTo(x, y)));
  pen.stroke();
}

/** The head's clock may be another than the browser's, by which samples are placed. */
function noteMarks(status, nowMs) {
  const apart = nowMs - 1000 * number((status.cluster || {}).time);
  marks = list(status.events).map((event) => ({
    at: Math.floor((1000 * number(event.time) + apart) / SLOT_MS), bad: isLoss(event),
    text: event.kind + ": " + event.text,
  }));
}

/** Over the whole height, from `left`: what happened, losses last and so above the rest. */
function drawMarks(pen, left) {
  const { width, height } = pen.canvas, size = 4 * devicePixelRatio;
  for (const bad of [false, true]) {
    pen.strokeStyle = pen.fillStyle = colour(bad ? "--bad" : "--faint");
    pen.lineWidth = (bad ? 1.5 : 0.75) * devicePixelRatio;
    pen.setLineDash(bad ? [] : [devicePixelRatio, 3 * devicePixelRatio]);
    for (const at of new Set(marks.filter((mark) => mark.bad === bad).map((mark) => mark.at))) {
      const x = left + ((width - left) * (at - span.first)) / (span.slots - 1);
      if (x < left || x > width) continue;
      stroke(pen, [[x, 0], [x, height]]);
      if (!bad) continue;
      pen.beginPath();
      pen.moveTo(x - size, 0);
      pen.lineTo(x + size, 0);
      pen.lineTo(x, 1.5 * size);
      pen.fill();
    }
  }
  pen.setLineDash([]);
}

function drawGraph(graph) {
  const pen = penOf($("graph-" + graph.id)), { width, height } = pen.canvas;
  const values = graph.lines.flatMap((name) => span.shown.map((s) => sampleValue(s, name) ?? 0));
  const top = ceiling(Math.max(0, ...values)), line = 2 * devicePixelRatio;
  pen.strokeStyle = colour("--line");
  pen.lineWidth = devicePixelRatio;
  for (const y of [0.5, 0.25 * height, 0.5 * height, 0.75 * height, height - 0.5])
    stroke(pen, [[0, y], [width, y]]);
  drawMarks(pen, 0);
  graph.lines.forEach((name, i) => {
    pen.strokeStyle = colour("--graph" + i);
    pen.lineWidth = line;
    pen.setLineDash(i === 0 ? [] : [3 * line, 1.5 * line]);
    pen.beginPath();
    let before = null;
    for (const sample of span.shown) {
      const value = sampleValue(sample, name);
      if (value === null) continue;
      const x = (width * (sample.at - span.first)) / (span.slots - 1);
      const y = line / 2 + (height - line) * (1 - value / top);
      const joined = before !== null && sample.at - before <= GAP_SLOTS;
      if (!joined) pen.moveTo(x - line, y);
      pen.lineTo(x, y);
      before = sample.at;
    }
    pen.stroke();
  });
  $("top-" + graph.id).textContent = short(top);
  const last = span.shown[span.shown.length - 1];
  graph.lines.forEach((name, i) => {
    const value = last ? sampleValue(last, name) : null;
    $("now-" + graph.id + "-" + i).textContent = value === null ? "-" : short(value);
  });
}

const natural = new Intl.Collator("en", { numeric: true });

function drawLoads() {
  const names = new Set(span.shown.flatMap((s) => Object.keys(s.counts)));
  const rows = [...names].filter((name) => name.startsWith(DEVICE)).sort(natural.compare);
  $("loads").hidden = rows.length === 0;
  if (rows.length === 0) return;
  const named = rows.length <= ROWS_NAMED, canvas = $("graph-loads");
  canvas.style.height = (named ? ROW_PX * rows.length : ROWS_PX) + "px";
  const pen = penOf(canvas), high = pen.canvas.height / rows.length;
  pen.font = 12 * devicePixelRatio + "px system-ui, sans-serif";
  const label = (name) => name.slice(DEVICE.length);
  const widest = Math.max(...rows.map((name) => pen.measureText(label(name)).width));
  const room = named ? Math.ceil(widest) + 8 * devicePixelRatio : 0;
  const left = Math.min(room, pen.canvas.width / 3);
  const wide = (pen.canvas.width - left) / span.slots, gap = high > 6 ? devicePixelRatio : 0;
  const levels = loadColours();
  rows.forEach((name, row) => {
    const y = Math.floor(row * high);
    pen.fillStyle = colour("--faint");
    if (named) pen.fillText(label(name), 0, y + 0.8 * high);
    for (const sample of span.shown) {
      const load = sampleValue(sample, name);
      if (load === null) continue;
      const x = left + Math.floor((sample.at - span.first) * wide);
      pen.fillStyle = levels[Math.min(LOADS - 1, Math.max(0, Math.floor(load * LOADS)))];
      pen.fillRect(x, y, Math.ceil(wide), Math.max(1, Math.floor(row * high + high) - y - gap));
    }
  });
  drawMarks(pen, left);
  Object.assign(span, { rows, left: left / devicePixelRatio });
  canvas.nextElementSibling.style.paddingLeft = span.left + "px";
}
const loadColours = () => Array.from({ length: LOADS }, (_, i) => colour("--heat" + i));

function drawHistory() {
  if (samples.length === 0 || $("panels").hidden) return;
  const nowSlot = samples[samples.length - 1].at, age = (nowSlot - samples[0].at) * SLOT_MS;
  const minutes = SPANS_MIN.find((m) => m * 60000 > age) ?? SPANS_MIN[SPANS_MIN.length - 1];
  const slots = (minutes * 60000) / SLOT_MS, first = nowSlot - slots + 1;
  span = { first, slots, shown: samples.filter((s) => s.at >= first) };
  GRAPHS.forEach(drawGraph);
  drawLoads();
  for (const text of document.querySelectorAll(".since")) text.textContent = minutes + " min ago";
}

/** Says what was where the pointer is: `told` makes words of a sample. */
function tellAt(canvas, told) {
  canvas.addEventListener("pointermove", (event) => {
    if (!span) return;
    const left = canvas.id === "graph-loads" ? span.left : 0;
    const part = (event.offsetX - left) / Math.max(1, canvas.clientWidth - left);
    const at = span.first + Math.round(Math.min(1, Math.max(0, part)) * (span.slots - 1));
    const near = (x) => Math.abs(x.at - at) <= span.slots / 200;
    const sample = span.shown.find((s) => s.at === at);
    const words = [sample ? told(sample, event) : "", ...marks.filter(near).map((m) => m.text)];
    $("then").textContent = new Date(at * SLOT_MS).toLocaleTimeString() + "  " +
      words.filter(Boolean).join("; ");
  });
  canvas.addEventListener("pointerleave", () => ($("then").textContent = POINT));
}

function makeGraph(id, name, keys, more) {
  const box = element("div", null, "graph"), head = element("div"), scale = element("div");
  head.append(element("b", name), ...keys);
  const canvas = element("canvas");
  canvas.id = "graph-" + id;
  canvas.setAttribute("aria-label", name + " over time");
  scale.className = "faint";
  scale.append(element("span", "", "since"), element("span", "now"));
  box.append(head, ...more, canvas, scale);
  return box;
}

function makeGraphs() {
  for (const graph of GRAPHS) {
    const keys = graph.words.map((words, i) => {
      const key = element("span", null, "key" + i), value = element("span", "-");
      value.id = "now-" + graph.id + "-" + i;
      key.append(element("i"), words + " ", value);
      return key;
    });
    const top = element("span", "", "top faint");
    top.id = "top-" + graph.id;
    $("graphs").append(makeGraph(graph.id, graph.unit, keys, [top]));
    tellAt($("graph-" + graph.id), (sample) =>
      graph.lines.map((name, i) => {
        const value = sampleValue(sample, name);
        return value === null ? "" : graph.words[i] + " " + short(value);
      }).filter(Boolean).join(", "));
  }
  const levels = Array.from({ length: LOADS }, (_, i) => {
    const box = element("i");
    box.style.background = "var(--heat" + i + ")";
    return box;
  });
  const key = element("span", null, "levels");
  key.append("idle ", ...levels, " busy");
  const loads = makeGraph("loads", "load of each device", [key], []);
  loads.id = "loads";
  $("graphs").after(loads);
  tellAt($("graph-loads"), (sample, event) => {
    const row = Math.floor((event.offsetY / Math.max(1, $("graph-loads").clientHeight)) * span.rows.length);
    const name = span.rows[Math.min(row, span.rows.length - 1)], load = sampleValue(sample, name);
    return load === null ? "" : name + " " + (100 * load).toFixed(0) + " %";
  });
  $("then").textContent = POINT;
}
