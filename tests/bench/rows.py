"""Every figure of the report: a function each, which returns Lines. What is measured beside each other
takes turns; the best of several counts."""

import random
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path

from checkpoints import ROOT, bytes_of, checkpoint, config, gguf, token_bytes
from programs import (THREADS, file_speed, llama, onednn_products, our_products, read_speed,
                      troupe, touch_speed)  # fmt: skip

KV_BYTES = 3 << 30  # room for 32 sequences, and for one of 8,192 tokens


@dataclass
class Line:
    figure: str
    value: float | None  # None: it cannot be measured; `detail` says why
    goal: float
    detail: str
    less_is_better: bool = False

    def kept(self):
        return self.value is not None and (
            self.value <= self.goal if self.less_is_better else self.value >= self.goal)


@dataclass
class How:
    """How thorough a run is."""
    rounds: int = 3
    decode_tokens: int = 96
    batch_tokens: int = 96
    long_rounds: int = 1


QUICK = How(rounds=1, decode_tokens=16, batch_tokens=64)


def prompt(length, vocabulary, seed):
    rng = random.Random(seed)
    return [rng.randrange(vocabulary) for _ in range(length)]


class Prompts:
    """Prompts that no prefix of another is: nothing is found in a cache by chance."""

    def __init__(self, name):
        self.vocabulary = config(name)["vocab_size"]
        self.count = 0

    def next(self, length):
        self.count += 1
        return prompt(length, self.vocabulary, self.count)

    def stream(self, length, tokens, **more):
        return {"prompt": self.next(length), "tokens": tokens, "seed": self.count, **more}

    def streams(self, count, length):
        """What `rate` asks: `count` streams at once, of as many tokens as it says."""
        return lambda tokens: [self.stream(length, tokens) for _ in range(count)]


def rate(engine, streams, tokens):
    """Tokens a second while all streams run; `streams(tokens)` makes them. The first of many may end before
    the last one's prompt is computed: then they are asked for more, until all run for a quarter of it."""
    for asked in (tokens, 2 * tokens, 4 * tokens):
        times = engine.streams(streams(asked))["tokens"]
        begin, end = max(each[0] for each in times), min(each[-1] for each in times)
        counted = [sum(begin < t <= end for t in each) for each in times]
        if min(counted) >= asked / 4:
            return sum(counted) / (end - begin)
    raise AssertionError(f"of {len(times)} streams of {asked} tokens the first had all but {min(counted)} "
                         "before the last had one")  # fmt: skip


def first_token(answer, stream=0):
    return answer["tokens"][stream][0] - answer["begin"][stream]


def in_turns(rounds, **jobs):
    """{name: results of each round}, the jobs taking turns."""
    results = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            results[name].append(job())
    return results


def decode_of(name, goals, how):
    """One sequence: beside the memory's bandwidth, and beside llama.cpp."""
    needed = token_bytes(name)
    prompts = Prompts(name)
    peer = gguf(name)
    with troupe(checkpoint(name), kv_bytes=KV_BYTES) as ours, llama(peer, 1024) as theirs:
        for engine in (ours, theirs):
            engine.streams([prompts.stream(16, 4)])
        found = in_turns(
            how.rounds,
            ours=lambda: rate(ours, prompts.streams(1, 16), how.decode_tokens),
            theirs=lambda: rate(theirs, prompts.streams(1, 16), how.decode_tokens),
            read=lambda: read_speed(name),
        )
    mine, other, bandwidth = (max(found[key]) for key in ("ours", "theirs", "read"))
    form = name.split("-")[1]
    said = f"{mine:.1f} tok/s of {needed / 1e6:.0f} MB; reading the same bytes {bandwidth / 1e9:.1f} GB/s"
    return [
        Line(f"decode, 1 sequence, {form}: bytes that must move over (time x bandwidth)",
             mine * needed / bandwidth, goals[0], said),
        Line(f"decode over llama.cpp, {form} over {peer.stem.rsplit('-', 1)[1]}", mine / other, goals[1],
             f"{mine:.1f} : {other:.1f} tok/s"),
    ]  # fmt: skip


def decode(how):
    return (decode_of("v3-bf16", (0.88, 1.5), how) + decode_of("v3-fp8", (0.80, 1.4), how)
            + decode_of("v3-int4", (0.60, 1.1), how))


def prefill(how):
    lines = []
    prompts = Prompts("v3-bf16")
    lengths = [(512, 7, how.rounds), (2048, 9, how.rounds), (8192, 10, how.long_rounds)]
    with troupe(checkpoint("v3-bf16"), kv_bytes=KV_BYTES) as ours, \
            llama(gguf("v3-bf16"), 8448) as theirs:
        for length, goal, rounds in lengths[:2] if how is QUICK else lengths:
            found = in_turns(
                rounds,
                ours=lambda: first_token(ours.streams([prompts.stream(length, 1)])),
                theirs=lambda: first_token(theirs.streams([prompts.stream(length, 1)])),
            )
            mine, other = min(found["ours"]), min(found["theirs"])
            what = "time to the first token" if length > 4096 else "prefill"
            lines.append(Line(f"{what} over llama.cpp, {length} tokens", other / mine, goal,
                              f"{mine:.2f} s : {other:.2f} s; "
                              f"{length / mine:.0f} : {length / other:.0f} tok/s"))  # fmt: skip
    return lines


def products(how):
    n = k = 2048
    counts = (1, 8, 64, 512)
    figure = "prefill products over oneDNN's peak at the same shapes"
    if onednn_products(n, k, (1,)) is None:
        return [Line(figure, None, 0.75, "Debian's libdnnl-dev was not there when it was built")]
    found = in_turns(how.rounds, ours=lambda: our_products(counts),
                     theirs=lambda: onednn_products(n, k, counts))

    def best(key, rows):
        return max(result[("bf16", n, k, rows)] for result in found[key])

    said = "; ".join(f"{rows} rows {best('ours', rows) / 1e9:.0f} : {best('theirs', rows) / 1e9:.0f}"
                     for rows in counts)
    return [Line(figure, best("ours", 512) / best("theirs", 512), 0.75,
                 f"GFLOP/s, n = k = 2048, bf16, {THREADS} threads: {said}; 512 rows count")]


def batch(how):
    prompts = Prompts("v3-bf16")
    with troupe(checkpoint("v3-bf16"), kv_bytes=KV_BYTES) as ours, \
            llama(gguf("v3-bf16"), 512, 32) as theirs:
        found = in_turns(how.rounds,
                         ours=lambda: rate(ours, prompts.streams(32, 32), how.batch_tokens),
                         theirs=lambda: rate(theirs, prompts.streams(32, 32), how.batch_tokens))
    mine, other = max(found["ours"]), max(found["theirs"])
    return [Line("32 sequences over llama.cpp batching the same 32", mine / other, 2.9,
                 f"{mine:.0f} : {other:.0f} tok/s")]


def context(how):
    """What attention takes of a step at 8k is what that takes more than a step at the beginning."""
    name, length = "v3-bf16", 8000
    c = config(name)
    prompts = Prompts(name)
    row = c["kv_lora_rank"] + c["qk_rope_head_dim"]
    layers, heads = c["num_hidden_layers"], c["num_attention_heads"]
    kv_bytes = layers * length * row * 2
    operations = 2 * layers * heads * length * (row + c["kv_lora_rank"])
    with troupe(checkpoint(name), kv_bytes=KV_BYTES) as ours:
        found = in_turns(how.long_rounds,
                         long=lambda: rate(ours, prompts.streams(1, length), how.decode_tokens),
                         short=lambda: rate(ours, prompts.streams(1, 16), how.decode_tokens))
    peak = max((onednn_products(2048, 2048, (512,)) or our_products((512,))).values())
    bound = max(kv_bytes / read_speed(name), operations / peak)
    spent = 1 / max(found["long"]) - 1 / max(found["short"])
    return [Line("decode at 8k context: attention's time over max(bytes / bandwidth, operations / peak)",
                 spent / bound, 1.5,
                 f"{spent * 1e3:.1f} ms a token of {1e3 / max(found['long']):.1f} ms; bound {bound * 1e3:.1f}"
                 f" ms ({kv_bytes / 1e6:.0f} MB, {operations / 1e9:.1f} GFLOP)", less_is_better=True)]


def gap(how):
    name = "v3-bf16"
    prompts = Prompts(name)
    tokens = how.decode_tokens * 2
    with troupe(checkpoint(name), kv_bytes=KV_BYTES) as ours:
        def streams(*more):
            return ours.streams([prompts.stream(32, tokens) for _ in range(8)] + list(more))

        def gaps(times, begin, end):
            return [b - a for a, b in zip(times, times[1:]) if b > begin and a < end]

        ratios, said = [], ""
        for _ in range(how.rounds):
            quiet = streams()["tokens"]
            median = statistics.median(g for times in quiet for g in gaps(times, times[0], times[-1]))
            busy = streams(prompts.stream(4096, 1, after=8))
            end = busy["tokens"][8][0]
            beside = sorted(g for times in busy["tokens"][:8] for g in gaps(times, busy["begin"][8], end))
            p99 = beside[min(len(beside) - 1, int(0.99 * len(beside)))]
            ratios.append(p99 / median)
            if ratios[-1] == min(ratios):
                said = (f"median alone {median * 1e3:.0f} ms, p99 beside {p99 * 1e3:.0f} ms, longest "
                        f"{beside[-1] * 1e3:.0f} ms; the prompt took {end - busy['begin'][8]:.1f} s")
    return [Line("p99 gap of 8 running streams while 4,096 tokens are prefilled, over their median alone",
                 min(ratios), 4, said, less_is_better=True)]


def burst(how):
    """Many prompts at once: whoever is last waits for the others' prompts, and for no more than that."""
    name = "v3-bf16"
    prompts = Prompts(name)
    with troupe(checkpoint(name), kv_bytes=KV_BYTES) as ours, llama(gguf(name), 512, 32) as theirs:
        def firsts(engine, count, length):
            answer = engine.streams(prompts.streams(count, length)(32))
            return sorted(first_token(answer, i) for i in range(count))

        found = in_turns(how.rounds, alone=lambda: firsts(ours, 1, 1024), short=lambda: firsts(ours, 32, 32),
                         long=lambda: firsts(ours, 8, 1024), theirs=lambda: firsts(theirs, 32, 32))
    alone = min(found["alone"])[0]
    short, long, other = (min(found[key], key=lambda times: times[-1]) for key in ("short", "long", "theirs"))
    median = statistics.median(short)
    return [
        Line("32 prompts of 32 tokens at once: the last first token over computing 1,024 tokens alone",
             short[-1] / alone, 2.5,
             f"{short[-1]:.2f} : {alone:.2f} s; llama.cpp's last after {other[-1]:.2f} s",
             less_is_better=True),
        Line("the same: the median first token over the last", median / short[-1], 0.6,
             f"{median:.2f} : {short[-1]:.2f} s", less_is_better=True),
        Line("8 prompts of 1,024 tokens at once: prefill over one alone", 8 * alone / long[-1], 0.8,
             f"{8 * 1024 / long[-1]:.0f} : {1024 / alone:.0f} tok/s"),
    ]  # fmt: skip


def prefix(how):
    name = "v3-bf16"
    prompts = Prompts(name)
    with troupe(checkpoint(name), kv_bytes=KV_BYTES) as ours:
        def ask(ids):
            return first_token(ours.streams([{"prompt": ids, "tokens": 1}]))

        def pair():
            ids = prompts.next(2000)
            cold = ask(ids)
            return cold, ask(ids[:1900] + prompts.next(100))
        pairs = [pair() for _ in range(how.rounds)]
    cold, warm = min(p[0] for p in pairs), min(p[1] for p in pairs)
    return [Line("time to first token of 2,000 tokens whose first 1,900 are cached, over cold",
                 warm / cold, 0.12, f"{warm * 1e3:.0f} : {cold * 1e3:.0f} ms", less_is_better=True)]


def avx512_bf16(how):
    """What the numerics of vdpbf16ps give over `bf16`, beside each other."""
    if "avx512_bf16" not in Path("/proc/cpuinfo").read_text():
        return [Line("avx512_bf16 over bf16", None, 1, "this processor lacks AVX-512 with bf16")]
    lines = []
    for name in ("v3-bf16", "v3-fp8", "v3-int4"):
        prompts = Prompts(name)
        folder = checkpoint(name)
        with troupe(folder, kv_bytes=KV_BYTES) as usual, \
                troupe(folder, kv_bytes=KV_BYTES, numerics="avx512_bf16") as dot:
            def compare(what, speed, rounds):
                found = in_turns(rounds, dot=lambda: speed(dot), usual=lambda: speed(usual))
                mine, other = max(found["dot"]), max(found["usual"])
                lines.append(Line(f"avx512_bf16 over bf16, {name.split('-')[1]}: {what}", mine / other, 1,
                                  f"{mine:.0f} : {other:.0f} tok/s"))  # fmt: skip

            def prefill_speed(engine):
                return 2048 / first_token(engine.streams([prompts.stream(2048, 1)]))

            def decode_speed(count):
                return lambda engine: rate(engine, prompts.streams(count, 32), how.batch_tokens)
            compare("prefill of 2,048 tokens", prefill_speed, how.long_rounds)
            compare("1 sequence", decode_speed(1), how.rounds)
            compare("32 sequences", decode_speed(32), how.long_rounds)
    return lines


MEMORY = {"v3-bf16": "bf16", "v3-fp8": "fp8", "v3-int4": "int4", "dense-bf16": "dense bf16",
          "layer-fp8": "a layer of V3, fp8"}  # fmt: skip


def loading(how):
    """Loading and what is resident after it; the files have been read before."""
    lines, speeds = [], []
    for name, said in MEMORY.items():
        size = bytes_of(name)
        best, ceiling, fresh = 0.0, 0.0, 0.0
        for _ in range(how.rounds):
            ceiling, fresh = max(ceiling, file_speed(name)), max(fresh, touch_speed(size))
            with troupe(checkpoint(name), kv_bytes=KV_BYTES) as ours:
                best, resident = max(best, size / ours.load_s), ours.resident_bytes()
        text = f"{said} {best / 1e9:.2f} : {ceiling / 1e9:.2f} GB/s (fresh memory {fresh / 1e9:.2f})"
        speeds.append((best / ceiling, text))
        lines.append(Line(f"resident memory over weights placed, {said}", resident / size, 1.05,
                          f"{resident / 1e6:.0f} : {size / 1e6:.0f} MB as stored; the process is counted, "
                          f"and what is touched of the KV cache", less_is_better=True))  # fmt: skip
    slowest = min(speeds)
    figure = "loading: bytes/s over reading the cached files with the same threads"
    detail = "until it serves; " + "; ".join(text for _, text in speeds)
    return [Line(figure, slowest[0], 0.5, detail), *lines]


def tokenizer(_):
    figure = "tokenizer MB/s over Hugging Face tokenizers, one thread"
    script = ROOT / "tests" / "bench" / "tokenizer_bench.py"
    if not script.exists():
        return [Line(figure, None, 3, "there is no tests/bench/tokenizer_bench.py in this tree")]
    python = ROOT / "build" / "venv" / "bin" / "python"
    done = subprocess.run([python, script], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    ratios = {line.split()[0]: float(line.split("ratio")[1].split()[0])
              for line in done.stdout.splitlines() if "ratio" in line}  # fmt: skip
    return [Line(figure, ratios["mixed"], 3, ", ".join(f"{k} {v}" for k, v in ratios.items()))]


