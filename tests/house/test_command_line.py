"""The names that scripts and people rely on are there: commands, flags, exit codes."""

import re
import subprocess

import pytest

COMMON = "--help --state-dir --log-level --config"
ENGINE = """--max-model-len --max-num-seqs --max-num-batched-tokens --block-size --kv-cache-memory
    --kv-cache-dtype --no-enable-prefix-caching --served-model-name --seed --request-timeout
    --tensor-parallel-size --pipeline-parallel-size --data-parallel-size --redundant-experts
    --numerics"""
NETWORK = "--fabric --bind-interface"
HTTP = """--host --port --api-key --tls-cert --tls-key --allowed-host --allowed-origin
    --metrics-without-key --expert-metrics"""
HEAD = f"--model --listen --min-devices {ENGINE} {NETWORK} {HTTP}"
SAMPLING = """--max-tokens --temperature --top-p --top-k --min-p --seed --stop --repetition-penalty
    --presence-penalty --frequency-penalty --logprobs --ignore-eos"""
FLAGS = {
    "up": f"--workers --no-respawn {HEAD}",
    "head": HEAD,
    "worker": f"--head --join --token --model --device --device-memory --threads "
              f"--expert-tier-memory {NETWORK}",
    "status": "--json --wait-ready",
    "top": "",
    "drain": "",
    "rebalance": "",
    "stop": "",
    "generate": f"--model --prompt --prompt-ids --chat --json --prompt-logprobs {ENGINE} {SAMPLING}",
    "pull": "--endpoint --include --exclude --cache",
    "tokenize": "--model --decode --add-special-tokens --json",
    "chat": f"--model --system {ENGINE} {SAMPLING.replace('--logprobs', '')}",
    "completion": "",
}


def run(troupe, *words):
    return subprocess.run([troupe, *words], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("command", FLAGS)
def test_help_names_every_flag(troupe, command):
    done = run(troupe, command, "--help")
    assert done.returncode == 0, done.stderr
    shown = set(re.findall(r"--[a-z][a-z0-9-]*", done.stdout))
    missing = set(f"{COMMON} {FLAGS[command]}".split()) - shown
    assert not missing, f"troupe {command} --help does not show {sorted(missing)}"
    assert f"troupe {command}" in done.stdout, "no example"


def test_help_names_every_command(troupe):
    done = run(troupe, "--help")
    assert done.returncode == 0, done.stderr
    for command in FLAGS:
        assert re.search(rf"^\s+{command}\b", done.stdout, re.MULTILINE), command


@pytest.mark.parametrize("words", [["--no-such-flag"], ["nosuchcommand"], ["up"],
                                   ["worker", "--threads", "many"], ["status", "--no-such-flag"]])
def test_wrong_usage_exits_2(troupe, words):
    done = run(troupe, *words)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert done.stderr and not done.stdout
