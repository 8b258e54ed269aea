"""A published GGUF model, which comes from PyPI once, against what llama.cpp answered."""

import json
import subprocess
from pathlib import Path

import openai
import pytest

from running import ROOT, generate, locked, run

ANSWERS = json.loads((Path(__file__).parent / "smollm2.json").read_text())["prompts"]
# llama.cpp rounds activations to 8 bits where weights are blocks, Troupe does not.
MARGIN = 0.25


@pytest.fixture(scope="module")
def model():
    """As `tools/up smollm2` gets it."""
    words = f"source '{ROOT}/tools/models.sh'; fetch_smollm2 && echo $SMOLLM2"
    with locked(ROOT / "build" / "smollm2.lock"):
        done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        pytest.skip(done.stderr.splitlines()[-1])
    return Path(done.stdout.strip())


@pytest.mark.parametrize("case", [
    pytest.param(case, id=name, marks=[] if name == "prose" else pytest.mark.long)
    for case, name in zip(ANSWERS, ("prose", "chat", "code", "lists"))
])
def test_tokens_of_llama_cpp(case, model):
    """The prompt's ids, and greedy answers up to where llama.cpp itself was in doubt."""
    done = run("tokenize", "--model", model, "--json", stdin=json.dumps(case["text"]))
    assert json.loads(done.stdout) == case["prompt"]
    answer = generate(model, "--prompt-ids", ",".join(map(str, case["prompt"])), "--temperature", 0,
                      "--max-tokens", len(case["greedy"]), "--ignore-eos")  # fmt: skip
    for at, (seen, expected, margin) in enumerate(zip(answer["tokens"], case["greedy"], case["margin"])):
        if seen != expected:
            assert margin < MARGIN, f"token {at} is {seen}, not {expected}"
            break


def test_chat_through_the_api(model, cluster):
    cluster.up(model, workers=1)
    client = openai.OpenAI(base_url=cluster.base_url + "/v1", api_key="none", max_retries=0, timeout=120)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    answer = client.chat.completions.create(
        model=model.name, messages=question, temperature=0, max_tokens=40)  # fmt: skip
    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"
