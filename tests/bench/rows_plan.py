"""What `troupe plan` says of this machine, beside what is measured on it."""

import json

from checkpoints import ROOT, checkpoint
from programs import THREADS, output, troupe
from rows import KV_BYTES, Line, Prompts, rate

PLANNED = {"v3-bf16": "bf16", "v3-fp8": "fp8", "v3-int4": "int4", "dense-bf16": "dense bf16",
           "layer-fp8": "a layer of V3, fp8"}  # fmt: skip
BATCH = 32
PROMPT = 8  # short, so that all streams soon run


def planned(name, context):
    """{sequences: tokens a second} that are expected, and "reads": bytes a second, all of it measured
    now."""
    text = output(ROOT / "build" / "troupe", "plan", "--model", checkpoint(name), "--nodes", "1:20GiB",
                  "--measure", "--threads", THREADS, "--max-num-seqs", BATCH, "--context", context, "--json")
    speed = json.loads(text)["speed"]
    found = {step["rows"]: step["expected"]["tokens_per_s"] for step in speed["decode"]}
    return {**found, "reads": speed["devices"][0]["memory_bandwidth"]}


def predicted(how):
    lines = []
    for name, said in PLANNED.items():
        prompts = Prompts(name)
        plans, measured = [], {1: [], BATCH: []}
        with troupe(checkpoint(name), kv_bytes=KV_BYTES) as ours:
            def speed(count, tokens):
                return rate(ours, prompts.streams(count, PROMPT), tokens)
            speed(1, 8)
            for turn in range(how.rounds):
                plans.append(planned(name, PROMPT + how.batch_tokens // 2))
                measured[1].append(speed(1, how.batch_tokens))
                if turn < how.long_rounds:
                    measured[BATCH].append(speed(BATCH, how.batch_tokens))
        for count, found in measured.items():
            plan, real = max(p[count] for p in plans), max(found)
            figure = (f"decode as planned over measured, or its inverse, {said}, "
                      f"{count} sequence{'s' * (count > 1)}")
            detail = (f"{plan:.1f} : {real:.1f} tok/s, {plan / real:.2f}; reading "
                      f"{max(p['reads'] for p in plans) / 1e9:.1f} GB/s")
            lines.append(Line(figure, max(plan / real, real / plan), 1.25, detail, less_is_better=True))
    return lines
