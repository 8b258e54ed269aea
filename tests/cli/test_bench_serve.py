"""`troupe bench serve` against a server whose every delay is known, and against a cluster."""

import json
import os
import re
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from promises import bound, ratio
from running import DEMO, PATIENCE_S, TROUPE, Cluster, free_port, run, wait_until
from scripted_server import ScriptedServer, delta, steady
from streams import Missed, arranged

WORDS = list(range(100, 200))
# What `vllm bench serve --save-result` writes.
VLLM_KEYS = """date endpoint_type backend label model_id tokenizer_id num_prompts request_rate burstiness
    max_concurrency duration completed failed total_input_tokens total_output_tokens request_throughput
    request_goodput output_throughput total_token_throughput max_output_tokens_per_s
    max_concurrent_requests mean_ttft_ms median_ttft_ms std_ttft_ms p99_ttft_ms mean_tpot_ms
    median_tpot_ms std_tpot_ms p99_tpot_ms mean_itl_ms median_itl_ms std_itl_ms p99_itl_ms""".split()
VLLM_DETAILS = "input_lens output_lens ttfts itls latencies start_times generated_texts errors".split()


def serve(base_url, *words):
    return run("bench", "serve", "--base-url", base_url, *words)


def measure(server, folder, *words):
    """The result file of a run, and what it printed."""
    done = serve(server.base_url, "--save-result", "--save-detailed", "--result-dir", folder,
                 "--result-filename", "result.json", *words)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "result.json").read_text()), done.stdout


def test_known_delays_are_measured(tmp_path):
    with ScriptedServer(steady(0.1, 0.02, 6), WORDS) as server:
        result, text = measure(server, tmp_path, "--num-prompts", 12, "--request-rate", 20,
                               "-i", 30, "-o", 6, "--goodput", "ttft:0.001,tpot:5000",
                               "--metadata", "place=here",
                               "--percentile-metrics", "ttft,tpot,itl,e2el")  # fmt: skip
    assert not set(VLLM_KEYS + VLLM_DETAILS) - result.keys()
    assert result["completed"] == 12 and result["failed"] == 0 and result["place"] == "here"
    assert result["total_input_tokens"] == 12 * 30 and result["total_output_tokens"] == 12 * 6
    # Never sooner than it was sent, nor later than the end; later by what this machine needs. Tokens that
    # were sent one after the other may be read together.
    for name, known_ms, late_ms in [("ttft", 100, 60), ("tpot", 20, 8), ("itl", 20, 8), ("e2el", 200, 80)]:
        told = result[f"median_{name}_ms"]
        assert told <= 1000 * result["duration"], (name, told)
        if name in ("ttft", "e2el"):
            assert known_ms - 6 <= told, (name, told)
        else:
            ratio(f"known to median_{name}", known_ms / told, known_ms / (known_ms - 6))
        bound(f"median_{name}", told / 1000, (known_ms + late_ms) / 1000)
    assert result["request_goodput"] == 0  # no first token takes a microsecond
    assert "Serving Benchmark Result" in text
    assert re.search(r"^Successful requests: +12 *$", text, re.MULTILINE)
    assert re.search(r"^Mean TTFT \(ms\): +\d+\.\d\d *$", text, re.MULTILINE)
    assert "The client " in text
    assert re.search(r"^P99 E2EL", text, re.MULTILINE)


def test_figures_follow_from_the_requests(tmp_path):
    with ScriptedServer(steady(0.03, 0.01, 4), WORDS) as server:
        result, _ = measure(server, tmp_path, "--num-prompts", 10, "--max-concurrency", 3,
                            "--random-input-len", 8, "--random-output-len", 4, "--goodput",
                            "e2el:60000", "--metric-percentiles", "25,50,90")  # fmt: skip
    duration = result["duration"]
    assert result["request_throughput"] == pytest.approx(10 / duration)
    assert result["request_goodput"] == pytest.approx(10 / duration)
    assert result["output_throughput"] == pytest.approx(40 / duration)
    assert result["total_token_throughput"] == pytest.approx(120 / duration)
    ttfts = [1000 * t for t in result["ttfts"]]
    assert result["mean_ttft_ms"] == pytest.approx(statistics.mean(ttfts))
    assert result["std_ttft_ms"] == pytest.approx(statistics.pstdev(ttfts))
    assert result["median_ttft_ms"] == result["p50_ttft_ms"] == pytest.approx(statistics.median(ttfts))
    quartile = statistics.quantiles(ttfts, n=4, method="inclusive")[0]
    assert result["p25_ttft_ms"] == pytest.approx(quartile)
    gaps = [1000 * gap for gaps in result["itls"] for gap in gaps]
    assert len(gaps) == 30 and result["mean_itl_ms"] == pytest.approx(statistics.mean(gaps))
    tpots = [1000 * (e - t) / 3 for e, t in zip(result["latencies"], result["ttfts"])]
    assert result["mean_tpot_ms"] == pytest.approx(statistics.mean(tpots))
    assert result["max_concurrent_requests"] <= 3
    assert result["generated_texts"] == ["x x x x "] * 10


def test_a_seed_is_a_run():
    """Prompts and lengths are the same again, and others for another seed."""

    def asked(seed):
        with ScriptedServer(steady(0, 0, 1), WORDS) as server:
            serve(server.base_url, "--num-prompts", 8, "--request-rate", 40, "--seed", seed,
                  "--random-input-len", 12, "--random-range-ratio", 0.5, "--burstiness", 0.5)  # fmt: skip
            return sorted((r.body["prompt"], r.body["max_tokens"]) for r in server.requests)

    first, again, other = asked(1), asked(1), asked(2)
    assert len(first) == 8 and first == again and first != other
    assert len({len(prompt) for prompt, _ in first}) > 1
    assert all(set(prompt) <= set(WORDS) for prompt, _ in first)


def test_sessions_say_what_was_said(tmp_path):
    with ScriptedServer(steady(0, 0, 2, delta), WORDS) as server:
        result, _ = measure(server, tmp_path, "--backend", "openai-chat", "--dataset", "sessions",
                            "--session-turns", 3, "--num-prompts", 7, "--session-think-time", 0.01,
                            "--random-input-len", 8, "--random-prefix-len", 4)  # fmt: skip
        bodies = [r.body for r in server.requests]
    assert result["completed"] == 7 and result["total_output_tokens"] == 14
    assert sorted(len(body["messages"]) for body in bodies) == [1, 1, 1, 3, 3, 5, 5]
    longest = max((body["messages"] for body in bodies), key=len)
    assert [m["role"] for m in longest] == ["user", "assistant", "user", "assistant", "user"]
    assert longest[1]["content"] == longest[3]["content"] == "x x "
    assert longest[0]["content"] != longest[2]["content"]
    firsts = [body["messages"][0]["content"].split()[:4] for body in bodies]
    assert all(first == firsts[0] for first in firsts)  # agents of one make begin alike


def test_sharegpt_prompts_come_from_the_file(tmp_path):
    said = [{"conversations": [{"from": "human", "value": f"question {i} " * 3},
                               {"from": "gpt", "value": "answer " * 8}]} for i in range(3)]  # fmt: skip
    said += [{"conversations": []}, {"conversations": [{"value": 3}]}, 7]
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps(said))
    with ScriptedServer(steady(0, 0, 1)) as server:
        serve(server.base_url, "--dataset", f"sharegpt:{path}", "--num-prompts", 6)
        asked = [r.body for r in server.requests]
    assert {body["prompt"] for body in asked} == {f"question {i} " * 3 for i in range(3)}
    assert {body["max_tokens"] for body in asked} == {14}
    path.write_text("{}")
    done = serve("http://127.0.0.1:9", "--dataset", f"sharegpt:{path}", "--model", "m")
    assert done.returncode == 2 and "no JSON list" in done.stderr


def test_a_sweep_stops_where_goals_are_missed(tmp_path):
    """A server that answers two at a time: the third waits."""
    room = threading.Semaphore(2)

    def answer(send, request, number):
        with room:
            time.sleep(0.2)
            return steady(0, 0, 2)(send, request, number)

    page = tmp_path / "page.html"

    def sweep():
        with ScriptedServer(answer, WORDS) as server:
            done = serve(server.base_url, "--sweep", "concurrency", "--goodput", "ttft:360", "--num-prompts",
                         12, "--random-input-len", 4, "--save-result", "--result-dir", tmp_path,
                         "--result-filename", "point.json", "--report", page)  # fmt: skip
        assert done.returncode == 0, done.stderr
        points = {path.stem: json.loads(path.read_text())["goodput_share"]
                  for path in tmp_path.glob("point-*.json")}  # fmt: skip
        if min(points["point-concurrency1"], points.get("point-concurrency2", 0)) <= 0.9:
            raise Missed(f"two at a time were too much: {points}")
        return done, points

    done, points = arranged(sweep)
    assert points["point-concurrency4"] < 0.9
    assert "The goals are met up to" in done.stdout
    assert_self_contained(page.read_text(), "Throughput over concurrency",
                          "Output tokens a second against TTFT")  # fmt: skip


def test_a_sweep_asks_for_no_more_streams_than_requests(tmp_path):
    with ScriptedServer(steady(0, 0, 2), WORDS) as server:
        done = serve(server.base_url, "--sweep", "concurrency", "--goodput", "ttft:60000",
                     "--num-prompts", 6, "-i", 4, "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    points = json.loads(done.stdout)
    assert [point["max_concurrency"] for point in points] == [1, 2, 4, 6]
    assert [point["completed"] for point in points] == [6] * 4


def test_a_series_is_a_run_for_each_bound(tmp_path):
    page = tmp_path / "page.html"
    words = ("--max-concurrency", "1,2..3", "-i", 5, "-o", 3)
    with ScriptedServer(steady(0.005, 0.005, 3), WORDS) as server:
        done = serve(server.base_url, *words, "--save-result", "--result-dir", tmp_path,
                     "--result-filename", "r.json", "--report", page)  # fmt: skip
        assert done.returncode == 0, done.stderr
        prompts = [tuple(request.body["prompt"]) for request in server.requests]
        told = serve(server.base_url, *words, "--num-prompts", 2, "--json")
    assert len(prompts) == 60 and len(set(prompts)) == 60, "a point saw the prompts of another"
    points = [json.loads((tmp_path / f"r-concurrency{n}.json").read_text()) for n in (1, 2, 3)]
    for n, point in zip((1, 2, 3), points):
        assert point["max_concurrency"] == n and point["max_concurrent_requests"] <= n
        assert point["num_prompts"] == point["completed"] == 10 * n
    assert done.stdout.count("Serving Benchmark Result") == 3
    assert re.findall(r"^ +(\d+) .* 0$", done.stdout, re.MULTILINE) == ["1", "2", "3"], done.stdout
    assert "goals" not in done.stdout and "good %" not in done.stdout
    assert_self_contained(page.read_text(), "Throughput over concurrency",
                          "Output tokens a second against TPOT")  # fmt: skip
    # As many as asked for, but a request a stream.
    assert [point["completed"] for point in json.loads(told.stdout)] == [2, 2, 3]


def test_json_is_all_that_is_printed(tmp_path):
    words = ("--num-prompts", 4, "-i", 5, "-o", 2, "--json", "--request-rate", "inf")
    with ScriptedServer(steady(0, 0.01, 2), WORDS) as server:
        done = serve(server.base_url, *words, "--save-result", "--result-dir", tmp_path,
                     "--result-filename", "r.json", "--report", tmp_path / "page.html")  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told == json.loads((tmp_path / "r.json").read_text())
    assert not set(VLLM_KEYS) - told.keys() and told["completed"] == 4
    assert "The result is in" in done.stderr and "ttfts" not in told
    gone = serve(server.base_url, "--model", "m", *words)
    assert gone.returncode == 1 and json.loads(gone.stdout)["failed"] == 4
    assert "No request completed" in gone.stderr


def test_two_results_are_compared(tmp_path):
    with ScriptedServer(steady(0.02, 0.01, 3), WORDS) as server:
        words = ("-i", 5, "-o", 3, "--num-prompts", 4, "--json", "--max-concurrency")
        (tmp_path / "a.json").write_text(serve(server.base_url, *words, "1,2").stdout)
        (tmp_path / "b.json").write_text(serve(server.base_url, *words, "2..4", "--seed", 1).stdout)
    done = run("bench", "compare", tmp_path / "a.json", tmp_path / "b.json")
    assert done.returncode == 0, done.stderr
    assert "These settings differ: seed (0 in A, 1 in B).\n" in done.stdout
    assert re.search(r"^concurrency 2 +A +B +B/A$", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"^Mean TTFT \(ms\) +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d  ", done.stdout, re.MULTILINE)
    assert "Only in A: concurrency 1.\n" in done.stdout and "Only in B: concurrency 4.\n" in done.stdout
    told = json.loads(run("bench", "compare", "--json", tmp_path / "a.json", tmp_path / "b.json").stdout)
    (point,) = told["points"]
    a, b = (json.loads((tmp_path / name).read_text()) for name in ("a.json", "b.json"))
    assert point["metrics"]["mean_ttft_ms"] == {
        "a": a[1]["mean_ttft_ms"], "b": b[0]["mean_ttft_ms"], "better": "lower",
        "ratio": pytest.approx(b[0]["mean_ttft_ms"] / a[1]["mean_ttft_ms"])}  # fmt: skip
    (tmp_path / "c.json").write_text('{"tokens_per_second": 3}')
    for other, said in [("c.json", "c.json' is no result of a benchmark: it lacks 'completed'"),
                        ("d.json", "d.json cannot be opened")]:  # fmt: skip
        done = run("bench", "compare", tmp_path / "a.json", tmp_path / other)
        assert done.returncode == 1 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr
        assert not done.stdout


def assert_self_contained(text, *titles):
    """A page that asks nobody for anything, with these plots."""
    assert text.startswith("<!DOCTYPE html>") and text.endswith("</html>\n")
    assert not re.search(r"(?:src|href)=|url\(|@import|<script", text)
    for title in ("Time line", "Time to First Token", "Inter-token Latency", *titles):
        assert title in text, title
    assert "nan" not in re.sub(r"<[a-z]+>|[a-z]{4,}", "", text) and "prefers-color-scheme: dark" in text


def test_ctrl_c_prints_what_there_is(tmp_path):
    with ScriptedServer(steady(0.05, 0.05, 1000), WORDS) as server:
        words = [TROUPE, "bench", "serve", "--base-url", server.base_url, "--num-prompts", "4", "--report",
                 str(tmp_path / "page.html")]  # fmt: skip
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: len(server.requests) == 4, "requests come")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert "4 requests were not sent or not answered whole" in out
    assert re.search(r"^Failed requests: +0 *$", out, re.MULTILINE), out
    assert "ended early" in (tmp_path / "page.html").read_text()


def test_a_client_that_is_late_says_so():
    """Stopped for a moment, it measured nothing of worth."""

    def stopped():
        with ScriptedServer(steady(0.05, 0.02, 60), WORDS) as server:
            words = [TROUPE, "bench", "serve", "--base-url", server.base_url, "--num-prompts", "2"]
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            wait_until(lambda: len(server.requests) == 2, "requests come")
            for _ in range(8):
                os.kill(process.pid, signal.SIGSTOP)
                time.sleep(0.06)
                os.kill(process.pid, signal.SIGCONT)
                time.sleep(0.02)
            over = process.poll() is not None
            out, _ = process.communicate(timeout=PATIENCE_S)
        if over:
            raise Missed("it was at its end")
        return out

    assert "The client was the bottleneck; do not trust these figures" in arranged(stopped)


@pytest.mark.parametrize("words, told", [
    (["--base-url", "ftp://here"], "begins neither with http"),
    (["--request-rate", "-1"], "--request-rate"),
    (["--goodput", "ttfx:3"], "ttft:MS"),
    (["--sweep", "rate"], "--goodput"),
    (["--kill", "every=0s"], "every=10s"),
    (["--extra-body", "[1]"], "JSON object"),
    (["--extra-body", '{"stream": false}'], "'stream'"),
    (["--dataset", "sonnet"], "random, prefix, sharegpt:FILE or sessions, not 'sonnet'"),
    (["--dataset", "sharegpt"], "--dataset sharegpt:FILE"),
    (["--dataset-name", "random"], "did you mean '--dataset'?"),
    (["--dataset-path", "x"], "did you mean '--dataset'?"),
    (["--html", "x"], "did you mean '--report'?"),
    (["--report", "/tmp"], "/tmp is a folder; name the page's file in it"),
    (["--report", "/nowhere/page.html"], "there is no folder /nowhere"),
    (["-i", "many"], "--random-input-len: 'many' is no whole number"),
    (["--max-concurrency", "1,2,x"], "not 'x'"),
    (["--max-concurrency", "1..4", "--sweep", "rate", "--goodput", "ttft:1"], "one --max-concurrency"),
    (["--metric-percentiles", "101"], "0 to 100"),
    (["--header", "name"], "KEY=VALUE"),
    (["--num-prompts", "0"], "--num-prompts"),
])  # fmt: skip
def test_wrong_words_are_told_before_anything_is_asked(words, told):
    done = run("bench", "serve", *words)
    assert done.returncode == 2 and told in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 and not done.stdout


class Locked(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_error(401)

    def log_message(self, *_):
        pass


def test_without_a_server_or_its_key_one_is_told_what_to_give():
    nobody = serve(f"http://127.0.0.1:{free_port()}")
    assert nobody.returncode == 1 and "refused; say where the server is with --base-url." in nobody.stderr
    server = HTTPServer(("127.0.0.1", 0), Locked)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    locked = serve(f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    assert locked.returncode == 1
    assert "HTTP 401; give a key that the server takes with --api-key." in locked.stderr


def test_what_is_sent_is_what_was_asked_for():
    with ScriptedServer(steady(0, 0, 1), WORDS) as server:
        serve(server.base_url + "/v1/", "--api-key", "secret", "--num-prompts", 1, "--temperature", 0.5,
              "--top-k", 7, "--extra-body", '{"stream_options": null, "logprobs": 2}',
              "--header", "X-A=b")  # fmt: skip
        (request,) = server.requests
    assert request.path == "/v1/completions"
    assert request.fields["authorization"] == "Bearer secret" and request.fields["x-a"] == "b"
    body = request.body
    assert body["model"] == "scripted" and body["temperature"] == 0.5 and body["top_k"] == 7
    assert body["logprobs"] == 2 and "stream_options" not in body and body["ignore_eos"] is True
    assert body["stream"] is True and len(body["prompt"]) == 1024 and body["max_tokens"] == 128


def test_https(tmp_path):
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
             "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem", "-days", "1",
             "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]  # fmt: skip
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    with ScriptedServer(steady(0.02, 0.01, 3), WORDS, tls=tls) as server:
        words = ("bench", "serve", "--base-url", server.base_url, "--num-prompts", 4, "--model", "m")
        done = run(*words)
        assert done.returncode == 1 and "No TLS: " in done.stdout, done.stdout
        for trust in ({"SSL_CERT_FILE": str(tmp_path / "cert.pem")}, None):
            done = run(*words, *([] if trust else ["--insecure"]), env=trust)
            assert done.returncode == 0, done.stdout
            assert re.search(r"^Successful requests: +4 *$", done.stdout, re.MULTILINE)
            assert re.search(r"^Total generated tokens: +12 *$", done.stdout, re.MULTILINE)


def test_only_workers_of_the_cluster_are_killed(tmp_path):
    """The head may say what it likes: no other program is ended, nor the last worker."""
    shutil.copy("/bin/sh", tmp_path / "troupe")
    (tmp_path / "worker").write_text("read word\n")
    (tmp_path / "other").write_text("read word\n")

    def start(program, script):
        return subprocess.Popen([program, script], cwd=tmp_path, stdin=subprocess.PIPE)

    workers = [start(tmp_path / "troupe", "worker") for _ in range(3)]
    others = [start("/bin/sh", "worker"), start(tmp_path / "troupe", "other")]

    def status():
        nodes = [{"id": f"node-{i}", "host": socket.gethostname(), "pid": process.pid, "role": "worker",
                  "state": "ready" if process.poll() is None else "lost"}
                 for i, process in enumerate([*workers, *others])]  # fmt: skip
        return {"cluster": {}, "nodes": nodes, "events": [{"time": time.time(), "kind": "k", "text": "t"}]}

    def kinds(result):
        return [mark["kind"] for mark in result["events"]]

    words = ("--num-prompts", 12, "--request-rate", 4, "--kill", "every=150ms")
    try:
        with ScriptedServer(steady(0, 0, 1), WORDS, status) as server:
            result, text = measure(server, tmp_path, *words)
            dead = [process.poll() for process in workers]
            assert dead == [-signal.SIGKILL] * 3 and result["workers_killed"] == 3, text
            assert {"kill", "no kill", "k"} == set(kinds(result))
            assert all(process.poll() is None for process in others)
            assert "is no troupe worker but" in text
            others.pop().communicate(b"\n")
            others[0].communicate(b"\n")
            workers[0] = start(tmp_path / "troupe", "worker")
            result, text = measure(server, tmp_path, *words)
            assert result["workers_killed"] == 0 and workers[0].poll() is None
            assert "the last ready worker of this machine is left alone" in text
    finally:
        for process in [*workers, *others]:
            process.kill()
            process.wait()


def test_a_cluster_under_faults(troupe, tmp_path):
    """Workers are killed while it is loaded; no request fails, and the report shows when."""
    page = tmp_path / "page.html"
    with Cluster() as cluster:
        cluster.up(DEMO, workers=3)
        done = run("bench", "serve", "--base-url", cluster.base_url, "--num-prompts", 60,
                   "--request-rate", 12, "--random-input-len", 40, "--random-output-len", 60,
                   "--kill", "every=1.5s", "--save-result", "--result-dir", tmp_path,
                   "--result-filename", "r.json", "--report", page)  # fmt: skip
        assert done.returncode == 0, done.stderr
        result = json.loads((tmp_path / "r.json").read_text())
        assert result["completed"] == 60 and result["failed"] == 0, done.stdout
        assert result["total_output_tokens"] == 60 * 60 and result["usage_doubtful"] == 0
        assert result["workers_killed"] >= 2, done.stdout
        kinds = [mark["kind"] for mark in result["events"]]
        assert kinds.count("kill") == result["workers_killed"]
        assert set(kinds) - {"kill", "no kill"}, "none of the server's events"
        assert f"{result['workers_killed']} workers were killed; 0 requests failed." in done.stdout
        assert_self_contained(page.read_text(), "workers killed")
        assert 'class="mark strong"' in page.read_text()
