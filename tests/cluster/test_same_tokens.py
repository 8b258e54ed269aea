"""Tokens and log-probabilities are the same, bit for bit, however the cluster is laid out, and whichever
processors its members have."""

import dataclasses
import functools
import json

import pytest

from bits import computed_here, numerics_flags
from running import (
    DEMO, GOLDEN, TESTING, TROUPE, V2_LITE, V3, Cluster, at_once, cpu_families_here, float32_bits, generate,
)  # fmt: skip

FAMILIES = cpu_families_here()
TOKENS = 20


@dataclasses.dataclass(frozen=True)
class Probe:
    prompt: tuple
    temperature: int
    seed: int = 7


@dataclasses.dataclass(frozen=True)
class Layout:
    workers: int
    flags: str
    preempts: bool = False
    crowd: bool = False
    devices: tuple = ("cpu",)  # of the workers in turn

    def __str__(self):
        devices = "" if self.devices == ("cpu",) else "+".join(self.devices) + " "
        return f"{self.workers} {devices}workers {self.flags}".replace(" --", " ")


# Every size that must not matter appears with several of its values: tensor 1, 2, 4 and 8, pipeline 1,
# 2 and 3, data 1 and 2, redundant experts 0 and 8, blocks of 4 and 16, steps of 16 and 2048 tokens.
LAYOUTS = [
    Layout(2, "--block-size 4 --max-num-batched-tokens 16", crowd=True),
    Layout(2, "--pipeline-parallel-size 2 --data-parallel-size 1 --redundant-experts 8"),
    Layout(
        3,
        "--pipeline-parallel-size 3 --data-parallel-size 2 --max-num-batched-tokens 16 "
        "--redundant-experts 8 --block-size 4",
    ),
    Layout(3, "--pipeline-parallel-size 3 --data-parallel-size 1", crowd=True),
    Layout(2, "--data-parallel-size 1 --block-size 4 --redundant-experts 8", preempts=True, crowd=True),
    Layout(3, "--data-parallel-size 2 --pipeline-parallel-size 2", crowd=True),
    Layout(2, "--tensor-parallel-size 2", crowd=True),
    Layout(
        3,
        "--tensor-parallel-size 4 --pipeline-parallel-size 2 --redundant-experts 8 "
        "--max-num-batched-tokens 16 --block-size 4",
    ),
]
EVERYTHING = LAYOUTS[2]
RANKS = LAYOUTS[-1]
# A GPU's kernels, as this processor runs them: alone, beside processors, as ranks of one stage.
TWINS = Layout(2, "--pipeline-parallel-size 2", devices=("cuda-twin",))
MIXED = Layout(2, "--data-parallel-size 2 --redundant-experts 8", devices=("cpu", "cuda-twin"))
MIXED_RANKS = Layout(2, "--tensor-parallel-size 2 --block-size 4", devices=("cuda-twin", "cpu"))
EIGHT = Layout(2, "--tensor-parallel-size 8", preempts=True, crowd=True)
CASES = [
    *((model, "bf16", layout) for model in (V3, V2_LITE, DEMO) for layout in LAYOUTS),
    *((model, "reference", layout) for model in (V3, DEMO) for layout in (EVERYTHING, LAYOUTS[4])),
    (DEMO, "bf16+kv_fp8", EVERYTHING),
    *((model, "bf16", EIGHT) for model in (V3, DEMO, GOLDEN / "v3-awq")),
    (V3, "reference", RANKS),
    (DEMO, "bf16+kv_fp8", RANKS),
    *(
        (GOLDEN / name, "bf16", RANKS)
        for name in ("v3-fp8", "v3-int4", "v3-fp8-ue8m0", "gpt-oss", "glm4-moe", "qwen3-moe", "llama")
    ),
    *((model, "avx512_bf16", EVERYTHING) for model in (V3, DEMO) if computed_here("avx512_bf16")),
    *(
        (GOLDEN / name, "bf16", EVERYTHING)
        for name in ("v3-fp8", "v3-int4", "gpt-oss", "glm4-moe")
    ),
    *((GOLDEN / name, "bf16", LAYOUTS[3]) for name in ("qwen2", "llama-fp8-dynamic")),
    (V3, "bf16", TWINS),
    (V3, "bf16+kv_fp8", MIXED),
    (GOLDEN / "gpt-oss", "bf16", MIXED_RANKS),
    (DEMO, "bf16", MIXED_RANKS),
]
# Each layout once, by one model or another; the rest only --long has.
SPARED = [
    *((V2_LITE, "bf16", layout) for layout in LAYOUTS if layout != EVERYTHING),
    *((DEMO, "bf16", layout) for layout in LAYOUTS[::2]),
    *((V3, "bf16", layout) for layout in LAYOUTS[1::2]),
    *((model, "reference", layout) for model in (V3, DEMO) for layout in (EVERYTHING, LAYOUTS[4])),
    (DEMO, "bf16", EIGHT),
    (V3, "reference", RANKS),
    *((GOLDEN / name, "bf16", EVERYTHING) for name in ("v3-fp8", "glm4-moe")),
    (V3, "avx512_bf16", EVERYTHING),
    (V3, "bf16+kv_fp8", MIXED),
    *(
        (GOLDEN / name, "bf16", RANKS)
        for name in ("v3-int4", "v3-fp8-ue8m0", "gpt-oss", "glm4-moe", "qwen3-moe")
    ),
    (GOLDEN / "v3-awq", "bf16", EIGHT),
    (V3, "bf16", TWINS),
    *((model, "bf16", MIXED_RANKS) for model in (DEMO, GOLDEN / "gpt-oss")),
]


def prompts_of(model):
    """Text that is no chat for the demo model, which knows by heart what to say in one."""
    if model == DEMO:
        words = ["What is a blorft?", "Define glimmerquaff and its antonyms.", "zxq " * 40]
        return [tuple(generate(model, "--prompt", w, "--max-tokens", 1)["prompt_tokens"]) for w in words]
    cases = json.loads((model / "golden.json").read_text())["prompts"]
    return [tuple(cases[i]["prompt"]) for i in (0, 2, 3)]


@functools.cache
def probes_of(model):
    return [Probe(p, temperature) for p in prompts_of(model) for temperature in (0, 1)]


def comparable(prompt, tokens, prompt_logprobs, logprobs):
    assert len(tokens) == len(logprobs) == TOKENS
    assert len(prompt_logprobs) == len(prompt)
    return tokens, float32_bits(prompt_logprobs), float32_bits(logprobs)


@functools.cache
def alone(model, numerics):
    """What one process answers to each probe by itself, with the least of the instructions."""

    def one(probe):
        answer = generate(
            model, "--prompt-ids", ",".join(map(str, probe.prompt)), "--max-tokens", TOKENS,
            "--temperature", probe.temperature, "--seed", probe.seed, "--ignore-eos",
            "--prompt-logprobs", *numerics_flags(numerics), "--threads", 1, "--top-p", 1,
            "--cpu-family", families(numerics)[0],
        )  # fmt: skip
        return comparable(
            probe.prompt, answer["tokens"], answer["prompt_logprobs"], answer["token_logprobs"]
        )

    return at_once(one, probes_of(model), threads=2)


def asked(cluster, probe):
    """The same over HTTP."""
    choice = cluster.complete(
        list(probe.prompt), max_tokens=TOKENS, temperature=probe.temperature, seed=probe.seed,
        top_p=1, ignore_eos=True, echo=True, logprobs=0, return_token_ids=True,
    )["choices"][0]  # fmt: skip
    logprobs = choice["logprobs"]["token_logprobs"]
    at = len(probe.prompt)
    return comparable(probe.prompt, choice["token_ids"][-TOKENS:], logprobs[:at], logprobs[at:])


def noise(cluster, number):
    """One of the others in the crowd; it asks for something else."""
    cluster.complete([5 + number, 9, 11 * number % 500], max_tokens=60, temperature=1, ignore_eos=True)


def families(numerics):
    """Those here that compute these numerics."""
    return FAMILIES[FAMILIES.index("avx512"):] if numerics.startswith("avx512") else FAMILIES


def start_mixed(cluster, model, numerics, flags, layout):
    """A worker of each family of instructions, and of each device, in turn."""
    each, devices = families(numerics), layout.devices
    cluster.head(model, "--min-devices", layout.workers, *flags)
    cluster.wait_answers()
    for number in range(layout.workers):
        device = devices[number % len(devices)]
        cluster.worker("--cpu-family", each[number % len(each)], "--device", device,
                       program=TESTING if device == "cuda-twin" else TROUPE)  # fmt: skip
    cluster.wait_ready()
    kinds = sorted(device["kind"] for node in cluster.ready_nodes() for device in node["devices"])
    assert kinds == sorted(devices[number % len(devices)] for number in range(layout.workers))


@pytest.mark.parametrize("model, numerics, layout", [
    pytest.param(*case, id=f"{case[0].name}: {case[1]}: {case[2]}",
                 marks=[pytest.mark.long] if case in SPARED else [])
    for case in CASES
])  # fmt: skip
def test_same_tokens(troupe, model, numerics, layout):
    expected = alone(model, numerics)
    probes = probes_of(model)
    flags = layout.flags.split() + numerics_flags(numerics)
    if layout.preempts:
        flags += ["--max-model-len", longest(model)]
        flags += ["--kv-cache-memory", kv_cache_for_one(model, numerics)]
    with Cluster() as cluster:
        start_mixed(cluster, model, numerics, flags, layout)
        assert cluster.status()["cluster"]["numerics"] == numerics
        assert [asked(cluster, probe) for probe in probes] == expected
        if layout.crowd:
            jobs = [functools.partial(noise, cluster, i) for i in range(32)]
            jobs[8:8] = [functools.partial(asked, cluster, probe) for probe in probes]
            answers = [answer for answer in at_once(lambda job: job(), jobs) if answer]
            assert answers == expected
        if layout.preempts:
            assert sum(replica["preemptions"] for replica in cluster.status()["replicas"]) > 0


def longest(model):
    return max(len(probe.prompt) for probe in probes_of(model)) + TOKENS


@functools.cache
def kv_cache_for_one(model, numerics):
    """Memory of a cache that holds the longest probe and little more, so that a crowd preempts."""
    with Cluster() as cluster:
        cluster.up(model, "--kv-cache-memory", 1 << 20, "--block-size", 4, *numerics_flags(numerics),
                   "--data-parallel-size", 1, "--max-model-len", 64)  # fmt: skip
        blocks = cluster.status()["replicas"][0]["kv_blocks_total"]
    return (longest(model) // 4 + 8) * -(-(1 << 20) // blocks)
