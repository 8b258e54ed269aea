"""Constant load while workers are killed, hung, cut off, added, drained: nothing lost, nothing changed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from promises import ratio

pytestmark = pytest.mark.alone  # it keeps the whole machine busy

HERE = Path(__file__).resolve().parent

# Together some 150 seconds. Layouts in which a loss takes different things along: replicas and
# experts; only some experts, as the others have copies; replicas of several workers. Small chunks, so that
# faults fall into prompts. Twins of GPUs are slow: they get fewer streams, and short ones.
TWINS = ["--twins", "1", "--workers", "3", "--streams", "8", "--longest-prompt", "200", "--longest-answer",
         "60", "--kinds", "kill,kill_two,kill_twin,hang,join"]  # fmt: skip
RUNS = [
    pytest.param(1, 36, [], id="a replica a worker"),
    pytest.param(2, 20, ["--redundant-experts", "32", "--max-num-batched-tokens", "64"],
                 id="two copies of each expert, small chunks", marks=pytest.mark.long),
    pytest.param(3, 20, ["--pipeline-parallel-size", "2"], id="replicas of two shards",
                 marks=pytest.mark.long),
    pytest.param(4, 20, ["--tensor-parallel-size", "2"], id="tensor-parallel ranks",
                 marks=pytest.mark.long),
]  # fmt: skip


def chaos(folder, seed, seconds, *words):
    """(the result, what was said of it); nothing was lost."""
    report = folder / "report.json"
    words = ["--seconds", seconds, "--seed", seed, "--report", report, *words]
    done = subprocess.run(
        [sys.executable, str(HERE / "chaos.py"), *map(str, words)],
        capture_output=True, text=True, timeout=seconds + 240,
    )  # fmt: skip
    assert report.exists(), done.stdout[-4000:] + done.stderr[-4000:]
    result = json.loads(report.read_text())
    counts = result["counts"]
    story = done.stdout[-6000:]
    assert counts["failed"] == counts["changed"] == counts["hung"] == 0, story
    assert done.returncode == 0, story
    # That load and faults were there at all.
    heads = "--heads" in words or "kill_head" in str(words)  # then clients stay, and wait for the next one
    at_least(counts["finished"], 15 if heads else 50, "answers")
    assert counts["aborted"] > 0 or heads, story
    assert result["requests"]["replayed"] > 0, story
    at_least(len(result["faults"]), seconds / 4, "faults")
    return result, story


def at_least(count, promise, what):
    """How much there was of it; a tenth on a busy machine."""
    ratio(f"{promise:.0f} {what}, to those that there were", promise / max(count, 0.01), 1)


@pytest.mark.parametrize("seed, seconds, flags", RUNS)
def test_nothing_is_lost_and_nothing_changes(troupe, tmp_path, capsys, seed, seconds, flags):
    result, story = chaos(tmp_path, seed, seconds, "--streams", 32, "--", *flags)
    at_least(result["tokens"], 10_000, "tokens")
    with capsys.disabled():  # times are told, not judged
        print(f"\n{story[story.rindex('network: ') :]}")


@pytest.mark.long
def test_workers_on_twins_of_gpus_die_beside_those_on_processors(troupe, tmp_path, capsys):
    result, story = chaos(tmp_path, 5, 24, *TWINS)
    assert result["killed"]["twins"] > 0 and result["killed"]["processors"] > 0, story
    at_least(result["tokens"], 2_000, "tokens")
    with capsys.disabled():
        print(f"\n{story[story.rindex('network: ') :]}")


@pytest.mark.long
def test_the_head_dies_and_comes_back_beside_workers(troupe, tmp_path, capsys):
    result, story = chaos(tmp_path, 7, 28, "--workers", 3, "--streams", 12, "--kinds",
                          "kill,hang,join,kill_recovering,kill_head", "--longest-answer", 200)  # fmt: skip
    assert [fault["kind"] for fault in result["faults"]].count("kill_head") > 1, story
    with capsys.disabled():
        print(f"\n{story[story.rindex('network: ') :]}")


@pytest.mark.long
def test_heads_die_beside_workers(troupe, tmp_path, capsys):
    # Work that no client of its own looks on at: whom it would ask may be the one that dies.
    kinds = "kill,hang,join,kill_recovering,kill_head,hang_head"
    result, story = chaos(tmp_path, 6, 28, "--heads", 2, "--workers", 3, "--streams", 12, "--kinds", kinds,
                          "--longest-answer", 200)  # fmt: skip
    kinds = [fault["kind"] for fault in result["faults"]]
    assert kinds.count("kill_head") >= 1 and kinds.count("kill_head") + kinds.count("hang_head") > 1, story
    with capsys.disabled():
        print(f"\n{story[story.rindex('network: ') :]}")
