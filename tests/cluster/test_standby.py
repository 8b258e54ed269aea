"""A standby takes the head's place: every request that was accepted completes, with the same tokens and
log-probabilities, and a client that knows both addresses gets each token once."""

import contextlib
import json
import random
import re
import shutil
import signal
import time

import pytest

from pair import Pair, standby_of, state_of
from promises import bound
from recovery import ONE_REPLICA, SMALL
from running import get, post, run, wait_until
from test_head_dies import STREAMED, askers, assert_answered

FLAGS = [*SMALL, "--min-devices", 2]


def flow(pair, name, count=10):
    """Streams under way, whose clients know both addresses."""
    asked = askers(pair.stage, STREAMED, name, count, pair.doors)
    wait_until(lambda: sum(asker.tokens > 3 for asker in asked) >= count // 2, "tokens come")
    return asked


def test_a_standby_takes_over_and_the_old_head_follows(stages, expected):
    stage = stages(*FLAGS)
    pair = Pair(stage)
    pair.wait_follows()
    status, answer = post(pair.base_url, "/v1/completions", {"prompt": "a", "max_tokens": 1})
    assert status == 503 and "standby" in answer["error"]["message"]
    assert pair.state() == "standby"
    # Both state folders lead to the cluster, and tell of the standby.
    for folder in (stage.state_dir, pair.state_dir):
        shown = run("status", "--state-dir", folder).stdout
        assert re.search(rf"^standby +\S+:{pair.port} ready$", shown, re.MULTILINE), shown
        here = "Here is a standby of the head at " in shown and "has all that was accepted" in shown
        assert here == (folder == pair.state_dir)
    # Cut off together with the workers it would take over, by a file that revokes nothing.
    listed = json.loads(run("certificate", "list", "--json", "--state-dir", stage.state_dir).stdout)
    (joins,) = (row["certificate"] for row in listed if row["name"] == "join-file")
    revoked = run("certificate", "revoke", joins, "--state-dir", stage.state_dir)
    assert revoked.returncode == 1 and "stop it first" in revoked.stderr, revoked
    # It knows of the checkpoint what the head does: weights that are rewritten stay refused.
    known = [(folder / "known").read_text().splitlines()[1:] for folder in (stage.state_dir, pair.state_dir)]
    assert len(known[0]) > 400 and set(known[0]) == set(known[1])
    asked = flow(pair, "a", 16)
    stage.head_process.kill()
    pair.wait_rules()
    assert_answered(stage, asked, expected)
    assert max(asker.tries for asker in asked) > 1
    assert all(worker.alive() for worker in stage.workers)
    # Commands find it by the old head's join file.
    told = lambda: json.loads(run("status", "--json", env=stage.env).stdout)["cluster"]["state"]  # noqa: E731
    wait_until(lambda: told() == "ready", "it serves by all workers")
    # A worker that is started with the old head's address finds the new one.
    lost = stage.workers.pop()
    lost.process.kill()
    stage.add_worker()

    def replaced():
        pids = set(lives_of(pair.base_url))
        return len(pids) == 2 and lost.process.popen.pid not in pids and told() == "ready"

    wait_until(replaced, "another takes its place")
    # The head that was comes back with its old flags, and follows; then it takes over in its turn.
    stage.head_process.popen.wait()
    stage.start_head()
    stage._wait(lambda: standby_of(pair.base_url) == "ready", "the old head has it all")
    asked = flow(pair, "b")
    pair.process.kill()
    stage.wait_ready()
    assert_answered(stage, asked, expected)


def lives_of(base_url):
    """Of each worker, by its process."""
    nodes = json.loads(get(base_url, "/cluster/status"))["nodes"]
    return {node["pid"]: (node["id"], node["incarnation"]) for node in nodes if node["state"] != "lost"}


def test_a_worker_with_a_join_file_of_its_own_learns_where_the_standby_is(stages):
    """It comes to another head than its file's, started as always."""
    stage = stages(*SMALL)
    own = stage.folder / "own" / "join"
    own.parent.mkdir(mode=0o700)
    shutil.copy(stage.state_dir / "join", own)
    pair = Pair(stage)
    pair.wait_follows()
    worker = stage.add_worker("--join", own)
    wait_until(lambda: f":{pair.port}" in own.read_text(), f"the file names it:\n{stage.logs()}")
    worker.kill()
    stage.head_process.kill()
    pair.wait_rules()
    worker = stage.add_worker("--join", own)
    wait_until(lambda: worker.process.popen.pid in lives_of(pair.base_url), "it finds the one that rules")


def test_workers_go_on_under_the_next_head_with_what_they_have_computed(stages):
    # With several replicas the next head does not know which of them has computed what.
    stage = stages(*ONE_REPLICA, "--min-devices", 2)
    pair = Pair(stage)
    pair.wait_follows()
    question = {"prompt": "The rain in Spain falls mainly on the plain, they say. " * 6, "max_tokens": 8,
                "temperature": 0, "return_token_ids": True}  # fmt: skip

    def ask(base_url):
        status, answer = post(base_url, "/v1/completions", question)
        assert status == 200, answer
        return answer["choices"][0]["token_ids"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    tokens, _ = ask(stage.base_url)
    lives = lives_of(stage.base_url)
    assert len(lives) == 2
    stage.head_process.kill()
    pair.wait_rules()
    assert lives_of(pair.base_url) == lives
    again, cached = ask(pair.base_url)
    assert again == tokens and cached > 100
    # The first head comes back, and takes over in its turn; then it starts again alone.
    stage.head_process.popen.wait()
    stage.start_head()
    stage._wait(lambda: standby_of(pair.base_url) == "ready", "the old head has it all")
    pair.process.kill()
    stage.wait_ready()
    assert lives_of(stage.base_url) == lives
    pair.process.popen.wait()
    wait_until(lambda: standby_of(stage.base_url) is None, "the head goes on alone")
    stage.head_process.kill()
    stage.head_process.popen.wait()
    stage.start_head()
    stage.wait_ready()
    assert lives_of(stage.base_url) == lives
    again, cached = ask(stage.base_url)
    assert again == tokens and cached > 100
    # A worker that dies with its head comes back as another.
    stage.head_process.kill()
    stage.head_process.popen.wait()
    stage.workers[0].kill()
    stage.start_head()
    stage.add_worker()
    stage.wait_ready()
    assert set(lives_of(stage.base_url).values()) & set(lives.values()) <= set(lives.values())
    again, _ = ask(stage.base_url)
    assert again == tokens


def test_a_head_that_stood_still_is_deposed(stages, expected):
    stage = stages(*FLAGS)
    pair = Pair(stage)
    pair.wait_follows()
    asked = flow(pair, "c")
    stage.head_process.kill(signal.SIGSTOP)
    # Who asks it waits; who comes next asks the other.
    late = askers(stage, STREAMED, "d", 4, [pair.http_port])
    began = time.monotonic()
    pair.wait_rules()
    bound("it rules", time.monotonic() - began, 7)
    stage.head_process.kill(signal.SIGCONT)
    stage._wait(lambda: standby_of(pair.base_url) == "ready", "the old head follows")
    assert_answered(stage, asked + late, expected)
    assert stage.head_process.popen.poll() is None


def test_without_most_workers_nobody_takes_over(stages, expected):
    stage = stages(*FLAGS)
    pair = Pair(stage)
    pair.wait_follows()
    asked = flow(pair, "e")
    stage.head_process.kill()
    stage.workers[0].kill()
    said = "1 of 2 workers grant that it takes over: it needs more than half"
    stage._wait(lambda: said in json.loads(get(pair.base_url, "/cluster/status"))["cluster"]["message"],
                "it says what it lacks")  # fmt: skip
    time.sleep(2)
    assert pair.state() == "standby"
    told = run("status", "--state-dir", pair.state_dir)
    assert told.returncode == 0 and said in told.stdout, told
    told = json.loads(run("status", "--json", "--state-dir", pair.state_dir).stdout)["cluster"]
    assert told["state"] == "standby" and said in told["message"] and told["head"]
    # The head comes back: it goes on, and is followed again.
    stage.head_process.popen.wait()
    stage.start_head()
    stage.add_worker()
    stage.wait_ready()
    pair.wait_follows()
    assert_answered(stage, asked, expected)


@pytest.mark.long
def test_a_standby_that_dies_costs_nothing(stages, expected):
    stage = stages(*FLAGS)
    pair = Pair(stage)
    pair.wait_follows()
    asked = flow(pair, "f")
    pair.process.kill()
    wait_until(lambda: standby_of(stage.base_url) is None, "the head goes on alone")
    assert_answered(stage, asked, expected)
    # Alone it starts again without asking anybody.
    stage.head_process.kill()
    stage.head_process.popen.wait()
    stage.start_head()
    stage.wait_ready()
    # A crash of the standby's own is made good.
    pair.start()
    pair.wait_follows()
    # And the end of the cluster is its own.
    stage.stop()
    assert pair.process.exit_code() == 0


@pytest.mark.parametrize("old_head_is_back", [True, pytest.param(False, marks=pytest.mark.long)])
def test_after_a_take_over_and_a_stop_all_start_as_ever(stages, old_head_is_back):
    stage = stages(*FLAGS)
    pair = Pair(stage)
    pair.wait_follows()
    stage.head_process.kill()
    stage.head_process.popen.wait()
    pair.wait_rules()
    if old_head_is_back:
        stage.start_head()
        stage._wait(lambda: standby_of(pair.base_url) == "ready", "the old head has it all")
    stage.stop()
    assert pair.process.exit_code() == 0
    assert not old_head_is_back or stage.head_process.exit_code() == 0
    # The head that followed, or was dead, is the head again, and the standby follows.
    stage.start_head()
    pair.start()
    for _ in range(2):
        stage.add_worker()
    stage.wait_ready()
    pair.wait_follows()
    # Stopped in order, a head asks nobody when it starts alone.
    stage.stop()
    assert pair.process.exit_code() == 0
    for _ in range(2):
        stage.add_worker()
    stage.start_head()
    stage.wait_ready()


@pytest.mark.long
def test_who_may_not_follow_is_told_why(stages):
    stage = stages(*FLAGS)
    other = Pair(stage, "--max-num-seqs", 7)
    assert other.process.exit_code() == 1
    assert "other engine flags" in other.process.log()
    (other.state_dir / "credentials.pem").unlink()
    other.start()
    assert other.process.exit_code() == 1
    assert "copy the one of the head" in other.process.log()


@pytest.mark.long
def test_heads_and_workers_die_again_and_again(stages, expected):
    stage = stages(*FLAGS, "--redundant-experts", 32, workers=3)
    pair = Pair(stage)
    rng = random.Random(7)
    heads = {"first": stage.base_url, "second": pair.base_url}
    asked = []
    for number in range(12):
        found = []
        rules = lambda: [name for name, url in heads.items() if state_of(url) == "ready"]  # noqa: E731
        wait_until(lambda: found.extend(rules()) or found, "one of them rules")
        ruling = found[0]
        stage._wait(lambda url=heads[ruling]: standby_of(url) == "ready", f"{ruling} is followed")
        asked += flow(pair, f"r{number}", 8)
        victim = stage.head_process if ruling == "first" else pair.process
        other = "second" if ruling == "first" else "first"
        hangs = rng.random() < 0.3
        victim.kill(signal.SIGSTOP if hangs else signal.SIGKILL)
        if rng.random() < 0.4:
            time.sleep(rng.uniform(0, 2))
            stage.workers[rng.randrange(len(stage.workers))].kill()
            stage.living()
            stage.add_worker()
        # Not with more than half of the workers gone; then the head has to come back.
        with contextlib.suppress(AssertionError):
            wait_until(lambda url=heads[other]: state_of(url) == "ready", "it takes over", 10)
        if hangs:
            victim.kill(signal.SIGCONT)
            time.sleep(2)  # it has heard by then that another rules
            continue
        victim.popen.wait()
        stage.start_head() if ruling == "first" else pair.start()
    assert_answered(stage, asked, expected)
