"""`troupe plan`: whether a model fits, and placements worked out from numbers alone."""

import json
import re
from pathlib import Path

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


@pytest.fixture
def folder(tmp_path):
    """A model of which nothing is there but its config."""

    def with_config_of(name):
        config = ROOT / "tests/model/published" / f"{name}.json"
        (tmp_path / "config.json").write_text(config.read_text())
        return tmp_path

    return with_config_of


def test_a_model_that_fits(troupe, folder):
    model = folder("qwen3-30b-a3b")
    words = ["plan", "--model", model, "--nodes", "4:64GiB", "--max-model-len", 8192]
    done = run(*words)
    assert done.returncode == 0 and not done.stderr
    assert "It fits." in done.stdout and "--redundant-experts 128" in done.stdout
    done = run(*words, "--json")
    assert done.returncode == 0 and not done.stderr
    answer = json.loads(done.stdout)
    assert answer["fits"] and len(answer["devices"]) == 4
    # A flag that is given is kept.
    given = ["--redundant-experts", 0, "--kv-cache-memory", "1GiB", "--kv-cache-dtype", "fp8"]
    done = run(*words, "--json", *given)
    answer = json.loads(done.stdout)
    assert answer["layout"]["expert_copies"] == 128 and answer["model"]["numerics"] == "bf16+kv_fp8"
    assert all(device["kv_bytes"] <= 1 << 30 for device in answer["devices"])


def test_tensor_parallel_ranks(troupe, folder):
    def planned(ranks):
        flags = ["--nodes", "1x2:64GiB", "--data-parallel-size", 1, "--tensor-parallel-size", ranks]
        done = run("plan", "--model", folder("qwen3-30b-a3b"), *flags, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    alone, two = planned(1), planned(2)
    assert "--tensor-parallel-size 2" in two["flags"]
    assert not any("tensor" in flag for flag in alone["flags"])
    assert two["layout"]["stages"] == alone["layout"]["stages"]
    shards = [max(device["shard_bytes"] for device in plan["devices"]) for plan in (alone, two)]
    assert shards[0] / 2 <= shards[1] < 0.6 * shards[0]


def test_a_model_that_does_not_fit_exits_1_and_says_what_would(troupe, folder):
    words = ["plan", "--model", folder("deepseek-v3"), "--nodes", "1x8:h100-80g", "--json"]
    done = run(*words, "--max-model-len", 4096)
    assert done.returncode == 1 and not done.stderr
    answer = json.loads(done.stdout)
    assert not answer["fits"] and answer["needed_bytes"] > answer["plannable_bytes"]
    assert {"flag": "--nodes", "value": "2x8:h100-80g"} in answer["remedies"]


def test_how_fast(troupe, folder, tmp_path):
    model = folder("deepseek-v3")
    words = ["plan", "--model", model, "--nodes", "2x8:h100-80g", "--max-model-len", 32768]
    done = run(*words)
    assert done.returncode == 0 and not done.stderr
    assert "Speed with 4,096 tokens of context" in done.stdout and "data sheet" in done.stdout
    done = run(*words, "--json")
    speed = json.loads(done.stdout)["speed"]
    assert speed["devices"][0]["memory_bandwidth"] == 3.35e12 and speed["devices"][0]["products"] == "fma"
    assert [step["rows"] for step in speed["decode"]][:2] == [1, 32]
    by_tensor_cores = json.loads(run(*words, "--json", "--numerics", "cuda_mma").stdout)["speed"]
    assert by_tensor_cores["devices"][0]["products"] == "bf16"
    assert any("--numerics cuda_mma" in change["what"] for change in speed["changes"])
    # Each flag is heeded.
    more = ["--context", 1000, "--skew", 2, "--products", "fp8", "--network", "100GB/s",
            "--memory-bandwidth", "3TB/s"]  # fmt: skip
    other = json.loads(run(*words, "--json", *more).stdout)["speed"]
    assert other["context"] == 1000 and other["expert_skew"] == pytest.approx(2)
    device = other["devices"][0]
    assert device["network"] == 100e9 and device["memory_bandwidth"] == 3e12 and device["products"] == "fp8"
    assert device["source"] == "data sheet, flags"
    for step in speed["decode"] + other["decode"]:
        least = step["least"]
        slowest = max(least["memory_s"], least["compute_s"], least["wire_s"])
        assert least["tokens_per_s"] == pytest.approx(step["tokens"] / slowest)
        assert step["expected"]["tokens_per_s"] < least["tokens_per_s"]


def test_a_file_of_measured_speeds(troupe, folder, tmp_path):
    path = tmp_path / "measured.json"
    path.write_text(json.dumps({"memory_bandwidth": 2e11, "compute": {"bf16": 4e12}, "call_s": 1e-6}))
    words = ["plan", "--model", folder("qwen3-0.6b"), "--nodes", "1:64GiB", "--json"]
    assert "missing" in json.loads(run(*words).stdout)["speed"]
    speed = json.loads(run(*words, "--measured", path).stdout)["speed"]
    assert speed["devices"][0]["source"] == "measured"
    assert speed["devices"][0]["compute"]["bf16"] == 4e12 and speed["decode"][0]["limit"] == "memory"
    path.write_text('{"memory_bandwidth": 0}')
    done = run(*words, "--measured", path)
    assert done.returncode == 1 and "memory_bandwidth" in done.stderr and not done.stdout


def test_loads_from_the_status_of_a_cluster(troupe, folder, tmp_path):
    path = tmp_path / "status.json"
    tokens = [100] + [10] * 127
    load = [{"layer": layer, "tokens": tokens} for layer in range(48)]
    path.write_text(json.dumps({"cluster": {}, "experts": {"load": load}}))
    words = ["plan", "--model", folder("qwen3-30b-a3b"), "--nodes", "4:l40s-48g", "--max-model-len", 8192,
             "--json", "--expert-loads", path]  # fmt: skip
    speed = json.loads(run(*words).stdout)["speed"]
    assert speed["expert_skew"] == pytest.approx(100 / (1370 / 128)) and not speed["network_known"]
    for text, named in [("{}", "--expert-loads"), ("", "status.json"), ("[]", "--expert-loads"),
                        ('{"experts": {"load": [{"layer": 0, "tokens": [-1]}]}}', "tokens"),
                        ('{"experts": {"load": [{"layer": 0, "tokens": [1]}]}}', "layer 0"),
                        ('{"experts": {"load": [{"tokens": []}]}}', "layer")]:  # fmt: skip
        path.write_text(text)
        done = run(*words)
        assert done.returncode in (1, 2) and not done.stdout
        assert len(done.stderr.splitlines()) == 1 and named in done.stderr


def test_this_machine_measured(troupe, folder):
    words = ["plan", "--model", folder("qwen3-0.6b"), "--nodes", "1:16GiB", "--max-model-len", 4096]
    done = run(*words, "--measure", "--json", "--threads", 1, "--context", 128)
    assert done.returncode == 0 and not done.stderr
    answer = json.loads(done.stdout)
    assert answer["measured"]["products"][0]["codes"] == "bf16"
    assert 0 < answer["speed"]["decode"][0]["expected"]["tokens_per_s"] < 1e5


@pytest.mark.parametrize(
    "words, named",
    [
        ([], "--nodes"),
        (["--nodes", "4"], "'4'"),
        (["--nodes", "0:64GiB"], "nodes"),
        (["--nodes", "2x8:h100"], "h100-80g"),
        (["--nodes", "4:64GiB", "--max-model-len", 10**7], "--max-model-len"),
        (["--nodes", "4:64GiB", "--pipeline-parallel-size", 2000], "--pipeline-parallel-size"),
        (["--nodes", "4:64GiB", "--pipeline-parallel-size", 200], "--pipeline-parallel-size"),
        (["--nodes", "4:64GiB", "--kv-cache-memory", "some"], "--kv-cache-memory"),
        (["--nodes", "4:64GiB", "--expert-tier-memory", "some"], "--expert-tier-memory"),
        (["--nodes", "4:64GiB", "--threads", -1], "--threads"),
        (["--nodes", "2x8:h100-80gb"], "did you mean 'h100-80g'?"),
        (["--nodes", "4:64GiB", "--memory-bandwidth", "0TB/s"], "--memory-bandwidth"),
        (["--nodes", "4:64GiB", "--compute", "3TB/s"], "800TFLOP/s"),
        (["--nodes", "4:64GiB", "--network", "9e9TB/s"], "--network"),
        (["--nodes", "4:64GiB", "--skew", 0.5], "--skew must be from 1"),
        (["--nodes", "4:64GiB", "--skew", 17], "to 16.00"),
        (["--nodes", "4:64GiB", "--skew", 2, "--expert-loads", "x"], "--expert-loads"),
        (["--nodes", "4:64GiB", "--context", 10**7], "--context"),
        (["--nodes", "4:64GiB", "--products", "fp7"], "--products"),
        (["--nodes", "4:64GiB", "--measure", "--measured", "x"], "--measured"),
    ],
)
def test_wrong_flags_exit_2_with_one_sentence(troupe, folder, words, named):
    done = run("plan", "--model", folder("qwen3-30b-a3b"), *words)
    assert done.returncode == 2 and not done.stdout
    assert len(done.stderr.splitlines()) == 1 and named in done.stderr


def test_a_folder_without_config(troupe, tmp_path):
    done = run("plan", "--model", tmp_path, "--nodes", "4:64GiB")
    assert done.returncode == 1 and "config.json" in done.stderr


CONFIGS = sorted((ROOT / "configs").rglob("*.toml"))


def published_folder(tmp_path, config):
    """Of the model that a file names: a folder that has it, or one with nothing but its config."""
    named = re.search(r'^model = "(.*?)"', config.read_text(), re.MULTILINE)[1]
    if (ROOT / named / "config.json").exists():
        return ROOT / named
    published = ROOT / "tests/model/published" / f"{Path(named).name.lower()}.json"
    (tmp_path / "config.json").write_text(published.read_text())
    return tmp_path


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_what_is_shipped_for_a_head_fits_on_its_nodes_as_it_stands(troupe, tmp_path, config):
    said = re.search(r"^# troupe plan --config (\S+) --nodes (\S+)$", config.read_text(), re.MULTILINE)
    if not said:
        assert config.stem in ("up", "worker")  # whose nodes are whatever there is
        return
    assert ROOT / said[1] == config
    model = published_folder(tmp_path, config)
    done = run("plan", "--config", config, "--model", model, "--nodes", said[2])
    assert done.returncode == 0 and "It fits." in done.stdout, done
    assert "Steps have" not in done.stdout, "steps are made smaller than it says"


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_what_is_shipped_holds_flags_that_exist(troupe, tmp_path, config):
    command = config.stem if config.stem in ("up", "worker") else "head"
    network = [] if command == "worker" else ["--listen", "127.0.0.1:0", "--port", 0]
    words = [command, "--config", config, "--model", tmp_path / "none", "--state-dir", tmp_path]
    done = run(*words, *network)
    far = "There is no join file" if command == "worker" else "none cannot be opened"
    assert done.returncode == 1 and far in done.stderr


def test_an_unknown_key_is_no_flag_of_the_plan_either(troupe, tmp_path):
    file = tmp_path / "head.toml"
    for key, known in (("max-num-sqs = 4", "max-num-seqs"), ("node = 4", "nodes"), ("workers = 2", "")):
        file.write_text(key + "\n")
        done = run("plan", "--config", file, "--model", tmp_path, "--nodes", "4:64GiB")
        assert done.returncode == 2 and "is no flag of `troupe plan`" in done.stderr
        assert (f"did you mean '{known}'?" if known else "`troupe plan --help` lists them") in done.stderr
