"""Workers that join by a token: which get in, which do not, and what they are told."""

import json
import re
import signal
import socket
import stat
import time
from pathlib import Path

import pytest

from promises import bound
from running import DEMO, PATIENCE_S, Cluster, run
from test_first_impressions import one_sentence


def token(state_dir, *words):
    done = run("token", "create", "--state-dir", state_dir, *words)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"K10[0-9a-f]{64}::[0-9a-z-]+:[0-9a-f]{32}\n", done.stdout)
    return done.stdout.strip()


def tokens(state_dir):
    return {t["name"]: t for t in json.loads(run("token", "list", "--json", "--state-dir", state_dir).stdout)}


def name_of(text):
    return text.split("::")[1].split(":")[0]


def mode(path):
    return stat.S_IMODE(Path(path).stat().st_mode)


@pytest.fixture(scope="module")
def head():
    with Cluster() as cluster:
        cluster.head(DEMO, "--min-devices", 99)
        cluster.wait_answers()
        yield cluster


def refused(head, folder, text, *said, code=1):
    """A worker with the token is not let in, and keeps nothing of it."""
    done = run("worker", "--head", f"127.0.0.1:{head.control_port}", "--token", text, "--state-dir", folder)
    assert done.returncode == code, done.stderr
    line = one_sentence(done.stderr)
    assert all(word in line for word in said), line
    assert text[-32:] not in line
    assert not (folder / "join").exists()


def test_a_worker_joins_by_a_token_and_again_by_what_it_got():
    """Before the head is there, it seeks it; later it needs neither the token nor that it works."""
    with Cluster() as cluster:
        text = token(cluster.state_dir, "--once")  # no head has been here yet
        folder = cluster.folder / "worker"
        worker = cluster.worker("--token", text, "--state-dir", folder, "--model", DEMO)
        worker.wait_log("Seeking the head")
        cluster.head(DEMO)
        cluster.wait_ready()
        assert mode(folder / "join") == 0o600
        assert (folder / "join").read_text() != (cluster.state_dir / "join").read_text()
        assert tokens(cluster.state_dir)[name_of(text)]["state"] == "used"
        worker.kill(signal.SIGTERM)
        assert worker.exit_code() == 0
        for words in (["--token", text], []):
            again = cluster.worker(*words, "--state-dir", folder, "--model", DEMO)
            again.wait_log("Joined the cluster")
            again.kill(signal.SIGTERM)
            assert again.exit_code() == 0


def test_what_a_head_keeps_of_a_token_cannot_be_used(head):
    text = token(head.state_dir, "--expires", "never")
    kept = (head.state_dir / "tokens").read_text()
    assert name_of(text) in kept and text[-32:] not in kept
    assert mode(head.state_dir / "tokens") == 0o600
    assert tokens(head.state_dir)[name_of(text)] | {"created": 0} == {
        "name": name_of(text), "once": False, "state": "good", "created": 0, "expires": None}
    assert text[-32:] not in head.logs()


def test_tokens_that_let_nobody_in(head, tmp_path):
    folder = tmp_path / "worker"
    brief = token(head.state_dir, "--expires", "1s")
    created = time.monotonic()
    good = token(head.state_dir)
    flipped = good[:-1] + ("0" if good[-1] != "0" else "1")
    refused(head, folder, flipped, "secret", "wrong")
    refused(head, folder, good[:-1], "cut off", code=2)
    refused(head, folder, good[:40], "cut off", code=2)
    refused(head, folder, "secret", "K10", code=2)
    refused(head, folder, token(tmp_path / "other"), "another cluster")
    assert run("token", "revoke", name_of(good), "--state-dir", head.state_dir).returncode == 0
    refused(head, folder, good, "knows no token", "deleted")
    again = run("token", "revoke", name_of(good), "--state-dir", head.state_dir)
    assert again.returncode == 1 and "There is no token" in one_sentence(again.stderr)
    whole = run("token", "revoke", good, "--state-dir", head.state_dir)
    assert name_of(good) in one_sentence(whole.stderr) and good[-32:] not in whole.stderr
    cut = run("token", "revoke", good[:-1], "--state-dir", head.state_dir)
    assert cut.returncode == 1 and "no token's name" in one_sentence(cut.stderr)
    assert good[-32:-1] not in cut.stderr
    time.sleep(max(0, created + 2.1 - time.monotonic()))
    refused(head, folder, brief, "expired")
    assert head.status()["nodes"] == []


def test_a_join_file_of_another_cluster_is_not_replaced(head, tmp_path):
    with Cluster() as other:
        other.head(DEMO)
        other.wait_answers()
        before = (other.state_dir / "join").read_text()
        done = run("worker", "--head", f"127.0.0.1:{head.control_port}", "--token", token(head.state_dir),
                   "--state-dir", other.state_dir)
        assert done.returncode == 1 and "of another cluster" in one_sentence(done.stderr)
        assert (other.state_dir / "join").read_text() == before


def test_wrong_usage(head, tmp_path):
    for words in (["worker", "--token", token(head.state_dir), "--state-dir", tmp_path],
                  ["token", "create", "--expires", "soon", "--state-dir", tmp_path],
                  ["token", "create", "--expires", "0s", "--state-dir", tmp_path],
                  ["token"]):
        assert run(*words).returncode == 2, words


def test_who_ends_a_worker_that_seeks_a_head_waits_for_nothing(tmp_path):
    with Cluster() as cluster, socket.socket() as silent:
        silent.bind(("127.0.0.1", cluster.control_port))
        silent.listen()
        worker = cluster.worker("--token", token(tmp_path), "--state-dir", tmp_path / "worker")
        silent.settimeout(PATIENCE_S)
        connection, _ = silent.accept()
        began = time.monotonic()
        worker.kill(signal.SIGTERM)
        assert worker.exit_code() == 0
        bound("ended", time.monotonic() - began, 2)
        connection.close()
