"""Every copy proves itself: other weights never serve; what is wrong is found, named and taken out."""

import json
import resource
import shutil
import struct

import pytest

from recovery import (ALL_TWICE, LASTING, ONE_REPLICA, SMALL, event_after, hurt, last_event,
                      node_with_replica, settled)
from running import DEMO, wait_until
from streams import Streams


def rotate_weights(folder, tensor=None):
    """Other weights in the same layout, in place: all bytes moved on by 4, or one tensor's."""
    for weights in folder.glob("*.safetensors"):
        with open(weights, "r+b") as file:
            (header,) = struct.unpack("<Q", file.read(8))
            begin, end = 0, weights.stat().st_size - header - 8
            if tensor:
                begin, end = json.loads(file.read(header))[tensor]["data_offsets"]
            file.seek(8 + header + begin)
            data = file.read(end - begin)
            file.seek(8 + header + begin)
            file.write(data[4:] + data[:4])


def proofs(stage):
    return stage.status()["proofs"]


def with_own_files(stages, tmp_path, *flags, workers=3):
    stage = stages(*flags, "--min-devices", workers, workers=0)
    folders = [tmp_path / f"{i}" for i in range(workers)]
    for folder in folders:
        shutil.copytree(DEMO, folder)
    return stage, folders


def test_the_status_counts_proven_copies(stages):
    stage = stages(*SMALL)
    wait_until(lambda: proofs(stage)["proven"] == proofs(stage)["parts"] > 0, "all parts are proven")
    state = proofs(stage)
    assert state["refused"] == 0 and state["oldest_s"] < 120 and state["unconfirmed"] == 0


def test_weights_that_are_rewritten_in_place_never_serve(stages, expected, tmp_path):
    """The same layout, other bytes; then a worker dies and its experts have to be read."""
    stage, folders = with_own_files(stages, tmp_path, *ONE_REPLICA)
    for folder in folders:
        stage.add_worker("--model", folder)
    stage.wait_ready()
    settled(stage)
    streams = Streams(stage, LASTING).flow()
    for folder in folders:
        rotate_weights(folder)
    victim = node_with_replica(stage, has=False)
    last, _ = hurt(stage, victim)
    event_after(stage, "node_lost", last, victim["id"])
    # A process that never saw the old bytes: only the cluster knows that these are others.
    stage.add_worker("--model", folders[0])
    event = event_after(stage, "proof_failed", last)
    assert "model.safetensors" in event["text"]
    assert stage.state() != "ready"
    stage.add_worker("--model", DEMO)
    streams.assert_unchanged(expected)
    assert proofs(stage)["refused"] >= 1


def test_files_that_were_touched_or_fetched_again_are_read_again(stages, expected, tmp_path):
    """The same bytes under another date, or in another file: what is read says that it is the same."""
    stage, folders = with_own_files(stages, tmp_path, *ONE_REPLICA)
    for folder in folders:
        stage.add_worker("--model", folder)
    stage.wait_ready()
    settled(stage)
    streams = Streams(stage, LASTING).flow()
    for i, folder in enumerate(folders):
        for weights in folder.glob("*.safetensors"):
            if i == 0:
                weights.touch()
            else:
                shutil.copy(weights, folder / "again")
                (folder / "again").rename(weights)
    last, _ = hurt(stage, node_with_replica(stage, has=False))
    event = event_after(stage, "files_changed", last)
    assert "model.safetensors has changed since it was opened" in event["text"]
    wait_until(lambda: stage.state() == "ready" and settled(stage), "its experts are elsewhere")
    streams.assert_unchanged(expected)
    assert proofs(stage)["refused"] == 0
    assert not [e for e in stage.status()["events"] if e["kind"] in ("load_failed", "proof_failed")]


@pytest.mark.parametrize("place", [*(pytest.param(place, marks=pytest.mark.long) for place in (0, 2)), 1])
def test_one_of_three_nodes_has_another_revision(stages, expected, tmp_path, place):
    """Whether it joins first or last: it is named and taken out, the other two serve."""
    stage, folders = with_own_files(stages, tmp_path, *SMALL, *ALL_TWICE)
    rotate_weights(folders[place])
    for i, folder in enumerate(folders):
        stage.add_worker("--model", folder)
        wait_until(lambda: len(stage.status()["nodes"]) > i, "it joins")
    stage.wait_ready()
    event = event_after(stage, "proof_failed", None)
    wrong = next(n["id"] for n in stage.status()["nodes"] if n["pid"] == stage.workers[place].pid)
    assert f"{wrong} " in event["text"] and "model.safetensors" in event["text"]
    status = stage.status()
    devices = {s["device"] for layer in status["experts"]["placement"] for s in layer["slots"]}
    devices |= {s["device"] for replica in status["replicas"] for s in replica["shards"]}
    assert not [d for d in devices if d.startswith(f"{wrong}/")]
    Streams(stage, LASTING).assert_unchanged(expected)


def test_one_tensor_of_the_only_copy(stages, expected, tmp_path):
    """Nobody else loads it: the head's own reading finds it."""
    stage, folders = with_own_files(stages, tmp_path, *ONE_REPLICA)
    for layer in range(1, 5):
        rotate_weights(folders[0], f"model.layers.{layer}.mlp.experts.3.down_proj.weight")
    rotate_weights(folders[0], "model.layers.0.self_attn.o_proj.weight")
    for folder in folders:
        stage.add_worker("--model", folder)
    stage.wait_ready()
    Streams(stage, LASTING).assert_unchanged(expected)


def test_numerics_and_known_weights_outlive_the_head(stages, tmp_path):
    """A worker that cannot run the kept numerics does not change them by joining first."""
    stage, folders = with_own_files(stages, tmp_path, *SMALL, workers=2)
    for folder in folders:
        stage.add_worker("--model", folder)
    stage.wait_ready()
    numerics = stage.status()["cluster"]["numerics"]
    known = (stage.state_dir / "known").read_text()
    assert f"numerics {numerics}" in known and "tensor model.norm.weight" in known
    for worker in stage.workers:
        worker.kill()
    stage.head_process.kill()
    stage.head_process.popen.wait()
    rotate_weights(folders[0])
    stage.start_head()
    last = last_event(stage)
    stage.add_worker("--model", folders[0])
    stage.add_worker("--model", DEMO)
    event_after(stage, "proof_failed", last)
    assert stage.status()["cluster"]["numerics"] == numerics
    stage.stop()
    assert not (stage.state_dir / "known").exists()


@pytest.mark.parametrize("damage, said", [("a loop", "cannot be read"), ("emptied", "none of its")])
def test_a_known_file_that_cannot_be_read_is_not_overwritten(stages, tmp_path, damage, said):
    stage, folders = with_own_files(stages, tmp_path, *SMALL, workers=1)
    stage.add_worker("--model", folders[0])
    stage.wait_ready()
    stage.workers[0].kill()
    stage.head_process.kill()
    stage.head_process.popen.wait()
    known = stage.state_dir / "known"
    if damage == "a loop":
        known.rename(stage.state_dir / "moved")
        known.symlink_to("known")  # for root as well
    else:
        known.write_text("")
    again = stage.head(DEMO, *stage.head_flags)
    assert again.exit_code() == 1
    assert f"{known} " in again.log() and said in again.log()
    assert known.is_symlink() or known.read_text() == ""


def test_a_damaged_line_of_what_is_known_is_left_out(stages, expected, tmp_path):
    """It is not held against anybody's weights: what it told is proven again."""
    stage, folders = with_own_files(stages, tmp_path, *SMALL, workers=2)
    workers = [stage.add_worker("--model", folder) for folder in folders]
    stage.wait_ready()
    stage.head_process.kill()
    stage.head_process.popen.wait()
    known = stage.state_dir / "known"
    lines = known.read_text().splitlines(True)
    which = next(i for i, line in enumerate(lines) if line.startswith("tensor model.norm.weight "))
    words = lines[which].split(" ")
    words[5] = f"{int(words[5], 16) ^ 1:x}"
    lines[which] = " ".join(words)
    known.write_text("".join(lines))
    stage.start_head()
    stage.wait_ready()
    assert f"{known} has 1 line that the disk has changed" in stage.head_process.log()
    assert all(worker.alive() for worker in workers)
    Streams(stage, LASTING).assert_unchanged(expected)
    assert proofs(stage)["refused"] == 0


def test_a_disk_that_is_full_for_a_while_leaves_no_half_line(stages, tmp_path):
    stage, folders = with_own_files(stages, tmp_path, *SMALL, workers=1)
    known = stage.state_dir / "known"
    limit = known.stat().st_size + 2000
    resource.prlimit(stage.head_process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    stage.add_worker("--model", folders[0])
    stage.wait_ready()
    assert known.stat().st_size <= limit
    resource.prlimit(stage.head_process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    assert all(line.endswith(" .\n") for line in known.read_text().splitlines(True)[1:])
    stage.head_process.kill()
    stage.head_process.popen.wait()
    stage.start_head()
    stage.wait_ready()


@pytest.mark.parametrize("own", [False, True])
def test_a_link_that_leads_elsewhere_now(stages, expected, tmp_path, own):
    """The head comes back with another revision, the workers still hold the old one."""
    stage, folders = with_own_files(stages, tmp_path, *SMALL, workers=2)
    rotate_weights(folders[0])
    link = tmp_path / "current"
    link.symlink_to(folders[0])
    stage.stop()
    stage.head_process = stage.head(link, *stage.head_flags)
    stage.wait_joinable()
    for _ in range(2):
        stage.add_worker(*(("--model", link) if own else ()))
    stage.wait_ready()
    link.unlink()
    link.symlink_to(folders[1])
    stage.head_process.kill()
    stage.head_process.popen.wait()
    stage.head_process = stage.head(link, *stage.head_flags)
    stage.wait_ready()
    Streams(stage, LASTING).assert_unchanged(expected)
