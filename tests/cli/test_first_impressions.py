"""What somebody meets who runs the program for the first time, and ends it at any moment."""

import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

from promises import bound
from running import DEMO, PATIENCE_S, begun, free_port, post, run, wait_until
from screen import Screen

UP = ["up", "--model", DEMO, "--threads", 1, "--port", 0, "--listen", "127.0.0.1:0"]
HEAD = ["head", "--model", DEMO, "--port", 0, "--listen", "127.0.0.1:0"]
GENERATE = ["generate", "--model", DEMO, "--prompt", "a", "--max-tokens", 4000, "--ignore-eos"]
# A millisecond, what the program's libraries once slept before main(), and what comes after.
DELAYS_S = {
    signal.SIGINT: [0, 0.001, 0.01, 0.03, 0.1, 0.15, 0.2, 0.3],
    signal.SIGTERM: [0, 0.02, 0.2],
}


def one_sentence(stderr):
    lines = [line for line in stderr.splitlines() if line.startswith("troupe: ")]
    assert len(lines) == 1 and lines[0].endswith((".", "?")), stderr
    return lines[0]


def test_the_program_starts_at_once(troupe):
    """No library sleeps before main(): 0.2 s they were."""
    took = []
    for _ in range(5):
        started = time.monotonic()
        run("--version")
        took.append(time.monotonic() - started)
    bound("started", min(took), 0.15)


def test_no_command_loads_the_fabric_that_needs_none(troupe):
    loaded = subprocess.run(["ldd", troupe], capture_output=True, text=True, check=True).stdout
    assert "libfabric" not in loaded and "psm" not in loaded


def test_a_missing_fabric_is_a_sentence(troupe, tmp_path):
    find = "ldconfig -p | awk '/libfabric.so.1 / {print $NF; exit}'"
    hide = f'mount --bind /dev/null "$(readlink -f "$({find})")"'
    start = f'exec "{troupe}" up --model "{DEMO}" --fabric net --state-dir "{tmp_path}/state"'
    script = f"{hide} && {start}"
    words = ["unshare", "--mount", "sh", "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip("needs root, to hide the library")
    assert done.returncode == 1
    assert "install the package libfabric1" in one_sentence(done.stderr)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("number", DELAYS_S)
@pytest.mark.parametrize("words", [UP, HEAD, GENERATE, ["status", "--wait-ready", 600], ["worker"]],
                         ids=lambda words: words[0])
def test_a_signal_ends_it_with_0_at_any_moment(troupe, cluster, words, number):
    if words == ["worker"]:
        # Of a head that has gone: it seeks it for ever.
        head = cluster.start(*HEAD)
        cluster.wait_joinable()
        head.kill()
        head.popen.wait()
    for delay_s in DELAYS_S[number]:
        process = begun(cluster.start(*words).popen)
        time.sleep(delay_s)
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == 0, f"{words[0]} after {delay_s} s\n{cluster.logs()}"
    assert not cluster.pids()


@pytest.mark.parametrize("delay_s", [0, 0.01, 0.1, 0.3])
def test_ctrl_c_ends_top_with_0(troupe, cluster, delay_s):
    with Screen([troupe, "top"], cluster.env) as screen:
        begun(screen.popen)
        time.sleep(delay_s)
        screen.popen.send_signal(signal.SIGINT)
        assert screen.popen.wait(PATIENCE_S) == 0


# --- What cannot be ---------------------------------------------------------------------------


def test_up_with_a_model_that_does_not_fit_ends(cluster):
    started = time.monotonic()
    up = cluster.up(DEMO, "--device-memory", "1MiB", ready=False)
    assert up.exit_code() == 1
    bound("ended", time.monotonic() - started, 15)
    line = one_sentence(up.log())
    assert re.search(r"lacks \d+ bytes", line)
    assert "--redundant-experts" not in line, "it is 0 already"
    assert not cluster.pids()


@pytest.mark.parametrize(
    "lacks, kind", [("chat_template", "completions only"), ("tokenizer", "token ids only")]
)
def test_a_model_that_cannot_chat_says_so_and_shows_what_it_can(cluster, tmp_path, lacks, kind):
    model = tmp_path / "model"
    shutil.copytree(DEMO, model)
    for file in [*model.glob("chat_template*"), *(model.glob("tokenizer*") if lacks == "tokenizer" else ())]:
        file.unlink()
    config = model / "tokenizer_config.json"
    if config.exists():
        kept = json.loads(config.read_text())
        kept.pop("chat_template", None)
        config.write_text(json.dumps(kept))
    up = cluster.up(model)
    wait_until(lambda: "/v1/completions" in up.log(), "it says what to send")
    warnings = [line for line in up.log().splitlines() if "warn" in line]  # a busy machine has more
    assert sum(kind in line for line in warnings) == 1 and "/v1/chat/completions" not in up.log()
    curl = up.log().split("curl ", 1)[1].split("\n'", 1)[0]
    body = re.search(r"-d '(.*)'", curl)[1]
    assert post(cluster.base_url, "/v1/completions", json.loads(body))[0] == 200
    # What clients are told has no path of the server in it.
    status, answer = post(cluster.base_url, "/v1/chat/completions",
                          {"messages": [{"role": "user", "content": "What is brandy?"}]})  # fmt: skip
    assert status == 400 and str(tmp_path) not in json.dumps(answer)
    assert lacks.split("_")[0] in answer["error"]["message"]


def test_up_names_what_is_set_and_can_be_lowered(cluster):
    up = cluster.up(DEMO, "--device-memory", "1MiB", "--redundant-experts", 8, ready=False)
    assert up.exit_code() == 1
    assert "lower --redundant-experts" in one_sentence(up.log())


def test_plan_and_up_agree_on_what_computing_takes(cluster):
    cache = ["--kv-cache-memory", "8MiB"]  # who wants less of it is served with smaller steps

    def planned(memory, *flags):
        return run("plan", "--model", DEMO, "--nodes", f"2:{memory}", "--threads", 1, *flags, env=cluster.env)

    lacking = r"lacks [\d.]+ MiB for what even steps of 8 tokens compute with"
    up = cluster.up(DEMO, "--device-memory", "20MiB", *cache, workers=2, ready=False)
    assert up.exit_code() == 1
    assert re.search(lacking, one_sentence(up.log()))
    told = planned("20MiB", *cache)
    assert told.returncode == 1 and re.search(lacking, told.stdout)
    # Smaller steps are what both think of.
    cluster.up(DEMO, "--device-memory", "64MiB", workers=2)
    said = [e["text"] for e in cluster.status()["events"] if "--max-num-batched-tokens 2048" in e["text"]]
    tokens = int(re.search(r"steps of (\d+) tokens", said[0])[1])
    told = planned("64MiB", "--redundant-experts", 0)  # as `up`; left to it, it wants spare copies
    assert told.returncode == 0 and f"Steps have {tokens} tokens, not 2048" in told.stdout
    assert f"--max-num-batched-tokens {tokens}" in told.stdout


def test_a_head_waits_for_what_would_make_it_fit(cluster):
    head = cluster.head(DEMO, "--kv-cache-memory", "1MiB")
    cluster.wait_joinable()
    cluster.worker("--device-memory", "4MiB")
    wait_until(lambda: cluster.state() == "degraded", "it does not fit")
    assert re.search(r"lacks \d+ bytes", cluster.status()["cluster"]["message"])
    time.sleep(1)
    assert head.popen.poll() is None


def test_a_wrong_path_is_told_before_the_state_folder_is_touched(troupe, cluster):
    for command in ("up", "head"):
        done = run(command, "--model", "/no/such/folder", env=cluster.env)
        assert done.returncode == 1 and "/no/such/folder" in one_sentence(done.stderr)
        assert not cluster.state_dir.exists()
    cluster.up(DEMO)
    done = run("up", "--model", "/no/such/folder", env=cluster.env)
    assert done.returncode == 1 and "/no/such/folder" in one_sentence(done.stderr)


@pytest.mark.parametrize(
    "words",
    [["up"], ["head"], ["worker"], ["generate", "--prompt", "a"], ["tokenize"],
     ["plan", "--nodes", "1:64GiB"]],
    ids=lambda words: words[0],
)
def test_a_name_of_the_hub_is_told_how_to_become_a_folder(troupe, cluster, words):
    done = run(*words, "--model", "deepseek-ai/DeepSeek-V3", env=cluster.env)
    assert done.returncode == 1
    assert "troupe pull deepseek-ai/DeepSeek-V3" in one_sentence(done.stderr)
    assert not cluster.state_dir.exists()


def test_generate_checks_the_request_before_it_loads_anything(troupe, tmp_path):
    # Without its weights the model cannot be served.
    for file in DEMO.iterdir():
        if file.suffix == ".json":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    done = run("generate", "--model", tmp_path, "--prompt", "a", "--temperature", -1)
    assert done.returncode == 2 and "temperature" in one_sentence(done.stderr)


def test_generate_is_quiet_and_reads_the_prompt_from_stdin(troupe):
    words = ["generate", "--model", DEMO, "--temperature", 0]
    given = run(*words, "--chat", "What is brandy?")
    assert given.returncode == 0 and not given.stderr
    read = run(*words, "--chat", "-", stdin="What is brandy?\n")
    assert read.stdout == given.stdout and "distilled" in read.stdout
    once = run(*words, "--prompt", "Once")
    assert once.returncode == 0 and not once.stderr
    assert run(*words, "--prompt", "-", stdin="Once\n").stdout == once.stdout
    assert run(*words, stdin="Once\n").stdout == once.stdout


def test_generate_waits_for_nobody_when_something_is_wrong(troupe, tmp_path):
    """Its standard input stays open and says nothing: only a good command reads it."""
    cases = [
        (["--model", tmp_path / "none"], 1, "none"),
        (["--model", DEMO, "--numerics", "fp4"], 2, "--numerics"),
        (["--model", DEMO, "--device", "abacus"], 2, "--device"),
        (["--model", DEMO, "--prompt", "a", "--chat", "b"], 2, "Give one prompt"),
    ]
    for words, code, named in cases:
        done = subprocess.Popen([troupe, "generate", *words], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
        assert done.wait(PATIENCE_S) == code, words
        assert named in one_sentence(done.stderr.read()) and not done.stdout.read()
        done.stdin.close()


def test_generate_without_a_prompt_says_so(troupe):
    done = run("generate", "--model", DEMO, stdin="")
    assert done.returncode == 2 and "standard input is empty" in one_sentence(done.stderr)
    env = {**os.environ, "LC_ALL": "C.UTF-8", "TERM": "xterm"}
    with Screen([troupe, "generate", "--model", DEMO], env, 100) as screen:
        assert screen.exit_code() == 2  # nobody waits for somebody who waits, too
        assert "--prompt-ids 1,2,3" in screen.text()


# --- What was meant ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words, said",
    [
        (["up", "--modle", "DIR"], "'--modle' is no flag of `troupe up`; did you mean '--model'?"),
        (["status", "--josn=1"], "did you mean '--json'?"),
        (["drain", "--stat-dir", "x"], "did you mean '--state-dir'?"),
        (["--verison"], "did you mean '--version'?"),
        (["stauts"], "There is no command 'stauts'; did you mean 'status'?"),
        (["plan", "elpb"], "did you mean 'eplb'?"),
        (["help", "genrate"], "did you mean 'generate'?"),
        (["status", "now"], "'now' is not expected; "),
    ],
)
def test_what_was_meant(troupe, words, said):
    done = run(*words)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith("troupe: ") and said in done.stderr


def test_nothing_far_fetched_is_meant(troupe):
    for words in (["up", "--xyzzy-plugh"], ["xyzzy"]):
        done = run(*words)
        assert done.returncode == 2 and "did you mean" not in done.stderr


def test_help_is_a_command_too(troupe):
    assert run("help").stdout == run("--help").stdout
    assert run("help", "up").stdout == run("up", "--help").stdout
    assert run("help", "plan", "eplb").stdout == run("plan", "eplb", "--help").stdout


# --- What a cluster says ------------------------------------------------------------------------


def printed_curl(log):
    """The command of the ready message."""
    return re.search(r"^  (curl .* \\\n.*)$", log, re.MULTILINE)[1]


def certificate(folder):
    files = [folder / "cert.pem", folder / "key.pem"]
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=elsewhere"]
    subprocess.run([*words, "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)
    return files


@pytest.mark.parametrize(
    "case", ["plain", "every address", "every address, IPv6", "a key", "a key of the environment", "TLS"]
)
def test_the_curl_of_the_ready_message_works(cluster, tmp_path, case):
    flags, env = [], dict(cluster.env)
    if case.startswith("every address"):
        flags = ["--host", "::" if "IPv6" in case else "0.0.0.0"]
    if case == "a key":
        flags = ["--api-key", "SECRET-1"]
    if case == "a key of the environment":
        env["TROUPE_API_KEY"] = "SECRET-2"
    if case == "TLS":
        cert, key = certificate(tmp_path)
        flags = ["--tls-cert", cert, "--tls-key", key]
    words = ["up", "--model", DEMO, "--workers", 1, "--threads", 1, "--port", free_port()]
    up = cluster.start(*words, "--listen", "127.0.0.1:0", *flags, env=env)
    up.wait_log("\n    -d ")
    log = up.log()
    assert "SECRET" not in log and "troupe top" in log
    url = re.search(r"Look at it: (\S+/) in a browser", log)[1]
    command = printed_curl(log).replace("YOUR-KEY", "SECRET-1")
    words = ["bash", "-c", command + " -sS"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=PATIENCE_S)
    assert "distilled" in json.loads(done.stdout)["choices"][0]["message"]["content"], done
    words = ["curl", "-sk", url]
    page = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S).stdout
    assert "<html" in page


LINE = re.compile(r"^\d\d:\d\d:\d\d\.\d{3} (?:info|warning|error) (head|worker-\d): \S.*[^\s]$")


def test_lines_of_several_processes_are_whole_and_say_who_speaks(cluster):
    up = cluster.up(DEMO, "--kv-cache-memory", "8MiB", workers=4)
    for _ in range(2):
        killed = cluster.ready_nodes()[0]["pid"]
        os.kill(killed, signal.SIGKILL)

        def replaced(killed=killed):
            pids = [node["pid"] for node in cluster.ready_nodes()]
            return len(pids) == 4 and killed not in pids

        wait_until(replaced, "it is replaced")
    up.wait_log("restored: All 4 replicas are back.")
    cluster.stop()
    up.exit_code()
    lines = [line for line in up.log().splitlines() if re.match(r"\d\d:\d\d", line)]
    assert not [line for line in lines if not LINE.match(line)]
    speakers = {LINE.match(line)[1] for line in lines}
    assert speakers == {"head", "worker-1", "worker-2", "worker-3", "worker-4"}
    assert "head: stopping: A client asked for it." in up.log()
