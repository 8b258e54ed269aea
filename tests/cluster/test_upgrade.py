"""A cluster becomes another version one process after the other: what was accepted goes on, with the same
tokens, and the way back is told."""

import json

import pytest

from pair import Pair
from recovery import settled
from running import OLDER, TROUPE, get, run, wait_until
from test_head_dies import LASTING, STREAMED, askers, assert_answered
from test_head_leaves import FLAGS, leave, pids


def version_of(program):
    return run("--version", program=program).stdout.strip()


def versions(stage):
    status = stage.status()
    return status["cluster"]["version"], sorted(node["version"] for node in status["nodes"]
                                                if node["state"] == "ready")  # fmt: skip


def told(asked, count, more=3):
    """Waits until so many have been told of that many more tokens."""
    before = [asker.tokens for asker in asked]
    wait_until(lambda: sum(a.tokens > n + more or a.answer is not None
                           for a, n in zip(asked, before)) >= count, "tokens come")  # fmt: skip


def come_back_from_a_crash(stage, request):
    """As if the last head had crashed at work on that: the next one writes a record that is new."""
    term = int((stage.state_dir / "incarnation").read_text())
    (stage.state_dir / "journal" / "crashes").write_text(f"{term} 11 {request}\n")
    stage.start_head()
    stage.head_process.wait_log(f"crashed (SIGSEGV) at work on the request {request}")
    stage.wait_ready()


def test_versions_follow_each_other_there_and_back(stages, expected):
    older, newer = version_of(OLDER), version_of(TROUPE)
    assert older != newer
    stage = stages(*FLAGS, program=OLDER)
    assert versions(stage) == (older, [older, older])
    workers = pids(stage)
    asked = askers(stage, LASTING, "u", 6) + askers(stage, STREAMED, "v", 6)
    told(asked, 6)
    leave(stage)
    stage.program = TROUPE
    come_back_from_a_crash(stage, asked[0].id)
    assert versions(stage) == (newer, [older, older]) and pids(stage) == workers
    stage.add_worker()
    wait_until(lambda: versions(stage) == (newer, sorted([newer, older, older])), "the newer one is used")
    settled(stage)
    beside = askers(stage, LASTING, "w", 6)
    told(beside, 6)
    leave(stage)
    stage.program = OLDER
    stage.start_head()
    stage.head_process.wait_log("A newer version of Troupe wrote")
    assert "of a kind (9) that this version of Troupe does not know" in stage.head_process.log()
    assert_answered(stage, asked + beside, expected)
    assert versions(stage)[0] == older and pids(stage) > workers
    assert stage.status()["requests"]["failed"] == 0
    assert json.loads(get(stage.base_url, f"/v1/requests/{asked[0].id}"))["status"] == "finished"


@pytest.mark.long
def test_an_older_standby_takes_the_place_of_a_newer_head(stages, expected):
    stage = stages(*FLAGS)
    asked = askers(stage, LASTING, "s", 6)
    told(asked, 6)
    leave(stage)
    come_back_from_a_crash(stage, asked[0].id)
    stage.program = OLDER
    pair = Pair(stage)
    pair.wait_follows()
    more = askers(stage, STREAMED, "t", 6, pair.doors)
    told(more, 3)
    stage.head_process.kill()
    pair.wait_rules()
    assert json.loads(get(pair.base_url, "/cluster/status"))["cluster"]["version"] == version_of(OLDER)
    for asker in asked:
        asker.doors = pair.doors
    assert_answered(stage, asked + more, expected)
