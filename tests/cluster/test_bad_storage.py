"""One worker's bad storage stops nobody's recovery: others load what it cannot."""

import shutil
import subprocess
from pathlib import Path

import pytest

from recovery import LASTING, ONE_REPLICA, event_after, experts_on, hurt, node_with_replica, settled
from running import DEMO, wait_until
from streams import Streams


@pytest.fixture
def own_files(stages, tmp_path):
    """A replica on one of three workers that have files of their own. -> stage, folder of each pid"""
    stage = stages(*ONE_REPLICA, "--min-devices", 3, workers=0)
    folders = {}
    for i in range(3):
        folder = shutil.copytree(DEMO, tmp_path / str(i))
        folders[stage.add_worker("--model", folder).pid] = folder
    stage.wait_ready()
    settled(stage)
    return stage, folders


def lose_one_of_two(stage, folders, break_storage):
    """Breaks the storage of a worker without a replica, then kills the other one without; all experts
    of that have to be read by somebody. -> the worker whose storage is broken, the last event before"""
    host = node_with_replica(stage)
    bad, victim = [node for node in stage.status()["nodes"] if node["id"] != host["id"]]
    break_storage(folders[bad["pid"]], bad["pid"])
    last, _ = hurt(stage, victim)
    event_after(stage, "node_lost", last, victim["id"])
    return bad, last


@pytest.mark.long
def test_a_folder_that_is_no_folder_any_more(own_files, expected):
    stage, folders = own_files
    streams = Streams(stage, LASTING).flow()

    def break_storage(folder, _):
        folder.rename(folder.with_suffix(".gone"))
        folder.touch()

    bad, last = lose_one_of_two(stage, folders, break_storage)
    told = event_after(stage, "load_failed", last, bad["id"], "model.safetensors")
    event = event_after(stage, "recovered", told)
    print(f"recovered {event['time'] - told['time']:.2f} s after its storage failed")
    streams.assert_unchanged(expected)
    # It is no worse a node for what it holds already.
    assert next(n for n in stage.status()["nodes"] if n["id"] == bad["id"])["state"] == "ready"
    folder = folders[bad["pid"]]
    folder.unlink()
    folder.with_suffix(".gone").rename(folder)


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
def test_storage_that_hangs(own_files, expected):
    """As a share whose server is gone: the calls do not come back."""
    stage, folders = own_files
    held = []

    def break_storage(folder, pid):
        calls = "openat,newfstatat,fstat,statx,pread64"
        held.append(subprocess.Popen(
            ["strace", "-f", "-qq", "-o", "/dev/null", "-p", str(pid), "-P", folder / "model.safetensors",
             "-P", folder, "-e", f"trace={calls}", "-e", f"inject={calls}:delay_enter=900000000"]
        ))  # fmt: skip

        def held_whole():
            threads = Path(f"/proc/{pid}/task").iterdir()
            return all("TracerPid:\t0\n" not in (thread / "status").read_text() for thread in threads)

        wait_until(held_whole, "strace holds all its threads")

    try:
        bad, last = lose_one_of_two(stage, folders, break_storage)
        told = event_after(stage, "load_failed", last, bad["id"], "its storage")
        event = event_after(stage, "recovered", told)
        print(f"recovered {event['time'] - told['time']:.2f} s after its storage failed")
        status = settled(stage)
        assert next(n for n in status["nodes"] if n["id"] == bad["id"])["state"] == "ready"
        assert experts_on(status, bad["id"]) > 0, "what it holds serves on"
        Streams(stage, LASTING).assert_unchanged(expected)
    finally:
        for strace in held:
            strace.kill()
            strace.wait()
