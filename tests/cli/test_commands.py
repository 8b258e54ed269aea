"""Flags, help, exit codes and JSON of every command."""

import json
import os
import re
import signal
import subprocess
import time

import pytest

from promises import bound
from running import DEMO, PATIENCE_S, TROUPE, V3, Cluster, begun, generate, run

COMMON = ["--state-dir", "--log-level", "--config", "--help"]
STATELESS = ["generate", "tokenize", "completion"]  # they take --state-dir all the same
ENGINE = """--model --max-model-len --max-num-seqs --max-num-batched-tokens --block-size --kv-cache-memory
--kv-cache-dtype --no-enable-prefix-caching --served-model-name --seed --request-timeout
--tensor-parallel-size --pipeline-parallel-size --data-parallel-size --redundant-experts
--numerics""".split()
NETWORK = ["--fabric", "--bind-interface"]
HTTP = ["--host", "--port", "--api-key", "--tls-cert", "--tls-key", "--allowed-host", "--allowed-origin",
        "--metrics-without-key", "--expert-metrics"]
SAMPLING = """--max-tokens --temperature --top-p --top-k --min-p --seed --stop --repetition-penalty
--presence-penalty --frequency-penalty --logprobs --ignore-eos""".split()
PROMPT = ["--prompt", "--prompt-ids", "--chat", "--json", "--prompt-logprobs"]
COMMANDS = {
    "up": ENGINE + NETWORK + HTTP + ["--workers", "--no-respawn", "--listen"],
    "head": ENGINE + NETWORK + HTTP + ["--listen", "--min-devices"],
    "worker": NETWORK + ["--head", "--join", "--model", "--device", "--device-memory", "--threads",
                         "--expert-tier-memory"],
    "status": ["--json", "--wait-ready"],
    "top": [],
    "drain": ["NODE"],
    "rebalance": [],
    "stop": [],
    "generate": ENGINE + SAMPLING + PROMPT,
    "tokenize": ["--model", "--decode", "--add-special-tokens", "--json"],
    "chat": ENGINE + [flag for flag in SAMPLING if flag != "--logprobs"] + ["--system"],
    "completion": ["SHELL"],
}
GENERATE = ["generate", "--model", DEMO, "--prompt", "a"]


def one_sentence(stderr):
    """The error of a failed command: one line, beside what the log says."""
    lines = [line for line in stderr.splitlines() if line.startswith("troupe: ")]
    assert len(lines) == 1 and lines[0].endswith((".", "?")), stderr
    return lines[0]


@pytest.mark.parametrize("words", [["--version"], ["help", "plan"], ["completion", "bash"], [*GENERATE],
                                   ["tokenize", "--model", DEMO]], ids=lambda words: words[0])  # fmt: skip
def test_output_that_cannot_be_written_is_no_success(troupe, words):
    def ends_with(stdout):
        return subprocess.run([TROUPE, *words, *["--max-tokens", "2"] * (words == GENERATE)], input="a\n",
                              stdout=stdout, stderr=subprocess.PIPE, text=True)  # fmt: skip

    with open("/dev/full", "wb") as full:
        done = ends_with(full)
    assert done.returncode == 1 and "standard output" in one_sentence(done.stderr)
    # A reader that has enough, as `head -1`, is no failure.
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as gone:
        done = ends_with(gone)
    assert done.returncode == 0 and "troupe: " not in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_help(troupe, command):
    done = run(command, "--help")
    assert done.returncode == 0 and not done.stderr
    missing = [f for f in COMMANDS[command] + COMMON if not re.search(rf"{f}\b(?!-)", done.stdout)]
    assert not missing
    assert ("this one keeps no state" in done.stdout) == (command in STATELESS)
    assert f"troupe {command}" in done.stdout.split("Examples:")[1]


def test_help_and_version_of_the_program(troupe):
    done = run("--help")
    assert done.returncode == 0
    assert all(command in done.stdout for command in COMMANDS)
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", run("--version").stdout)


@pytest.mark.parametrize(
    "words, named",
    [
        ([], ""),
        (["nonsense"], "nonsense"),
        (["generate"], "--model"),
        (["generate", "--model", DEMO], "--prompt"),
        (["generate", "--model", DEMO, "--prompt-ids", "1,x"], "--prompt-ids"),
        (["generate", "--model", DEMO, "--prompt-ids", "5000"], "5000"),
        (["generate", "--model", DEMO, "--prompt-ids=-1"], "-1"),
        (["generate", "--model", V3, "--prompt", "text"], "tokenizer"),
        (["generate", "--model", V3, "--chat", "text"], "tokenizer"),
        ([*GENERATE, "--chat", "b"], "--prompt"),
        ([*GENERATE, "--no-such-flag"], "--no-such-flag"),
        ([*GENERATE, "--max-tokens", 0], "max_tokens"),
        ([*GENERATE, "--temperature", "hot"], "--temperature"),
        ([*GENERATE, "--temperature", -1], "temperature"),
        ([*GENERATE, "--temperature", "nan"], "temperature"),
        ([*GENERATE, "--top-p", 2], "top_p"),
        ([*GENERATE, "--numerics", "fp4"], "--numerics"),
        ([*GENERATE, "--block-size", 0], "--block-size"),
        ([*GENERATE, "--max-num-seqs", -3], "--max-num-seqs"),
        ([*GENERATE, "--max-num-batched-tokens", 0], "--max-num-batched-tokens"),
        ([*GENERATE, "--kv-cache-memory", "lots"], "--kv-cache-memory"),
        ([*GENERATE, "--kv-cache-dtype", "int3"], "--kv-cache-dtype"),
        ([*GENERATE, "--tensor-parallel-size", 3], "--tensor-parallel-size"),
        ([*GENERATE, "--pipeline-parallel-size", 9], "--pipeline-parallel-size"),
        ([*GENERATE, "--redundant-experts", -1], "--redundant-experts"),
        ([*GENERATE, "--request-timeout", 0], "--request-timeout"),
        ([*GENERATE, "--max-model-len", 99999], "--max-model-len"),
        ([*GENERATE, "--threads", 100000], "--threads"),
        ([*GENERATE, "--device", "abacus"], "--device"),
        ([*GENERATE, "--log-level", "shout"], "--log-level"),
        ([*GENERATE, "--config", "/no/such.toml"], "/no/such.toml"),
        (["up", "--model", DEMO, "--workers", 0], "--workers"),
        (["up", "--model", DEMO, "--port", 70000], "--port"),
        (["up", "--model", DEMO, "--fabric", "pigeons"], "pigeons"),
        (["head", "--model", DEMO, "--listen", "127.0.0.1:99999"], "--listen"),
        (["head", "--model", DEMO, "--min-devices", 0], "--min-devices"),
        (["status", "--wait-ready", -1], "--wait-ready"),
        (["serve"], "'up'"),
        (["up", "/some/model"], "--model /some/model"),
        (["up", "--model=~/model"], "did not expand"),
        (["head", "--model", DEMO, "--listen", "6379"], "HOST:PORT"),
        (["drain"], "NODE"),
        (["drain", "node-x"], "node-x"),
        (["drain", "0"], "'0'"),
        (["drain", "node-99999999999"], "node-99999999999"),
        (["tokenize"], "--model"),
    ],
)
def test_wrong_usage_exits_2_and_names_the_flag(troupe, tmp_path, words, named):
    done = run(*words, env={"TROUPE_STATE_DIR": str(tmp_path)})
    assert done.returncode == 2, done.stderr
    assert named in one_sentence(done.stderr)
    assert not done.stdout


@pytest.mark.parametrize(
    "words, named",
    [
        (["status"], "troupe up"),
        (["status", "--json"], "troupe up"),
        (["status", "--wait-ready", 0.3], "troupe up"),
        (["stop"], "troupe up"),
        (["top"], "terminal"),
        (["drain", "node-1"], "troupe up"),
        (["rebalance"], "troupe up"),
        (["generate", "--model", "/no/such/model", "--prompt", "a"], "/no/such/model"),
        (["tokenize", "--model", "/no/such/model"], "/no/such/model"),
        (["tokenize", "--model", V3], str(V3)),
        (["head", "--model", "/no/such", "--port", 0, "--listen", "127.0.0.1:0"], "/no/such"),
        (["up", "--model", "/no/such", "--port", 0, "--listen", "127.0.0.1:0"], "/no/such"),
        (["worker", "--head", "127.0.0.1:1"], "join"),
        ([*GENERATE, "--kv-cache-memory", "4KiB"], "--kv-cache-memory"),
        ([*GENERATE, "--device-memory", "1MiB"], "lack"),
    ],
)
def test_what_fails_exits_1_and_says_why(troupe, tmp_path, words, named):
    done = run(*words, env={"TROUPE_STATE_DIR": str(tmp_path)}, stdin="")
    assert done.returncode == 1, done.stderr
    assert named in one_sentence(done.stderr)
    assert not done.stdout


def test_more_shards_than_layers_are_refused_at_once(cluster):
    up = cluster.up(DEMO, "--pipeline-parallel-size", 9, ready=False)
    assert up.exit_code() == 2, up.log()
    assert "--pipeline-parallel-size" in one_sentence(up.log())


def test_generate_json(troupe):
    answer = generate(DEMO, "--chat", "What is brandy?", "--max-tokens", 8, "--temperature", 0)
    assert list(answer) == [
        "prompt_tokens", "tokens", "token_logprobs", "text", "finish_reason", "timing"
    ]  # fmt: skip
    assert len(answer["tokens"]) == len(answer["token_logprobs"]) == 8
    assert answer["finish_reason"] == "length"
    scored = generate(
        DEMO, "--prompt", "brandy", "--max-tokens", 1, "--prompt-logprobs", "--logprobs", 3
    )
    assert len(scored["prompt_logprobs"]) == len(scored["prompt_tokens"])
    assert scored["prompt_logprobs"][0] is None
    assert [len(top) for top in scored["top_logprobs"]] == [3]
    by_ids = generate(V3, "--prompt-ids", "0,5", "--max-tokens", 2)
    assert by_ids["prompt_tokens"] == [0, 5] and by_ids["text"] == ""
    whole = generate(DEMO, "--chat", "What is brandy?", "--temperature", 0)
    assert whole["finish_reason"] == "stop" and "distilled" in whole["text"]
    cut = generate(DEMO, "--chat", "What is brandy?", "--temperature", 0, "--stop", "distilled")
    assert cut["finish_reason"] == "stop" and "distilled" not in cut["text"]


def test_generate_streams_text(troupe):
    done = run("generate", "--model", DEMO, "--chat", "What is brandy?", "--temperature", 0)
    assert done.returncode == 0 and "distilled from wine" in done.stdout
    words = ["generate", "--model", DEMO, "--prompt", "zxq", "--temperature", 1, "--max-tokens", 16]
    seeded = [run(*words, "--seed", seed).stdout for seed in (1, 1, 2)]
    assert seeded[0] == seeded[1] != seeded[2]
    ids = run("generate", "--model", V3, "--prompt-ids", "0,5", "--max-tokens", 2).stdout
    assert re.fullmatch(r"token_id:\d+ token_id:\d+ \n", ids)


def test_tokenize(troupe):
    text = "What is brandy?\nhéllo\n\n"
    done = run("tokenize", "--model", DEMO, stdin=text)
    lines = done.stdout.split("\n")
    assert done.returncode == 0 and len(lines) == 4 and lines[2] == ""
    assert run("tokenize", "--model", DEMO, "--decode", stdin=done.stdout).stdout == text
    line = json.dumps("a\nb\u0000 ☃")
    ids = run("tokenize", "--model", DEMO, "--json", stdin=line + "\n").stdout
    back = run("tokenize", "--model", DEMO, "--json", "--decode", stdin=ids).stdout
    assert json.loads(back) == json.loads(line)
    with_bos = run("tokenize", "--model", DEMO, "--json", "--add-special-tokens", stdin='"a"').stdout
    assert json.loads(with_bos)[0] == 0
    without_a_token = run("tokenize", "--model", DEMO, "--json", "--decode", stdin="[4096]").stdout
    assert json.loads(without_a_token) == ""
    for bad in ("[-1]", '["a"]', "{}", "nonsense", "[1e99]"):
        done = run("tokenize", "--model", DEMO, "--decode", "--json", stdin=bad)
        assert done.returncode == 1 and not done.stdout, bad
        one_sentence(done.stderr)


def test_config_file(troupe, tmp_path):
    config = tmp_path / "flags.toml"
    words = ["generate", "--model", DEMO, "--prompt-ids", "5,9", "--json", "--config", config]
    config.write_text('max-tokens = 3\ntemperature = 0\nnumerics = "reference"\nignore-eos = true\n')
    assert len(json.loads(run(*words).stdout)["tokens"]) == 3
    assert len(json.loads(run(*words, "--max-tokens", 2).stdout)["tokens"]) == 2
    for text, named in [
        ("max-token = 3", "'max-tokens'"),
        ("blok-size = 3", "'block-size'"),
        ('max-tokens = "many"', "max-tokens"),
        ("max-tokens = [1", str(config)),
        ("max-tokens = {a = 1}", "max-tokens"),
        ("block-size = 0", "--block-size"),
    ]:
        config.write_text(text + "\n")
        done = run(*words)
        assert done.returncode == 2 and not done.stdout, (text, done.stderr)
        assert named in one_sentence(done.stderr)


STATUS = {
    "cluster": {"id", "state", "version", "model", "numerics", "uptime_s", "message"},
    "experts": {"layers", "experts", "copies", "imbalance", "moves_pending", "last_rebalance_s", "placement"},
    "requests": {"running", "waiting", "finished", "failed", "replayed"},
}  # fmt: skip
NODE = {"id", "host", "pid", "role", "state", "last_seen_ms", "devices"}
DEVICE = {"id", "kind", "memory_total", "memory_used", "utilization"}
REPLICA = {"id", "state", "shards", "running", "waiting", "kv_blocks_total", "kv_blocks_used",
           "kv_blocks_cached"}


def test_a_configuration_that_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    wrong = {tmp_path / "pipe": "regular file", tmp_path: "regular file", "/none": "No such file"}
    for path, said in wrong.items():
        done = run("status", "--config", path, seconds=20)
        assert done.returncode == 2 and said in done.stderr, done.stderr


def test_a_working_folder_that_is_gone(troupe, tmp_path):
    words = f"cd '{tmp_path}' && mkdir gone && cd gone && rmdir ../gone && exec {troupe} status --state-dir x"
    done = subprocess.run(["sh", "-c", words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "it may be deleted; change to another." in done.stderr, done.stderr


def test_nothing_that_a_terminal_obeys_is_in_a_complaint():
    done = run("status", "\x1b[31mred\n")
    assert done.returncode == 2 and "\x1b" not in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_status_and_stop(troupe):
    with Cluster() as cluster:
        cluster.up(DEMO)
        for words in (["status", "--json"], ["status", "--json", "--wait-ready", PATIENCE_S]):
            done = run(*words, env=cluster.env)
            status = json.loads(done.stdout)
            assert done.returncode == 0 and not done.stderr
            assert {"nodes", "replicas", "events", *STATUS} <= set(status)
            assert all(names <= set(status[part]) for part, names in STATUS.items())
            assert all(NODE <= set(node) for node in status["nodes"])
            assert all(DEVICE <= set(device) for n in status["nodes"] for device in n["devices"])
            assert all(REPLICA <= set(replica) for replica in status["replicas"])
            assert {"time", "kind", "text"} <= set(status["events"][0])
        people = run("status", env=cluster.env).stdout
        assert "ready" in people and "node-1" in people and DEMO.name in people
        done = run("stop", env=cluster.env)
        assert done.returncode == 0 and not done.stdout
        started = time.monotonic()
        assert run("status", "--json", env=cluster.env).returncode == 1
        bound("who is asked is not there", time.monotonic() - started, 5)
        # Who asks then is told how to start one; who waits for it waits.
        for words in (["status"], ["drain", "--here"], ["drain", "node-1"], ["rebalance"]):
            told = one_sentence(run(*words, env=cluster.env).stderr)
            assert "Nobody answers" in told and "`troupe up`" in told, words
        started = time.monotonic()
        waited = run("status", "--wait-ready", 2, env=cluster.env)
        took = time.monotonic() - started
        assert waited.returncode == 1 and took >= 2
        bound("waited for two seconds", took, 6)
        assert "it was waited for 2.0s" in one_sentence(waited.stderr)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after_s", [0.3, 1.0])
def test_generate_ends_in_order_on_a_signal(troupe, number, after_s):
    words = [troupe, "generate", "--model", DEMO, "--prompt", "a", "--max-tokens", "4000"]
    process = subprocess.Popen(
        [*map(str, words), "--ignore-eos", "--threads", "1"], stdout=subprocess.DEVNULL
    )
    begun(process)
    time.sleep(after_s)
    began = time.monotonic()
    process.send_signal(number)
    assert process.wait(PATIENCE_S) == 0
    bound("ended", time.monotonic() - began, 2)


def test_what_a_head_keeps_is_checked_when_it_starts(tmp_path):
    (tmp_path / "cluster-id").write_bytes(b"\0garbage\xff\n")
    done = run("up", "--model", DEMO, "--state-dir", tmp_path, "--listen", "127.0.0.1:0", "--port", 0)
    assert done.returncode == 1 and "cluster-id" in one_sentence(done.stderr)


def test_an_empty_key_locks_nobody_out(tmp_path):
    done = run("up", "--model", DEMO, "--state-dir", tmp_path, "--api-key", "")
    assert done.returncode == 2 and "--api-key" in one_sentence(done.stderr)
