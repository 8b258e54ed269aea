"""The disk of the state folder is not well while the head runs, or its clock: newcomers hear why, what was
accepted goes on, and when it is well again newcomers are served. All that was accepted is there for the next
head."""

import time

import pytest

from bad_machine import BadMachine
from promises import bound
from recovery import LASTING, SMALL
from running import get, wait_until
from streams import Missed, arranged
from test_head_dies import Asker, askers, assert_answered, kill_head, refusal

FLAGS = [*SMALL, "--min-devices", 2]
REASONS = {
    "full": "No space left on device",
    "fails to write": "Input/output error",
    "fails to sync": "Input/output error",
    "is read-only": "Read-only file system",
    "is a share that is gone": "Stale file handle",
    "hangs": "has not answered for 2 s",
}
SHORT = {"prompt": "ab", "max_tokens": 3, "temperature": 0}


@pytest.fixture
def on_bad_machine(stages, tmp_path):
    """A stage whose head is on a machine of its own."""
    stage = stages(workers=0)
    stage.head_process.kill()
    stage.head_process.popen.wait()
    machine = BadMachine(tmp_path / "machine", stage.state_dir)
    stage.head_flags, stage.head_env = FLAGS, machine.env
    stage.start_head()
    for _ in range(2):
        stage.add_worker()
    stage.wait_ready()
    return stage, machine


@pytest.mark.parametrize("how", [
    "fails to sync", "hangs",
    *(pytest.param(how, marks=pytest.mark.long)
      for how in REASONS if how not in ("fails to sync", "hangs")),
])  # fmt: skip
def test_newcomers_wait_for_a_disk_that_is_well(on_bad_machine, expected, how):
    stage, machine = on_bad_machine
    asked = askers(stage, LASTING, "before", 4)
    wait_until(lambda: all(asker.tokens > 3 for asker in asked), "tokens come")
    machine.break_disk(how)
    why = wait_until(lambda: refusal(stage, body=SHORT), "a newcomer is refused")
    assert "The journal cannot be written: " in why and REASONS[how] in why and "--no-journal" in why
    assert str(stage.state_dir) in why
    assert "The journal cannot be written: " in refusal(stage, "/health")
    assert_answered(stage, asked, expected)
    # A worker that is killed meanwhile is replaced: the cluster has other things to write, too.
    stage.workers[0].kill()
    stage.add_worker()
    stage._wait(lambda: len(stage.ready_nodes()) == 2, "the new one is used")
    assert [asker.tries for asker in asked] == [1] * 4, "nobody was cut off"
    machine.mend_disk()
    wait_until(lambda: refusal(stage, "/health") is None, "it is written again")
    assert refusal(stage, body=SHORT) is None
    fresh = askers(stage, LASTING, "after", 4)
    wait_until(lambda: all(asker.tokens > 3 for asker in fresh), "tokens come")
    kill_head(stage, 0.1)
    again = [Asker(stage, asker.request, asker.name) for asker in asked]
    assert_answered(stage, [*again, *fresh], expected)
    assert [asker.id for asker in again] == [asker.id for asker in asked]


def test_a_disk_that_fails_once_keeps_newcomers_out_for_a_moment(on_bad_machine):
    stage, machine = on_bad_machine
    assert refusal(stage, body=SHORT) is None

    def fails_once():
        began = time.monotonic()
        machine.break_disk("fails to sync", times=1)
        if not refusal(stage, body=SHORT):
            raise Missed("it was another file's, not the journal's")
        return began

    began = arranged(fails_once)
    wait_until(lambda: refusal(stage, body=SHORT) is None, "newcomers are served")
    bound("newcomers are served again after a disk has failed once", time.monotonic() - began, 1)


def test_a_journal_that_is_moved_away_is_written_again(on_bad_machine, expected):
    """By somebody who tidies up while the head lives: nothing that was accepted goes with it."""
    stage, _ = on_bad_machine
    asked = askers(stage, LASTING, "before", 2)
    wait_until(lambda: all(asker.tokens > 3 for asker in asked), "tokens come")
    (stage.state_dir / "journal").rename(stage.folder / "elsewhere")
    folder = stage.state_dir / "journal"
    wait_until(lambda: refusal(stage, body=SHORT) is None and folder.is_dir(), "a newcomer is on the disk")
    fresh = askers(stage, LASTING, "after", 2)
    wait_until(lambda: all(asker.tokens > 3 for asker in fresh), "tokens come")
    kill_head(stage, 0.1)
    again = [Asker(stage, asker.request, asker.name) for asker in asked]
    assert_answered(stage, [*again, *fresh], expected)


HOUR_S = 3600


@pytest.mark.parametrize("jumps_s", [
    (5 * HOUR_S, -60 * 365 * 24 * HOUR_S),
    pytest.param((-5 * HOUR_S, 30 * 365 * 24 * HOUR_S), marks=pytest.mark.long),
], ids=["before 1970", "far away"])  # fmt: skip
def test_a_clock_that_jumps_takes_no_answer_and_no_worker_away(on_bad_machine, expected, jumps_s):
    """Within a life of the head and between two: hours forwards and back, and decades."""
    stage, machine = on_bad_machine
    workers = {node["pid"] for node in stage.ready_nodes()}
    kept = []

    def told(request):
        """By name: what there is of it, and when that was asked for."""
        return get(stage.base_url, f"/v1/requests/{request}")

    for jump_s in jumps_s:
        asked = askers(stage, LASTING, f"at {jump_s}", 3)
        wait_until(lambda: all(asker.tokens > 3 for asker in asked), "tokens come")
        machine.set_clock(jump_s)
        newcomer = Asker(stage, LASTING[3], f"newcomer at {jump_s}")
        wait_until(lambda: newcomer.tokens > 3, "newcomers are served")
        kill_head(stage, 0.1)
        assert_answered(stage, [*asked, newcomer], expected)
        kept += [asker.id for asker in (*asked, newcomer)]
        before = [told(request) for request in kept]
        kill_head(stage, 0.1)
        stage.wait_ready()
        assert [told(request) for request in kept] == before
        assert {node["pid"] for node in stage.ready_nodes()} == workers
    assert stage.status()["requests"]["failed"] == 0
