"""What every machine must compute alike: hashes of answers."""

import hashlib
import json

from running import DEMO, GOLDEN, cpu_families_here, float32_bits, generate

NUMERICS = ["reference", "bf16", "bf16+kv_fp8", "avx512_bf16", "avx512_bf16+kv_fp8"]
KNOWN = GOLDEN / "bits.json"


def models():
    return [*(p for p in sorted(GOLDEN.iterdir()) if (p / "config.json").exists()), DEMO]


def computed_here(numerics):
    return not numerics.startswith("avx512") or "avx512" in cpu_families_here()


def numerics_flags(numerics):
    name, *kv = numerics.split("+kv_")
    return ["--numerics", name, *(["--kv-cache-dtype", kv[0]] if kv else [])]


def bits_of(model, numerics, *words):
    """The hash of tokens and log-probabilities for two prompts of the model's golden.json, the longest among
    them, at temperature 0 and 1."""
    prompts = [case["prompt"] for case in json.loads((model / "golden.json").read_text())["prompts"]]
    digest = hashlib.sha256()
    for prompt in (min(prompts, key=len), max(prompts, key=len)):
        for temperature in (0, 1):
            answer = generate(
                model, "--prompt-ids", ",".join(map(str, prompt)), "--prompt-logprobs", "--max-tokens", 16,
                "--temperature", temperature, "--seed", 7, "--top-p", 1, "--ignore-eos", "--threads", 1,
                *numerics_flags(numerics), *words,
            )  # fmt: skip
            told = [answer["tokens"], float32_bits(answer["token_logprobs"])]
            digest.update(json.dumps([*told, float32_bits(answer["prompt_logprobs"])]).encode())
    return digest.hexdigest()
