"""The reference answers through the program itself, within the tolerances of golden/README.md."""

import json
import statistics

import pytest

from bits import computed_here
from running import DEMO, GOLDEN, at_once, generate


def golden_of(model):
    return json.loads((model / "golden.json").read_text())


def answers(model, numerics, golden):
    def one(case):
        ids = ",".join(map(str, case["prompt"]))
        words = ["--prompt-ids", ids, "--prompt-logprobs", "--max-tokens", len(case["greedy"])]
        words += ["--temperature", 0, "--ignore-eos", "--numerics", numerics, "--threads", 1]
        return generate(model, *words)

    return at_once(one, golden["prompts"], threads=2)


BF16 = ("bf16", "avx512_bf16")
MODELS = [folder for folder in sorted(GOLDEN.iterdir()) if (folder / "config.json").exists()]


# tests/model/golden_test.cpp has all of them in one process: through the program each model of golden/ is
# asked by what people run; the rest only --long has.
QUICK = [("reference", "v3"), *((numerics, folder.name) for folder in MODELS for numerics in BF16)]


@pytest.mark.parametrize("numerics, model", [
    pytest.param(numerics, model, id=f"{numerics}-{model.name}",
                 marks=[] if (numerics, model.name) in QUICK else pytest.mark.long)
    for numerics in ("reference", *BF16) for model in (*MODELS, DEMO)
])  # fmt: skip
def test_golden(numerics, model):
    if not computed_here(numerics):
        pytest.skip("this processor lacks AVX-512 with bf16")
    golden = golden_of(model)
    errors, first_tokens = [], 0
    for case, answer in zip(golden["prompts"], answers(model, numerics, golden)):
        assert answer["prompt_tokens"] == case["prompt"]
        assert answer["prompt_logprobs"][0] is None
        assert len(answer["prompt_logprobs"]) == len(case["prompt"])
        errors += [
            abs(seen - expected)
            for seen, expected in zip(answer["prompt_logprobs"][1:], case["prompt_logprobs"][1:])
        ]
        pairs = zip(answer["tokens"], case["greedy"], case["margin"])
        if numerics == "reference":
            for i, (seen, expected, margin) in enumerate(pairs):
                if seen != expected:
                    assert margin <= 0.02, f"token {i} differs in spite of a margin of {margin}"
                    break
        elif case["margin"][0] > 0.5:
            first_tokens += 1
            assert answer["tokens"][0] == case["greedy"][0]
    if numerics == "reference":
        assert max(errors) <= 0.01
    else:
        assert first_tokens > 0
        assert statistics.median(errors) <= golden["bf16"]["median_max"]
        assert statistics.quantiles(errors, n=20)[-1] <= golden["bf16"]["p95_max"]
