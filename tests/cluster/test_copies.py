"""What a worker does with weights that are not what they were, in its memory or its files."""

import shutil
import time

import memory
import pytest
from promises import bound
from recovery import (ALL_TWICE, LASTING, ONE_REPLICA, event_after, experts_on, last_event, node_with_replica,
                      settled, worker_of)
from running import DEMO, PATIENCE_S, TESTING, wait_until
from streams import Streams

# A copy is looked at again after 10 s at the earliest; a small model's then are within a second.
FOUND_WITHIN_S = 30


def an_expert_of(status, node_id):
    layer = status["experts"]["placement"][0]
    expert = next(slot["expert"] for slot in layer["slots"] if slot["device"].startswith(f"{node_id}/"))
    return f"model.layers.{layer['layer']}.mlp.experts.{expert}.up_proj.weight"


def test_a_bit_that_flips_in_memory_is_found_and_nothing_serves_with_it(stages, expected):
    stage = stages(*ONE_REPLICA, *ALL_TWICE, workers=3)
    victim = node_with_replica(stage, has=False)
    worker = worker_of(stage, victim)
    tensor = an_expert_of(stage.status(), victim["id"])
    last, began = last_event(stage), time.monotonic()
    assert memory.poke(worker.pid, DEMO, tensor)
    worker.process.wait_log(f"A copy of the tensor {tensor} has changed in memory")
    bound("found", time.monotonic() - began, FOUND_WITHIN_S)
    event = event_after(stage, "proof_failed", last, victim["id"], tensor)
    assert "model.safetensors" in event["text"] and "s ago" in event["text"]
    # It is out, looks at all else that it holds, and is a member again: in the same process.
    worker.process.wait_log("The other copies in memory are what was loaded")
    wait_until(lambda: len(stage.ready_nodes()) == 3 and settled(stage), "it is back")
    assert worker.alive()
    assert experts_on(stage.status(), victim["id"]) > 0
    Streams(stage, LASTING).assert_unchanged(expected)


@pytest.mark.long
def test_a_bit_that_flips_in_a_devices_memory_is_found_as_on_the_host(stages):
    """A GPU's twin. The host's copy is gone, though its bytes may still lie in memory that is free."""
    stage = stages(*ONE_REPLICA, *ALL_TWICE, "--numerics", "bf16", workers=2)
    body = {"prompt": [0, 105, 103, 97], "max_tokens": 16, "temperature": 0, "return_token_ids": True}
    before = stage.complete(**body)["choices"][0]["token_ids"]
    worker = stage.add_worker("--device", "cuda-twin", "--device-memory", "2GiB", program=TESTING)

    def of_twin():
        ready = (n for n in stage.status()["nodes"] if n["state"] == "ready")
        return next((n for n in ready if n["pid"] == worker.pid), None)

    def has_experts():
        node = settled(stage) and of_twin()
        return node and experts_on(stage.status(), node["id"])

    wait_until(of_twin, "the twin's worker is a member")
    wait_until(has_experts, "it has experts")
    tensor = an_expert_of(stage.status(), of_twin()["id"])
    assert memory.poke_device(worker.pid, DEMO, tensor) == 1
    worker.process.wait_log(f"A copy of the tensor {tensor} has changed in memory", 2 * PATIENCE_S)
    worker.process.wait_log("The other copies in memory are what was loaded")
    wait_until(has_experts, "it is back")
    assert stage.complete(**body)["choices"][0]["token_ids"] == before


def test_weights_with_nan_are_refused_at_load_and_the_others_serve(stages, tmp_path):
    bad = tmp_path / "bad"
    shutil.copytree(DEMO, bad)
    (row,) = memory.stored_rows(DEMO, "model.layers.1.mlp.experts.3.down_proj.weight", 1)
    data = (bad / "model.safetensors").read_bytes()
    at = data.find(row)
    with open(bad / "model.safetensors", "r+b") as file:
        file.seek(at + 4)
        file.write(b"\xc0\x7f")
    stage = stages(*ONE_REPLICA, workers=1)
    spoiled = stage.add_worker("--model", bad)
    tensor = "model.layers.1.mlp.experts.3.down_proj.weight"
    spoiled.process.wait_log(f"{tensor} holds a NaN or an infinity at [0, 2]")
    assert stage.complete([0, 105, 103], max_tokens=4)["usage"]["completion_tokens"] > 0
