// --- The last hour ---

const SLOT_MS = 5000, SLOTS = 720;  // what is kept: an hour
const SPANS_MIN = [5, 15, 60];      // what is shown: the shortest that holds all
const GAP_SLOTS = 3;                // a line is broken where so many are missing
const GRAPHS = [
  { id: "tokens", unit: "tokens/s", lines: [["in", "prompt"], ["out", "generated"]] },
  { id: "queue", unit: "requests", lines: [["running", "running"], ["waiting", "waiting"]] },
  { id: "ttft", unit: "first token, ms", lines: [["p50", "p50"], ["p99", "p99"]] },
];
let samples = [];  // of slots, the oldest first; at most SLOTS

/** Adds what the status says to its slot: means, for what comes every second. */
function noteSample(status, nowMs) {
  const requests = status.requests || {}, rates = requests.rates || {}, ttft = rates.ttft_ms || {};
  const at = Math.floor(nowMs / SLOT_MS);
  const values = { in: rates.prompt_tokens_per_s, out: rates.generation_tokens_per_s,
                   running: requests.running, waiting: requests.waiting,
                   p50: ttft.p50, p99: ttft.p99 };
  let sample = samples[samples.length - 1];
  if (!sample || sample.at !== at) samples.push((sample = { at, sums: {}, counts: {} }));
  for (const [name, value] of Object.entries(values)) {
    if (typeof value !== "number" || !isFinite(value)) continue;
    sample.sums[name] = (sample.sums[name] || 0) + value;
    sample.counts[name] = (sample.counts[name] || 0) + 1;
  }
  // Also where the clock was set back.
  samples = samples.filter((s) => s.at > at - SLOTS && s.at <= at);
}

/** Takes slots that were over when the head was asked: lists of each figure, the newest last. */
function takeHistory(history, nowMs) {
  const ttft = history.ttft_ms || {};
  const lists = { in: history.prompt_tokens_per_s, out: history.generation_tokens_per_s,
                  running: history.running, waiting: history.waiting, p50: ttft.p50, p99: ttft.p99 };
  if (history.slot_s * 1000 !== SLOT_MS || !Array.isArray(lists.in)) return;
  const count = lists.in.length, at = Math.floor(nowMs / SLOT_MS);
  for (let i = Math.max(0, count - SLOTS + 1); i < count; i++) {
    const sample = {at: at - count + i, sums: {}, counts: {}};
    for (const [name, list] of Object.entries(lists)) {
      if (!Array.isArray(list) || typeof list[i] !== 'number') continue;
      sample.sums[name] = list[i];
      sample.counts[name] = 1;
    }
    samples.push(sample);
  }
}

const sampleValue = (sample, name) =>
  sample.counts[name] ? sample.sums[name] / sample.counts[name] : null;

/** The least of 1, 2, 5, 10, 20, ... that is not below the value. */
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}

function drawGraph(graph, slots, nowSlot) {
  const canvas = $("graph-" + graph.id);
  const width = Math.max(2, Math.floor(canvas.clientWidth * devicePixelRatio));
  const height = Math.max(2, Math.floor(canvas.clientHeight * devicePixelRatio));
  canvas.width = width;
  canvas.height = height;
  const shown = samples.filter((s) => s.at > nowSlot - slots);
  const values = graph.lines.flatMap(([name]) => shown.map((s) => sampleValue(s, name) ?? 0));
  const top = ceiling(Math.max(0, ...values)), line = 2 * devicePixelRatio;
  const pen = canvas.getContext("2d");
  pen.strokeStyle = colour("--line");
  pen.lineWidth = devicePixelRatio;
  for (const y of [0.5, 0.25 * height, 0.5 * height, 0.75 * height, height - 0.5]) {
    pen.beginPath();
    pen.moveTo(0, y);
    pen.lineTo(width, y);
    pen.stroke();
  }
  graph.lines.forEach(([name], i) => {
    pen.strokeStyle = colour("--graph" + i);
    pen.lineWidth = line;
    pen.setLineDash(i === 0 ? [] : [3 * line, 1.5 * line]);
    pen.beginPath();
    let before = null;
    for (const sample of shown) {
      const value = sampleValue(sample, name);
      if (value === null) continue;
      const x = width * (1 - (nowSlot - sample.at) / (slots - 1));
      const y = line / 2 + (height - line) * (1 - value / top);
      const joined = before !== null && sample.at - before <= GAP_SLOTS;
      if (!joined) pen.moveTo(x - line, y);
      pen.lineTo(x, y);
      before = sample.at;
    }
    pen.stroke();
  });
  pen.setLineDash([]);
  $("top-" + graph.id).textContent = short(top);
  const last = shown[shown.length - 1];
  graph.lines.forEach(([name], i) => {
    const value = last ? sampleValue(last, name) : null;
    $("now-" + graph.id + "-" + i).textContent = value === null ? "-" : short(value);
  });
}

function drawHistory() {
  if (samples.length === 0 || $("panels").hidden) return;
  const nowSlot = samples[samples.length - 1].at, age = (nowSlot - samples[0].at) * SLOT_MS;
  const minutes = SPANS_MIN.find((m) => m * 60000 > age) ?? SPANS_MIN[SPANS_MIN.length - 1];
  for (const graph of GRAPHS) {
    drawGraph(graph, (minutes * 60000) / SLOT_MS, nowSlot);
    $("since-" + graph.id).textContent = minutes + " min ago";
  }
}

function makeGraphs() {
  for (const graph of GRAPHS) {
    const box = element("div", null, "graph"), head = element("div"), scale = element("div");
    head.append(element("b", graph.unit));
    graph.lines.forEach(([, words], i) => {
      const key = element("span", null, "key" + i), value = element("span", "-");
      value.id = "now-" + graph.id + "-" + i;
      key.append(element("i"), words + " ", value);
      head.append(key);
    });
    const canvas = element("canvas"), top = element("span", "", "top faint");
    canvas.id = "graph-" + graph.id;
    canvas.setAttribute("aria-label", graph.unit + " over time");
    top.id = "top-" + graph.id;
    scale.className = "faint";
    scale.append(element("span", ""), element("span", "now"));
    scale.firstChild.id = "since-" + graph.id;
    box.append(head, top, canvas, scale);
    $("graphs").append(box);
  }
}
