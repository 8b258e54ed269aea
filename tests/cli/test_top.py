"""`troupe top` on a terminal: what it shows, what keys do, and that it leaves the terminal as it was."""

import os
import re
import signal
import time
from pathlib import Path

import pytest

from promises import ratio
from running import DEMO, PATIENCE_S, ROOT, Cluster, wait_until
from screen import Screen


@pytest.fixture(scope="module")
def served(troupe):
    with Cluster() as cluster:
        cluster.up(DEMO)
        yield cluster


def top(troupe, env, columns=80, rows=24, **more):
    env = {**env, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **more}
    return Screen([troupe, "top"], env, columns, rows)


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_it_shows_the_cluster_in_80_by_24(troupe, served):
    with top(troupe, served.env) as screen:
        text = screen.wait("node-1", "node-2", "replicas by id", "L4", "survives", "events", "Serving")
        assert DEMO.name in text and "ready" in text and "version 1" in text
        assert re.search(r"nodes by id\s+2", text) and re.search(r"replicas by id\s+2", text)
        assert "4 layers of 32" in text and re.search(r"L4", text)
        assert "ms p50/p99: first token" in text and "tokens/s in" in text
        assert "survives the loss of any one node" in text
        assert "~" not in text  # nothing is cut
        assert text.split("\n")[23].startswith("Tab") and text.split("\n")[23].endswith("q quit")
        screen.press("q")
        assert screen.exit_code() == 0
        screen.assert_left_as_found()


def header(lines):
    """The words of the lines that stand above the lists, without names and numbers."""
    lines = lines[: next(i for i, line in enumerate(lines) if "nodes by id" in line)]
    return [re.findall(r"[a-z]{3,}", line.replace("pocket-dictionary", "")) for line in lines]


def test_the_sample_of_the_readme_is_what_it_shows(troupe, served):
    text = (ROOT / "README.md").read_text()
    begin = text.index("\n", text.rindex("`troupe rebalance`:", 0, text.index(">nodes by id"))) + 2
    sample = [line[4:] for line in text[begin : text.index("q quit\n", begin)].split("\n")]
    lines = ("replicas by id", " experts ", " copies a layer", " KV ", " events ", "Tab Up Down")
    with top(troupe, served.env) as screen:
        shown = screen.wait("node-1", "node-2", "parts proven", *lines).split("\n")
    assert header(sample) == header(shown)
    for line in lines:
        assert any(line in s for s in sample) and any(line in s for s in shown), line


def test_keys_lead_to_one_node_one_layer_and_back(troupe, served):
    with top(troupe, served.env) as screen:
        screen.wait("node-2")
        screen.press("\x1b[B\r")  # down, enter
        screen.wait("node-2 ", "bulk lane", "replica 1", "experts L1")
        screen.press("\x7f\t\t\x1b[B\r")  # back, two panels on, down, enter
        screen.wait("layer 2", "copies on")
        screen.press("m")
        screen.wait("experts", "L1", "L4")
        screen.press("?")
        screen.wait("rebalance", "Shift-Tab")
        screen.press("r")
        screen.wait("requests by age")
        screen.press("o\t\ts")  # two panels on, round the corner
        screen.wait("nodes by load")
        screen.press("d")
        screen.wait("Move everything off", "(y or n)")
        screen.press("n")
        screen.wait("Not done.")
        assert {node["state"] for node in served.status()["nodes"]} == {"ready"}
        screen.press("\x03")  # Ctrl-C
        assert screen.exit_code() == 0
        screen.assert_left_as_found()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_and_the_terminal_is_as_it_was(troupe, served, number):
    with top(troupe, served.env) as screen:
        screen.wait("node-1")
        screen.popen.send_signal(number)
        assert screen.exit_code() == 0
        screen.assert_left_as_found()


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV])
def test_a_crash_leaves_the_terminal_as_it_was(troupe, served, number):
    with top(troupe, served.env) as screen:
        screen.wait("node-1")
        screen.popen.send_signal(number)
        assert screen.exit_code() == -number
        screen.assert_left_as_found()


def test_it_follows_the_size_of_the_terminal(troupe, served):
    with top(troupe, served.env) as screen:
        screen.wait("node-1")
        screen.resize(160, 45)
        screen.wait_match(r"nodes by id.*experts  4 layers")  # beside each other
        screen.resize(60, 15)
        screen.wait(">nodes by id", "4 layers of 32", "q quit")
        screen.resize(30, 8)
        screen.wait("ready", ">nodes by id", "node-1", "q quit")
        screen.resize(20, 5)
        screen.wait("Too small")
        screen.resize(80, 24)
        screen.wait("nodes by id", "q quit")
        screen.press("q")
        assert screen.exit_code() == 0
        screen.assert_left_as_found()


@pytest.mark.parametrize(
    "more", [{"NO_COLOR": "1"}, {"TERM": "vt100", "LC_ALL": "C"}], ids=["no-color", "vt100"]
)
def test_it_needs_no_colour(troupe, served, more):
    with top(troupe, served.env, **more) as screen:
        screen.wait("node-1", "q quit")
        screen.press("q")
        assert screen.exit_code() == 0
        colours = [m for m in re.findall(rb"\x1b\[([\d;]*)m", screen.raw)
                   if set(m.split(b";")) & {b"%d" % n for n in (*range(30, 39), *range(40, 49))}]
        assert not colours
        if more.get("LC_ALL") == "C":
            assert screen.raw.isascii()
        screen.assert_left_as_found()


def test_ctrl_z_gives_the_terminal_back_meanwhile(troupe, served):
    with top(troupe, served.env) as screen:
        screen.wait("node-1")
        screen.press("\x1a")
        stat = Path(f"/proc/{screen.popen.pid}/stat")
        wait_until(lambda: stat.read_text().rsplit(")", 1)[1].split()[0] == "T", "it is stopped")
        screen._read(0.1)
        screen.assert_left_as_found()
        screen.popen.send_signal(signal.SIGCONT)
        screen.screen.reset()
        screen.wait("node-1", "q quit")
        screen.press("q")
        assert screen.exit_code() == 0
        screen.assert_left_as_found()


def test_a_terminal_that_is_closed_ends_it(troupe, served):
    screen = top(troupe, served.env)
    screen.wait("node-1")
    os.close(screen.slave)
    os.close(screen.master)
    assert screen.popen.wait(PATIENCE_S) == 0


def test_it_waits_for_a_head_and_finds_it_again(troupe, tmp_path):
    with Cluster() as cluster:
        with top(troupe, cluster.env, 120) as screen:
            screen.wait("Looking for the head.", "`troupe up")
            cluster.up(DEMO)
            screen.wait("ready", "node-2")
            cluster.stop()
            screen.wait("No answer from the head for", "node-2")  # what was known stays
            cluster.up(DEMO)
            screen.wait("Serving", "up ")
            wait_until(lambda: (screen._read(0.1), "No answer" not in screen.text())[1], "found again")
            screen.press("q")
            assert screen.exit_code() == 0
            screen.assert_left_as_found()


def test_a_terminal_that_nobody_knows_is_an_error(troupe, served):
    with top(troupe, served.env, TERM="no-such-terminal") as screen:
        assert screen.exit_code() == 1
        assert "TERM" in screen.text()
        screen.assert_left_as_found()


def test_watching_costs_next_to_nothing(troupe, served):
    """1 % of a core at 1 Hz, and as much for what a second less or more shows."""
    with top(troupe, served.env) as screen:
        screen.wait("node-1")
        before, started = cpu_seconds(screen.popen.pid), time.monotonic()
        while time.monotonic() - started < 6:
            screen._read(0.2)
        used = (cpu_seconds(screen.popen.pid) - before) / (time.monotonic() - started)
        ratio("the share of a core that `troupe top` takes", used, 0.02)
        screen.press("q")
        assert screen.exit_code() == 0
