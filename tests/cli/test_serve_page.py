"""configs/serve-a-real-model.md: its figures are those of `troupe plan`, its flags are there."""

import json
import re

import pytest

from running import ROOT, run

PAGE = (ROOT / "configs/serve-a-real-model.md").read_text()
PUBLISHED = ROOT / "tests/model/published"
SHAPES = {
    "R1-Distill-Qwen-1.5B": "r1-distill-qwen-1.5b", "R1-Distill-Qwen-7B": "r1-distill-qwen-7b",
    "R1-Distill-Qwen-14B": "r1-distill-qwen-14b", "R1-Distill-Qwen-32B": "r1-distill-qwen-32b",
    "R1-Distill-Llama-8B": "llama-3.1-8b", "R1-Distill-Llama-70B": "llama-3.1-70b",
    "V2-Lite": "deepseek-v2-lite", "Qwen3-30B-A3B": "qwen3-30b-a3b", "V3, R1, V3.1 (FP8)": "deepseek-v3",
    "Kimi K2 (FP8)": "kimi-k2-base", "Kimi K2 Thinking (int4)": "kimi-k2-thinking",
}  # fmt: skip
CPUS = re.search(r"--memory-bandwidth \S+ --compute \S+ --network \S+", PAGE)[0].split()


def rows():
    name = ""
    for line in re.findall(r"^\| .* GiB \| `.*$", PAGE, re.MULTILINE):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        name = cells[0] or name
        yield name, *cells[1:]


def shown(value):
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    def make(shape):
        made = tmp_path_factory.mktemp(shape)
        (made / "config.json").write_bytes((PUBLISHED / f"{shape}.json").read_bytes())
        return made

    return make


def test_every_row_is_what_plan_says(troupe, folder):
    all_rows = list(rows())
    assert {row[0] for row in all_rows} == set(SHAPES)
    for name, weights, nodes, kv, one, most, first, survives in all_rows:
        nodes, *flags = nodes.strip("`").split()
        if "--max-model-len" not in flags:
            flags += ["--max-model-len", "32768"]
        speed = ["--numerics", "cuda_mma"] if "x" in nodes else CPUS
        done = run("plan", "--model", folder(SHAPES[name]), "--nodes", nodes, "--json", *flags, *speed)
        assert done.returncode == 0, (name, nodes, done.stderr)
        plan = json.loads(done.stdout)
        least, full = plan["speed"]["decode"][0], plan["speed"]["decode"][-1]
        prompt = plan["speed"]["prefill"]
        assert [weights, kv, one, most, first, survives] == [
            f"{plan['model']['weight_bytes'] / 2**30:.1f} GiB",
            f"{plan['kv_cache']['tokens']:,}",
            shown(least["expected"]["tokens_per_s"] / least["tokens"]),
            shown(full["expected"]["tokens_per_s"]),
            f"{shown(prompt['prompt_s'])} s",
            "no" if plan["node_loss"]["not_at_all"] else "yes",
        ], (name, nodes)


def test_its_commands_take_the_flags_that_they_are_given(troupe):
    lines = re.findall(r"\btroupe (\w+)((?: --?[a-z].*)?)$", re.sub(r"#.*|&&", "\n", PAGE), re.MULTILINE)
    assert {command for command, _ in lines} >= {"plan", "up", "head", "worker", "chat", "status"}
    for command, rest in lines:
        help_text = run(command, "--help").stdout
        for flag in re.findall(r"--[a-z-]+", rest):
            assert re.search(rf"{flag}\b(?!-)", help_text), (command, flag)
