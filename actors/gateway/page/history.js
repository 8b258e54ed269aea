// --- The last hour ---

const SLOT_MS = 5000, SLOTS = 720;  // what is kept: an hour
const DEVICE = "load of ";          // before a device's name: its figure
let samples = [];  // of slots, the oldest first; at most SLOTS

/** The figures of the status, or the lists of the history, which has them under the same names. */
function figuresOf(requests, rates) {
  const ttft = rates.ttft_ms || {}, gaps = rates.inter_token_ms || {};
  return { in: rates.prompt_tokens_per_s, out: rates.generation_tokens_per_s,
           running: requests.running, waiting: requests.waiting,
           first50: ttft.p50, first99: ttft.p99, gap50: gaps.p50, gap99: gaps.p99 };
}

/** Adds what the status says to its slot: means, for what comes every second. */
function noteSample(status, nowMs) {
  const requests = status.requests || {}, at = Math.floor(nowMs / SLOT_MS);
  const values = figuresOf(requests, requests.rates || {});
  for (const node of list(status.nodes))
    if (node.state !== "lost")
      for (const device of list(node.devices)) values[DEVICE + device.id] = device.utilization;
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
  const lists = figuresOf(history, history);
  for (const [device, load] of Object.entries(history.utilization || {})) lists[DEVICE + device] = load;
  if (history.slot_s * 1000 !== SLOT_MS || !Array.isArray(lists.in)) return;
  const count = lists.in.length, at = Math.floor(nowMs / SLOT_MS);
  const before = [];
  for (let i = Math.max(0, count - SLOTS + 1); i < count; i++) {
    const sample = { at: at - count + i, sums: {}, counts: {} };
    for (const [name, list] of Object.entries(lists)) {
      if (!Array.isArray(list) || typeof list[i] !== "number") continue;
      sample.sums[name] = list[i];
      sample.counts[name] = 1;
    }
    before.push(sample);
  }
  const first = samples.length > 0 ? samples[0].at : at;
  samples = [...before.filter((sample) => sample.at < first), ...samples];
}

const sampleValue = (sample, name) =>
  sample.counts[name] ? sample.sums[name] / sample.counts[name] : null;
