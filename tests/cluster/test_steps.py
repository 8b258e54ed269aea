"""What one sequence may do to others, and a slow device to all: nothing, and time."""

import json
import shutil
import struct
import time

import pytest

from recovery import SMALL, held_to
from running import DEMO, at_once, wait_until

LAYER, EXPERT = 1, 3
# The largest finite number of bfloat16: with it the outputs of an expert overflow.
HUGE = struct.pack("<H", 0x7F7F)


@pytest.fixture
def overflowing(tmp_path):
    """The demo, with one expert whose weights are finite and whose outputs are not."""
    folder = tmp_path / "overflowing"
    shutil.copytree(DEMO, folder)
    with (folder / "model.safetensors").open("r+b") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        tensors = json.loads(file.read(length))
        for part in ("gate", "up", "down"):
            name = f"model.layers.{LAYER}.mlp.experts.{EXPERT}.{part}_proj.weight"
            begin, end = tensors[name]["data_offsets"]
            file.seek(8 + length + begin)
            file.write(HUGE * ((end - begin) // 2))
    return folder


def test_an_overflow_is_the_trouble_of_whom_it_meets(cluster, overflowing):
    cluster.up(overflowing, *SMALL, "--data-parallel-size", 1)
    prompts = [[0, 105, 103, 97 + i % 26, 97 + i // 2, 101 + i % 7][: 3 + i % 4] for i in range(64)]

    def ask(prompt):
        return cluster.post("/v1/completions", {
            "prompt": prompt, "max_tokens": 4, "temperature": 0, "ignore_eos": True, "logprobs": 0,
            "return_token_ids": True})  # fmt: skip

    def seen(status, answer):
        if status != 200:
            return status, answer["error"]["message"]
        choice = answer["choices"][0]
        return status, choice["token_ids"], choice["logprobs"]["token_logprobs"]

    alone = [seen(*ask(prompt)) for prompt in prompts]
    bad = [answer for answer in alone if answer[0] != 200]
    assert 0 < len(bad) < len(prompts), alone
    for status, message in bad:
        assert status == 500
        assert "gave no number for this request" in message and f"after layer {LAYER}" in message
    # Nobody's answer depends on who is in the step with him, however often.
    for _ in range(4):
        assert [seen(*answer) for answer in at_once(ask, prompts)] == alone

    def at_rest():
        replica = cluster.status()["replicas"][0]
        return replica["kv_blocks_used"] == 0 and replica["running"] == 0

    wait_until(at_rest, "all blocks are free again")


@pytest.mark.long
def test_a_worker_with_little_of_a_core_finishes_a_long_prompt(cluster):
    """3 % of a core: a step of the largest chunk would take minutes."""
    words = ["--numerics", "reference", "--request-timeout", 7200, *SMALL]
    cluster.up(DEMO, *words, workers=1)
    body = {"prompt": [0, *([105, 103, 97, 101] * 975)][:3900], "max_tokens": 3, "temperature": 0,
            "ignore_eos": True, "return_token_ids": True}  # fmt: skip
    status, quick = cluster.post("/v1/completions", body)
    assert status == 200, quick
    worker = cluster.ready_nodes()[0]
    started = time.monotonic()
    with held_to(0.03, [worker["pid"]]):
        status, slow = cluster.post("/v1/completions", body, seconds=7200)
    print(f"3,900 tokens at 3 % of a core took {time.monotonic() - started:.0f} s")
    assert status == 200, f"{slow}\n{cluster.logs()}"
    assert slow["choices"][0]["token_ids"] == quick["choices"][0]["token_ids"]
    assert [node["incarnation"] for node in cluster.ready_nodes()] == [worker["incarnation"]]
