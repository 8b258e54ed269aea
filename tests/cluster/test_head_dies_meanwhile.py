"""The head is killed while its cluster changes: what was being done is done or undone afterwards, as the
status says, every accepted request comes to its end with the same tokens, and no worker stays away."""

import time

import pytest

from recovery import LASTING, SMALL, event_after, hosts_of_replicas, hurt, last_event, settled, worker_of
from running import Process, wait_until
from streams import Missed, arranged
from test_head_dies import STREAMED, askers, assert_answered, kill_head

FLAGS = [*SMALL, "--redundant-experts", 8, "--min-devices", 2]


class Cluster:
    """A stage, what is asked of it, and commands that run meanwhile."""

    def __init__(self, stage, expected):
        self.stage, self.expected = stage, expected
        self.asked = []
        self.rounds = 0

    def ask(self, count=6):
        """So many requests, which run on. -> the last event until then"""
        self.rounds += 1
        fresh = askers(self.stage, STREAMED, f"r{self.rounds}", count)
        wait_until(lambda: sum(asker.tokens > 3 for asker in fresh) >= count // 2, "tokens come")
        self.asked += fresh
        return last_event(self.stage)

    def command(self, *words):
        log = self.stage.folder / f"{words[0]}-{self.rounds}.log"
        process = Process(words, self.stage.env, log)
        self.stage.processes.append(process)
        return process

    def assert_whole(self):
        """Everything was answered and is where it belongs; every worker that runs is used. -> status"""
        stage = self.stage
        assert_answered(stage, self.asked, self.expected)
        self.asked = []

        def all_used():
            running = {worker.pid for worker in stage.workers if worker.alive()}
            return {node["pid"] for node in stage.ready_nodes()} == running

        stage._wait(all_used, "every worker that runs is used")
        status = settled(stage)
        assert status["requests"]["failed"] == 0
        for layer in status["experts"]["placement"]:
            assert {slot["expert"] for slot in layer["slots"]} == set(range(32))
        return status


def kill_head_when(stage, moment, what):
    """Kills it as soon as the status says so. It must come about before what is done is over."""
    stage._wait(lambda: (status := stage.status_or_none()) and moment(status), what)
    kill_head(stage, 0.1)


def test_a_drain(stages, expected):
    cluster = Cluster(stages(*FLAGS, workers=3), expected)
    stage = cluster.stage

    def drain_and_die():
        last = cluster.ask()
        node = stage.ready_nodes()[-1]
        worker = worker_of(stage, node)
        drain = cluster.command("drain", node["id"])
        event_after(stage, "drain", last, node["id"])
        kill_head(stage, 0.1)
        code = drain.exit_code()
        if worker.alive():
            worker.kill() if code == 0 else None  # it may be switched off
        status = cluster.assert_whole()
        if code == 0:
            stage.add_worker()
            raise Missed("the drain was over before the head died")
        assert code == 1 and "troupe: " in drain.log(), drain.log()
        return node, worker, status

    node, worker, status = arranged(drain_and_die)
    there = [n for n in status["nodes"] if n["pid"] == node["pid"] and n["state"] == "ready"]
    assert bool(there) == worker.alive()
    if not there:
        return
    # Undone: it can be asked for again.
    again = cluster.command("drain", there[0]["id"])
    assert again.exit_code() == 0, again.log()
    assert there[0]["id"] not in hosts_of_replicas(stage.status())


@pytest.mark.long
def test_a_rebalance(stages, expected):
    cluster = Cluster(stages(*FLAGS, workers=3), expected)
    stage = cluster.stage

    def rebalance_and_die():
        last = cluster.ask()
        rebalance = cluster.command("rebalance")
        event_after(stage, "rebalance", last)
        kill_head(stage, 0.1)
        code = rebalance.exit_code()
        cluster.assert_whole()
        if code == 0:
            raise Missed("the rebalance was over before the head died")
        assert code == 1 and "troupe: " in rebalance.log(), rebalance.log()

    arranged(rebalance_and_die)
    again = cluster.command("rebalance")
    assert again.exit_code() == 0, again.log()
    cluster.assert_whole()


def test_a_change_of_version_and_a_worker_that_has_just_joined(stages, expected):
    """It is killed as soon as it knows of the worker, whose place in the cluster is then made again."""
    cluster = Cluster(stages(*FLAGS), expected)
    stage = cluster.stage

    def join_and_die():
        cluster.ask()
        joined = stage.add_worker()
        kill_head_when(
            stage, lambda s: any(n["pid"] == joined.pid for n in s["nodes"]), "it has joined")
        status = cluster.assert_whole()
        assert len(hosts_of_replicas(status)) > 0

    for _ in range(2):
        join_and_die()
    assert len(stage.ready_nodes()) == 4


def test_the_recovery_of_a_worker(stages, expected):
    """A worker is killed, the head while that is repaired, and again while workers come back to it."""
    cluster = Cluster(stages(*FLAGS, workers=3), expected)
    stage = cluster.stage
    for again in (False, True):
        cluster.ask()
        victim = stage.ready_nodes()[0]
        last, _ = hurt(stage, victim)
        event_after(stage, "node_lost", last, victim["id"])
        kill_head(stage, 0.1)
        if again:
            time.sleep(0.2)
            kill_head(stage, 0)
        stage.add_worker()
        cluster.assert_whole()
        assert len(stage.ready_nodes()) == 3


@pytest.mark.parametrize("state", ["forming", "loading"])
def test_formation(stages, expected, state):
    """All have died; as new workers come and load, the head dies once more."""
    cluster = Cluster(stages(*FLAGS), expected)
    stage = cluster.stage
    cluster.ask()
    for worker in stage.workers:
        worker.kill()
    kill_head(stage, 0.1)
    for _ in range(2):
        stage.add_worker()

    def forms(status):
        if status["cluster"]["state"] == "ready":
            return True  # the machine was quicker: then it dies as it has begun to serve
        return status["cluster"]["state"] == state and status["nodes"]

    kill_head_when(stage, forms, f"the cluster is {state}")
    cluster.assert_whole()
    assert len(stage.ready_nodes()) == 2


# --- A head that stays away ---------------------------------------------------------------------


@pytest.mark.long
def test_a_head_that_stays_away_for_longer_than_requests_may_take(stages, expected):
    """Its workers have let go of everything meanwhile; time without a head is nobody's time."""
    stage = stages(*SMALL, "--min-devices", 2, "--keep-for", 2, "--request-timeout", 20)
    asked = askers(stage, LASTING[:2], "away", 2)
    wait_until(lambda: all(asker.tokens > 3 for asker in asked), "tokens come")
    pids = {node["pid"] for node in stage.ready_nodes()}
    kill_head(stage, 21)
    for worker in stage.workers:
        assert "No head has come for 2 s (--keep-for): the weights are let go." in worker.process.log()
    assert_answered(stage, asked, expected)
    assert {node["pid"] for node in stage.ready_nodes()} == pids
    requests = stage.status()["requests"]
    assert requests["failed"] == 0 and requests["replayed"] == 2
