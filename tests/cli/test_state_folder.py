"""State folders that cannot be used: one sentence, exit code 1, and nothing half-written."""

import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from bad_machine import BadMachine
from promises import bound
from running import DEMO, PATIENCE_S, TROUPE, Cluster, alive, run, wait_until
from test_first_impressions import one_sentence

ANY_PORT = ["--port", 0, "--listen", "127.0.0.1:0"]


def head_in(folder, **options):
    words = [str(word) for word in (TROUPE, "head", "--model", DEMO, *ANY_PORT, "--state-dir", folder)]
    return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, **options)


def refused(done, *said):
    assert done.returncode == 1, done.stderr
    line = one_sentence(done.stderr)
    assert all(text in line for text in said), line
    return line


def used_folder(tmp_path):
    """A state folder that a head has used and left."""
    with Cluster() as cluster:
        cluster.up(DEMO, workers=1)
        cluster.stop()
        shutil.copytree(cluster.state_dir, tmp_path / "used")
    return tmp_path / "used"


def half_written(folder):
    return [path.name for path in folder.rglob("*") if "." in path.name and path.suffix != ".pem"]


@pytest.fixture
def mount(tmp_path):
    """A small file system of its own."""
    folder = tmp_path / "mounted"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=4k,mode=700", "tmpfs", folder]
    if os.geteuid() != 0 or subprocess.run(words, capture_output=True).returncode != 0:
        pytest.skip("mounting needs root")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_folder(mount):
    (mount / "others").write_bytes(b"x" * 4096)
    refused(head_in(mount), "No space left", "--state-dir")
    assert {path.name for path in mount.iterdir()} <= {"others", "lock"}


def test_a_read_only_folder(mount):
    subprocess.run(["mount", "-o", "remount,ro", mount], check=True)
    line = refused(head_in(mount), str(mount), "Read-only file system", "--state-dir")
    assert "Another head" not in line
    refused(head_in(mount / "below"), "Read-only file system", "--state-dir")


def test_files_that_may_not_grow(tmp_path):
    folder = tmp_path / "state"
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8, 8))  # noqa: E731
    refused(head_in(folder, preexec_fn=limit), "File too large", "--state-dir")
    assert not half_written(folder)


def test_a_share_without_locks(tmp_path):
    machine = BadMachine(tmp_path / "machine", tmp_path / "state")
    machine.break_disk("has no locks")
    line = refused(head_in(tmp_path / "state", env={**os.environ, **machine.env}),
                   "cannot be locked: No locks available", "mounted with locks", "--state-dir")  # fmt: skip
    assert "Another head" not in line


@pytest.mark.parametrize("how", ["fails to write", "fails to sync", "is a share that is gone"])
def test_a_disk_that_fails(tmp_path, how):
    machine = BadMachine(tmp_path / "machine", tmp_path / "state")
    machine.break_disk(how)
    broken = {**os.environ, **machine.env}
    refused(head_in(tmp_path / "state", env=broken), str(tmp_path / "state"), "--state-dir")
    machine.mend_disk()
    head = subprocess.Popen([str(w) for w in (TROUPE, "head", "--model", DEMO, *ANY_PORT, "--state-dir",
                                              tmp_path / "state")], stderr=subprocess.DEVNULL)  # fmt: skip
    wait_until((tmp_path / "state" / "join").exists, "it begins where the other could not")
    head.terminate()
    head.wait(PATIENCE_S)


def test_a_file_in_its_place(tmp_path):
    (tmp_path / "file").write_text("")
    refused(head_in(tmp_path / "file"), "a file is in its place", "--state-dir")
    refused(head_in(tmp_path / "file" / "below"), "Not a directory", "--state-dir")


@pytest.mark.parametrize(
    "file, content, said",
    [
        ("format", "troupe-state-9\n", "another version of Troupe"),
        ("credentials.pem", "troupe-credentials 2\nca-certificate\n", "another version of Troupe"),
        ("credentials.pem", "nonsense\n", "credentials.pem"),
        ("cluster-id", "\0garbage\xff\n", "cluster-id"),
        ("incarnation", "twelve\n", "incarnation"),
        ("next-node", "-3\n", "next-node"),
    ],
)
def test_a_folder_of_another_version_or_damaged(tmp_path, file, content, said):
    folder = used_folder(tmp_path)
    (folder / file).write_bytes(content.encode("latin-1"))
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    refused(head_in(folder), said)
    after = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert {**before, "incarnation": ""} == {**after, "incarnation": ""}


def test_a_join_file_of_another_version(tmp_path):
    join = tmp_path / "join"
    join.write_text("troupe-join 2\nhead 127.0.0.1:1\n")
    refused(run("worker", "--join", join, env={"TROUPE_STATE_DIR": str(tmp_path)}), "another version of Troupe")


def test_the_second_head_names_the_first(cluster):
    up = cluster.up(DEMO)
    for command in ("up", "head"):
        done = run(command, "--model", DEMO, *ANY_PORT, env=cluster.env)
        refused(done, f"process {up.pid}", str(cluster.state_dir), "troupe stop", "--state-dir")
    cluster.complete("brandy", max_tokens=4)
    # A head that was killed holds nothing.
    up.kill()
    up.popen.wait()
    wait_until(lambda: not cluster.pids(), "its workers end")
    cluster.up(DEMO)


def test_a_foreign_join_file_is_one_error_with_one_advice(cluster):
    cluster.head(DEMO)
    cluster.wait_joinable()
    with Cluster() as other:
        other.head(DEMO)
        other.wait_joinable()
        address = f"127.0.0.1:{cluster.control_port}"
        worker = cluster.start("worker", "--head", address, "--join", other.state_dir / "join")
        assert worker.exit_code() == 1
        line = one_sentence(worker.log())
        foreign = (other.state_dir / "join").read_text().replace(
            f"head 127.0.0.1:{other.control_port}", f"head {address}")
        (cluster.folder / "join").write_text(foreign)
        status = run("status", "--state-dir", cluster.folder)
        assert status.returncode == 1
    for text in (line, one_sentence(status.stderr)):
        assert "belongs to another cluster" in text and address in text
        assert text.count("join file") == 2 and text.count(";") == 1, "what is wrong, and what to do"


# --- stop ---------------------------------------------------------------------------------------


def test_stop_ends_workers_that_have_not_joined(cluster):
    """Ten that have only just been started, some of which no head has heard of."""
    cluster.head(DEMO, "--min-devices", 12)
    cluster.wait_joinable()
    early = [cluster.worker() for _ in range(6)]
    time.sleep(0.5)
    late = [cluster.worker() for _ in range(4)]
    registered = cluster.state_dir / "workers"
    names = lambda: {int(path.name.rsplit(".", 1)[1]) for path in registered.glob("*")}  # noqa: E731
    wait_until(lambda: {w.pid for w in (*early, *late)} <= names(), "they have begun")
    bound("stopped", cluster.stop(), 8)
    assert not [worker.pid for worker in (*early, *late) if alive(worker.pid)]
    assert not cluster.pids()


# What a worker does at its end, slowly: its name goes before it does itself.
SLOW_TO_END = """
import fcntl, os, signal, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
file = open(f"{sys.argv[1]}.{os.getpid()}", "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
signal.sigwait({signal.SIGTERM})
os.unlink(file.name)
file.close()
time.sleep(1)
"""


def test_stop_waits_for_a_worker_that_has_taken_its_name_away(cluster):
    cluster.head(DEMO)
    cluster.wait_joinable()
    workers = cluster.state_dir / "workers"
    workers.mkdir(mode=0o700)
    (cluster.folder / "worker").write_text(SLOW_TO_END)
    words = ["troupe", "worker", workers / socket.gethostname()]
    ending = subprocess.Popen(words, executable=sys.executable, cwd=cluster.folder, env=cluster.env,
                              stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert ending.stdout.readline() == "locked\n"
    threading.Thread(target=ending.wait, daemon=True).start()
    bound("stopped", cluster.stop(), 8)
    assert not alive(ending.pid)


def test_stop_ends_a_worker_that_seeks_another_head(cluster):
    cluster.head(DEMO)
    cluster.wait_joinable()
    astray = cluster.start("worker", "--head", "127.0.0.1:1")
    astray.wait_log("Seeking the head")
    bound("stopped", cluster.stop(), 8)
    assert astray.exit_code() == 0


@pytest.mark.parametrize("separate", [False, True], ids=["up", "head and workers"])
def test_stop_ends_workers_that_are_stopped(cluster, separate):
    if separate:
        cluster.head(DEMO, "--min-devices", 2)
        cluster.wait_joinable()
        cluster.worker(), cluster.worker()
        cluster.wait_ready()
    else:
        cluster.up(DEMO)
    os.kill(cluster.ready_nodes()[0]["pid"], signal.SIGSTOP)
    bound("stopped", cluster.stop(), 8)
    assert not cluster.pids()
