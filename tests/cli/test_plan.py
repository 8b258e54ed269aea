"""`troupe plan`: placements worked out from numbers alone."""

import json

import pytest

from running import ROOT, run

CASES = json.loads((ROOT / "tests/golden/eplb/cases.json").read_text())
ARGUMENTS = ("weight", "num_replicas", "num_groups", "num_nodes", "num_gpus")
RESULTS = ("phy2log", "log2phy", "logcnt")
SMALL = {name: CASES[0][name] for name in ARGUMENTS}


def plan(value):
    return run("plan", "eplb", stdin=value if isinstance(value, str) else json.dumps(value))


def with_weight(value):
    weight = [list(row) for row in SMALL["weight"]]
    weight[1][3] = value
    return {**SMALL, "weight": weight}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['num_gpus']}-gpus")
def test_plans_equal_the_published_ones(troupe, case):
    done = plan({name: case[name] for name in ARGUMENTS})
    assert done.returncode == 0 and not done.stderr
    answer = json.loads(done.stdout)
    assert list(answer) == list(RESULTS)
    for name in RESULTS:
        assert answer[name] == case[name], name


def test_fractions_and_large_counts_are_loads_too(troupe):
    whole = json.loads(plan(SMALL).stdout)
    for factor in (0.25, 2**40):
        weight = [[value * factor for value in row] for row in SMALL["weight"]]
        assert json.loads(plan({**SMALL, "weight": weight}).stdout) == whole


@pytest.mark.parametrize(
    "value, named",
    [
        ("", "JSON"),
        ("nonsense", "JSON"),
        (json.dumps(SMALL) + "x", "JSON"),
        ("[" * 100_000, "nests"),
        ("[]", "object"),
        ("{}", "weight"),
        ({**SMALL, "weight": 3}, "weight"),
        ({**SMALL, "weight": [3]}, "weight"),
        ({**SMALL, "weight": [[]]}, "weight"),
        ({**SMALL, "weight": []}, "weight"),
        ({**SMALL, "weight": [[1, 2], [3]]}, "Row 1"),
        (with_weight("many"), "weight"),
        (with_weight(None), "weight"),
        (with_weight(-1), "expert 3 in row 1"),
        (with_weight(1e300), "expert 3 in row 1"),
        (json.dumps(with_weight(float("nan"))), "JSON"),
        (json.dumps(with_weight(7777)).replace("7777", "1e999"), "number"),
        *(({**SMALL, name: 0}, name) for name in ARGUMENTS[1:]),
        *(({**SMALL, name: -8}, name) for name in ARGUMENTS[1:]),
        *(({**SMALL, name: 2.5}, name) for name in ARGUMENTS[1:]),
        *(({**SMALL, name: 2**70}, name) for name in ARGUMENTS[1:]),
        *(({k: v for k, v in SMALL.items() if k != name}, name) for name in ARGUMENTS),
        ({**SMALL, "num_replicas": 8}, "num_replicas"),
        ({**SMALL, "num_replicas": 18}, "num_gpus"),
        ({**SMALL, "num_gpus": 1}, "num_nodes"),
        ({**SMALL, "num_groups": 8}, "num_groups"),
        ({**SMALL, "num_replicas": 2**22}, "num_replicas"),
    ],
)
def test_bad_input_exits_1_with_one_sentence(troupe, value, named):
    done = plan(value)
    assert done.returncode == 1 and not done.stdout, (done.stdout[:200], done.stderr)
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("troupe: ") and lines[0].endswith(".")
    assert named in lines[0]
    assert len(lines[0]) < 300


def test_help_and_wrong_usage(troupe):
    for words, example in [(["plan"], "troupe plan eplb"), (["plan", "eplb"], "num_replicas")]:
        done = run(*words, "--help")
        assert done.returncode == 0 and example in done.stdout.split("Examples:")[1]
    for words in (["plan"], ["plan", "nonsense"], ["plan", "eplb", "--no-such-flag"]):
        done = run(*words, stdin="")
        assert done.returncode == 2 and not done.stdout
        assert len(done.stderr.splitlines()) == 1 and "--help" in done.stderr


@pytest.mark.parametrize("preset", ["prefill-ep32", "decode-ep144"])
def test_presets_hold_flags_that_exist(troupe, tmp_path, preset):
    config = ROOT / "configs" / f"{preset}.toml"
    words = ["head", "--config", config, "--model", tmp_path / "none", "--state-dir", tmp_path]
    done = run(*words, "--listen", "127.0.0.1:0", "--port", 0)
    assert done.returncode == 1 and "none" in done.stderr  # it got as far as the model
