"""What a connection leaves behind: in children, in clients, in memory."""

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import time
from pathlib import Path

import openai
import pytest

from promises import bound
from running import DEMO, PATIENCE_S, Cluster, alive, at_once, get, post, wait_until

HEAD = "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def connect(cluster, seconds=PATIENCE_S):
    return socket.create_connection(("127.0.0.1", cluster.http_port), timeout=seconds)


def request(body, more="", version="1.1"):
    text = json.dumps(body)
    return (
        f"POST /v1/completions HTTP/{version}\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"{more}Content-Length: {len(text)}\r\n\r\n{text}"
    ).encode()


def read_all(s):
    """Until the server says that it is the end."""
    chunks = []
    while chunk := s.recv(65536):
        chunks.append(chunk)
    return b"".join(chunks)


def inodes(pid):
    """The sockets that a process has."""
    found = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.add(os.readlink(fd))
        except OSError:
            pass
    return {name for name in found if name.startswith("socket:")}


def children(pid):
    pids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in pids if alive(int(child))]


def test_workers_that_start_later_inherit_nothing(troupe):
    with Cluster() as cluster:
        up = cluster.up(DEMO, "--redundant-experts", 32)
        idle = [connect(cluster) for _ in range(20)]
        long = {"prompt": "river", "max_tokens": 600, "ignore_eos": True, "temperature": 0}
        old = connect(cluster)
        old.sendall(request({**long, "stream": True}, version="1.0"))
        closing = connect(cluster)
        closing.sendall(request(long, "Connection: close\r\n"))
        assert b"200" in old.recv(64)
        before = children(up.pid)
        os.kill(before[0], signal.SIGKILL)
        wait_until(lambda: len(set(children(up.pid)) - set(before)) == 1, "a new worker")
        wait_until(lambda: len(cluster.ready_nodes()) == 2, "it has joined")
        mine = inodes(up.pid)
        for child in children(up.pid):
            assert not inodes(child) & mine
        # Nobody else holds their connections: the server's end is the end.
        assert b"[DONE]" in read_all(old)
        assert b'"length"' in read_all(closing)
        for s in (*idle, old, closing):
            s.close()


def test_programs_that_a_head_starts_would_get_none_of_its_descriptors(server):
    """Whoever embeds a head starts others without knowing its descriptors."""
    head = server.cluster.processes[0].pid
    left = []
    with connect(server.cluster):
        get(server.base_url, "/health")
        for fd in Path(f"/proc/{head}/fd").iterdir():
            try:
                what = os.readlink(fd)
                info = Path(f"/proc/{head}/fdinfo/{fd.name}").read_text()
            except OSError:
                continue
            if int(fd.name) > 2 and not int(info.split("flags:")[1].split()[0], 8) & os.O_CLOEXEC:
                left.append(what)
    assert not left


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_half_closes_gets_its_answer(server, version, stream):
    with connect(server.cluster) as s:
        s.sendall(request({"prompt": "river", "max_tokens": 40, "stream": stream}, version=version))
        s.shutdown(socket.SHUT_WR)
        answer = read_all(s)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert (b"[DONE]" if stream else b'"usage"') in answer


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_closes_is_gone(server, stream):
    def cancelled():
        lines = get(server.base_url, "/metrics").splitlines()
        return sum(float(line.split()[-1]) for line in lines
                   if line.startswith("troupe:request_success") and 'reason="abort"' in line)  # fmt: skip

    before = cancelled()
    with connect(server.cluster) as s:
        body = {"prompt": "river", "max_tokens": 3000, "ignore_eos": True, "stream": stream}
        s.sendall(request(body))
        wait_until(lambda: server.cluster.status()["requests"]["running"] == 1, "it runs")
    began = time.monotonic()
    wait_until(lambda: cancelled() == before + 1, "it is cancelled")
    bound("cancelled", time.monotonic() - began, 1)
    wait_until(lambda: server.cluster.status()["requests"]["running"] == 0, "it runs no more")


def test_tls_ends_in_order(troupe, tmp_path):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-days", "2", "-subj", "/CN=localhost", "-out", "cert.pem", "-keyout", "key.pem"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with Cluster() as cluster:
        cluster.up(DEMO, "--tls-cert", tmp_path / "cert.pem", "--tls-key", tmp_path / "key.pem", workers=1,
                   ready=False)  # fmt: skip
        cluster.processes[0].wait_log("Ready after")
        for send in (request({"prompt": "a", "max_tokens": 5, "stream": True}, version="1.0"),
                     request({"prompt": "a"}, "Connection: close\r\n"), b"nonsense\r\n\r\n"):
            with connect(cluster) as s:
                strict = context.wrap_socket(s, suppress_ragged_eofs=False)
                strict.sendall(send)
                assert read_all(strict).startswith(b"HTTP/1.1 ")  # ssl.SSLEOFError without close_notify


def memory(pid, what):
    return int(Path(f"/proc/{pid}/status").read_text().split(what + ":")[1].split()[0]) << 10


def test_whole_answers_do_not_fill_the_head(troupe):
    """The largest that are taken, four at once, and those beyond that are told why not."""
    body = {
        "messages": [{"role": "user", "content": "What is river?"}],
        "n": 128, "ignore_eos": True, "logprobs": True, "top_logprobs": 20,
    }  # fmt: skip
    with Cluster() as cluster:
        up = cluster.up(DEMO, "--request-timeout", 3600, "--max-num-seqs", 512)
        for more in ({"max_tokens": 3000}, {}):
            status, answer = cluster.post("/v1/chat/completions", {**body, **more})
            assert status == 400 and answer["error"]["param"] == "max_tokens"
            assert "128 choices" in answer["error"]["message"] and "stream" in answer["error"]["message"]
        get(cluster.base_url, "/metrics")
        before = memory(up.pid, "VmRSS")
        # As JSON each of them takes 12 MB, as tokens 1.3 MB.
        answers = at_once(
            lambda _: raw_post(cluster, "/v1/chat/completions", {**body, "max_tokens": 60}), range(4)
        )
        grown = memory(up.pid, "VmHWM") - before
        sizes = [len(answer) for answer in answers]
        print(f"{grown / 1e6:.0f} MB for answers of {sum(sizes) / 1e6:.0f} MB")
        assert min(sizes) > 10e6
        assert grown < 0.6 * sum(sizes)


@pytest.mark.parametrize("begins", [b"1;a=", b"0\r\nX: ", b"2\r\n{}\r\n0;a="])
def test_lines_without_an_end_do_not_fill_the_head(server, begins):
    """Extensions of chunks and trailers: they are no body, and nobody waits for their end."""
    before = memory(server.cluster.processes[0].pid, "VmRSS")
    with connect(server.cluster) as s:
        head = HEAD.format(method="POST", path="/tokenize")
        s.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + begins)
        with contextlib.suppress(OSError):  # it closes
            for _ in range(64):
                s.sendall(b"a" * (1 << 20))
        with contextlib.suppress(ConnectionError):
            assert s.recv(64).startswith(b"HTTP/1.1 431 ")
    assert memory(server.cluster.processes[0].pid, "VmRSS") - before < 32 << 20
    assert post(server.base_url, "/tokenize", {"prompt": "a"})[0] == 200


def raw_post(cluster, path, body):
    text = json.dumps(body)
    with connect(cluster, 120) as s:
        head = HEAD.format(method="POST", path=path)
        s.sendall(f"{head}Connection: close\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())
        return read_all(s)


def test_a_scored_prompt_generates_nothing(server):
    """`echo` with max_tokens 0 takes a full context, and no token is computed or counted."""
    def generated():
        lines = get(server.base_url, "/metrics").splitlines()
        return float(next(x for x in lines if x.startswith("troupe:generation_tokens_total")).split()[-1])

    before = generated()
    for logprobs in (None, 1):
        body = {"prompt": [5] * 4096, "max_tokens": 0, "echo": True, "logprobs": logprobs}
        status, answer = post(server.base_url, "/v1/completions", body)
        assert status == 200, answer
        assert answer["usage"] == {
            "prompt_tokens": 4096, "completion_tokens": 0, "total_tokens": 4096,
            "prompt_tokens_details": {"cached_tokens": 0},
        }  # fmt: skip
        assert answer["choices"][0]["finish_reason"] == "length"
    assert len(answer["choices"][0]["logprobs"]["token_logprobs"]) == 4096
    assert generated() == before


@pytest.mark.parametrize("prompt", ["héllo 🙂 x", [0, 105, 103, 97], "a river"])
def test_text_offsets_point_into_the_text(server, prompt):
    body = {"prompt": prompt, "max_tokens": 40, "ignore_eos": True, "echo": True, "logprobs": 0, "seed": 3,
            "temperature": 1.5}  # fmt: skip
    status, answer = post(server.base_url, "/v1/completions", body)
    assert status == 200, answer
    text, logprobs = answer["choices"][0]["text"], answer["choices"][0]["logprobs"]
    offsets = logprobs["text_offset"]
    assert offsets == sorted(offsets) and offsets[0] == 0
    checked = 0
    for token, offset in zip(logprobs["tokens"], offsets):
        assert offset <= len(text)
        if text[offset:].startswith(token):
            checked += 1
        else:  # a part of a character, or a special token that is not in the text
            special = token.startswith("<") and token.endswith(">")
            assert special or token.startswith("bytes:\\x"), (token, offset)
    assert checked > 20


def test_preemptions_are_counted(troupe):
    with Cluster() as cluster:
        cluster.up(DEMO, "--kv-cache-memory", "512KiB", "--max-model-len", 256, workers=1)
        body = {"prompt": "river", "max_tokens": 200, "ignore_eos": True, "n": 16}
        deadline = time.monotonic() + 2 * PATIENCE_S
        preempted = 0
        while not preempted:
            assert time.monotonic() < deadline
            assert cluster.post("/v1/completions", body)[0] == 200
            preempted = sum(replica["preemptions"] for replica in cluster.status()["replicas"])
        line = next(
            line for line in get(cluster.base_url, "/metrics").splitlines()
            if line.startswith("troupe:num_preemptions_total")
        )  # fmt: skip
        assert float(line.split()[-1]) == preempted


def test_a_model_with_a_slash_in_its_name(troupe):
    with Cluster() as cluster:
        cluster.up(DEMO, "--served-model-name", "org/a name", workers=1)
        client = openai.OpenAI(base_url=cluster.base_url + "/v1", api_key="none")
        assert client.models.retrieve("org/a name").id == "org/a name"
