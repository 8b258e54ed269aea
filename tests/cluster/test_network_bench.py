"""`troupe bench network` against real processes: what it says, what it refuses, and what it must not hurt."""

import json
import os
import signal
import subprocess
import time

import pytest

from promises import bound
from recovery import LASTING, ONE_REPLICA, SMALL
from running import PATIENCE_S, TROUPE, run, wait_until
from streams import Missed, Streams, arranged

PORT_KEYS = {"id", "host", "address", "provider", "provider_why", "providers", "interface", "interface_why",
             "interfaces", "numa_node", "speed_mbit", "adapter"}  # fmt: skip
PAIR_KEYS = {"nodes", "state", "provider", "candidates", "chosen", "interfaces", "numa_nodes", "adapters",
             "link_bits_per_s", "link_share", "round_trips",
             "round_trip_us", "rates", "requests_meanwhile", "outliers", "error"}  # fmt: skip
SUMMARY_KEYS = {"pairs", "rounds", "measured", "no_link", "failed", "left_out", "outliers",
                "median_round_trip_us", "median_rates", "slowest"}  # fmt: skip
STATUS_KEYS = {"nodes", "provider", "interfaces", "adapters", "round_trip_us", "rates", "requests_meanwhile",
               "error", "age_s"}  # fmt: skip
# Some seconds, so that something can happen meanwhile.
SIZES = "64KiB", "256KiB", "1MiB", "4MiB"
LONG = ["--one-at-a-time", *(word for size in SIZES for word in ("--size", size))]


def bench(stage, *words, code=0):
    done = run("bench", "network", *words, env=stage.env)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def measured(stage, *words, code=0):
    return json.loads(bench(stage, "--json", *words, code=code).stdout)


def begun(stage, *words):
    """One that runs, as the head says that it does."""
    before = bench_events(stage)
    command = [str(TROUPE), "bench", "network", *words]
    process = subprocess.Popen(command, env={**os.environ, **stage.env}, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    wait_until(lambda: bench_events(stage) > before, "it is under way")
    if process.poll() is not None:
        raise Missed("it was at its end")
    return process


def bench_events(stage):
    return sum(event["kind"] == "network_bench" for event in stage.status()["events"])


def harmed(stage):
    counters = stage.status()["cluster"]["counters"]
    return {name: counters[name] for name in ("lost", "unreachable_peers", "garbage")}


UNHARMED = {"lost": 0, "unreachable_peers": 0, "garbage": 0}


def test_all_pairs_of_three_workers(stages):
    stage = stages(*SMALL, workers=3)
    report = measured(stage)
    assert report["complete"]
    assert len(report["nodes"]) == 3 and all(set(node) == PORT_KEYS for node in report["nodes"])
    for node in report["nodes"]:
        assert node["provider"] in node["providers"]
        assert node["interface"] == "lo" and "lo" in node["interfaces"]
        assert node["adapter"] is None  # nothing lies behind it
    assert set(report["summary"]) == SUMMARY_KEYS
    names = [node["id"] for node in report["nodes"]]
    expected = {(a, b) for a in names for b in names if a < b}
    assert {tuple(pair["nodes"]) for pair in report["pairs"]} == expected
    for pair in report["pairs"]:
        assert set(pair) == PAIR_KEYS
        assert pair["state"] == "measured" and pair["error"] is None, pair
        assert pair["provider"] and pair["chosen"].startswith(pair["provider"] + ": ")
        assert pair["requests_meanwhile"] == 0
        assert pair["round_trips"] >= 5
        assert 0 < pair["round_trip_us"]["p50"] <= pair["round_trip_us"]["p99"]
        assert [rate["bytes"] for rate in pair["rates"]] == [64 << 10, 1 << 20]
        ways = "there_bytes_per_s", "back_bytes_per_s"
        assert all(rate[way] > 1e5 for rate in pair["rates"] for way in ways)
    assert report["summary"]["measured"] == 3 and report["summary"]["rounds"] == 3
    one = measured(stage, "--node", names[1], "--size", "4MiB", "--pairs", 1)
    assert len(one["pairs"]) == 1 and names[1] in one["pairs"][0]["nodes"]
    assert one["summary"]["left_out"] == 1
    text = bench(stage).stdout
    assert f"{names[0]} - {names[2]}" in text and "3 of 3 pairs measured" in text
    assert harmed(stage) == UNHARMED


def test_the_status_has_the_last_figures(stages):
    stage = stages(*SMALL, workers=3)
    assert stage.status()["network"] == []
    report = measured(stage)
    pairs = stage.status()["network"]
    assert all(set(pair) == STATUS_KEYS for pair in pairs)
    figures = "provider", "interfaces", "adapters", "round_trip_us", "rates"
    for pair in report["pairs"]:
        kept = next(kept for kept in pairs if kept["nodes"] == sorted(pair["nodes"]))
        assert [kept[name] for name in figures] == [pair[name] for name in figures]
        assert kept["error"] is None and 0 <= kept["age_s"] < PATIENCE_S
    lines = [line for line in run("status", env=stage.env).stdout.splitlines() if " <> " in line]
    assert len(lines) == 3 and lines[0].startswith("network ")
    assert all(" lo  " in line and " GB/s  " in line and " measured " in line for line in lines)
    victim = stage.ready_nodes()[2]
    os.kill(victim["pid"], signal.SIGKILL)
    wait_until(lambda: len(stage.status()["network"]) < 3, "its figures are gone")
    kept, = stage.status()["network"]
    assert victim["id"] not in kept["nodes"]


def test_what_is_refused(stages):
    stage = stages(*SMALL, workers=1)
    assert "one worker" in bench(stage, code=1).stderr
    stage.add_worker()
    wait_until(lambda: len(stage.ready_nodes()) == 2, "it is used")
    assert "no node-77" in bench(stage, "--node", 77, code=1).stderr
    assert "is no node" in bench(stage, "--node", "x", code=2).stderr
    assert "--size" in bench(stage, "--size", "1GiB", code=2).stderr

    def two_at_once():
        first = begun(stage, *LONG)
        second = run("bench", "network", env=stage.env)
        if second.returncode == 0:
            raise Missed("the first one was at its end")
        assert second.returncode == 1 and "Another client" in second.stderr, second.stderr
        assert first.wait(PATIENCE_S) == 0

    arranged(two_at_once)


@pytest.mark.long
def test_a_pair_that_nothing_is_served_between_has_no_link(stages):
    stage = stages(*ONE_REPLICA, workers=3)
    report = measured(stage)
    states = [pair["state"] for pair in report["pairs"]]
    assert set(states) <= {"measured", "no_link"} and "measured" in states
    for pair in report["pairs"]:
        assert (pair["error"] is not None) == (pair["state"] == "no_link")


@pytest.mark.long
def test_requests_go_first(stages, expected):
    stage = stages(*SMALL, workers=3)
    streams = Streams(stage, LASTING[:2]).flow()
    # The head goes by what workers have reported.
    wait_until(lambda: any(r["running"] for r in stage.status()["replicas"]), "a request is reported")
    assert "--while-serving" in bench(stage, code=1).stderr
    report = measured(stage, "--while-serving")
    assert any(pair["requests_meanwhile"] for pair in report["pairs"])
    streams.assert_unchanged(expected)
    assert harmed(stage) == UNHARMED


@pytest.mark.parametrize("how", [
    pytest.param(signal.SIGKILL, id="killed"),
    pytest.param(signal.SIGSTOP, id="hung", marks=pytest.mark.long),
])  # fmt: skip
def test_a_worker_that_goes_meanwhile(stages, expected, how):
    stage = stages(*SMALL, workers=3)
    streams = Streams(stage, LASTING[:3]).flow()
    victim = stage.ready_nodes()[2]
    process = arranged(lambda: begun(stage, "--while-serving", "--json", *LONG))
    os.kill(victim["pid"], how)
    out, err = process.communicate(timeout=2 * PATIENCE_S)
    assert process.returncode == 1, out + err
    report = json.loads(out)
    assert report["complete"] and len(report["pairs"]) == 3
    for pair in report["pairs"]:
        if victim["id"] not in pair["nodes"]:
            assert pair["state"] == "measured", pair
        elif pair["state"] == "failed":
            assert pair["error"].endswith(".") or victim["id"] in pair["error"], pair
    assert any(pair["state"] == "failed" for pair in report["pairs"])
    streams.assert_unchanged(expected)
    if how == signal.SIGSTOP:
        os.kill(victim["pid"], signal.SIGCONT)


@pytest.mark.long
def test_a_client_that_leaves_ends_it(stages):
    stage = stages(*SMALL, workers=3)
    process = arranged(lambda: begun(stage, *LONG))
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    wait_until(lambda: measured_now(stage), "another may begin")
    bound("another may begin", time.monotonic() - began, 5)
    assert harmed(stage) == UNHARMED


def measured_now(stage):
    return run("bench", "network", "--pairs", 1, env=stage.env).returncode == 0


def test_a_head_that_dies_meanwhile(stages):
    stage = stages(*SMALL, workers=3)
    process = arranged(lambda: begun(stage, *LONG))
    stage.head_process.kill()
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1 and "head" in err, out + err
    stage.start_head()
    wait_until(lambda: stage.status_or_none() and len(stage.ready_nodes()) == 3, "all are back")
    wait_until(lambda: measured_now(stage), "it measures again")


@pytest.mark.parametrize("how", [
    *(pytest.param(how, marks=pytest.mark.long) for how in ("slow", "lossy")), "cut",
])  # fmt: skip
def test_links_that_are_bad(namespaces, how):
    stage = namespaces(*SMALL, workers=3)
    if why := stage.network.cannot.get(how):
        pytest.skip(why)
    bad = stage.workers[0]
    if how == "cut":
        process = arranged(lambda: begun(stage, "--json", *LONG))
        bad.link.cut_pair(stage.workers[1].link)
        out, _ = process.communicate(timeout=2 * PATIENCE_S)
        report = json.loads(out)
    else:
        getattr(bad.link, how)()
        report = json.loads(run("bench", "network", "--json", env=stage.env).stdout)
    assert report["complete"] and len(report["pairs"]) == 3
    for pair in report["pairs"]:
        assert pair["state"] == "measured" or pair["error"]
    good = stage.node_of(stage.workers[1].pid), stage.node_of(stage.workers[2].pid)
    if how == "slow":
        rate = {tuple(sorted(pair["nodes"])): pair["rates"] for pair in report["pairs"]}
        assert rate[tuple(sorted(good))][0]["there_bytes_per_s"] > 2e6  # the slow one lets 1e6 pass
