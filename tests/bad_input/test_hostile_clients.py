"""What strangers send to a cluster's ports: clear errors, and members that go on unharmed."""

import contextlib
import json
import random
import socket
import time

import pytest

from promises import bound
from running import DEMO, PATIENCE_S, Cluster, at_once, listening_ports, run, wait_until

POST = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def cluster(troupe):
    with Cluster() as cluster:
        cluster.up(DEMO, "--pipeline-parallel-size", 2, "--data-parallel-size", 1)
        yield cluster
        assert cluster.state() == "ready"


def answer_of(cluster):
    return cluster.complete("brandy", max_tokens=12, temperature=0)["choices"][0]["text"]


def unharmed(cluster, nodes, text):
    """The same members in the same lives, and the same answers."""
    assert cluster.state() == "ready"
    assert {n["id"]: n["incarnation"] for n in cluster.ready_nodes()} == nodes
    assert answer_of(cluster) == text


@contextlib.contextmanager
def nobody_is_harmed(cluster):
    nodes = {node["id"]: node["incarnation"] for node in cluster.ready_nodes()}
    text = answer_of(cluster)
    yield
    unharmed(cluster, nodes, text)


def connect(port, seconds=PATIENCE_S):
    return socket.create_connection(("127.0.0.1", port), timeout=seconds)


def send_quietly(port, data):
    with contextlib.suppress(OSError), connect(port) as s:
        s.sendall(data)
        s.settimeout(0.05)
        s.recv(4096)


BAD_BODIES = {
    "no JSON": b"nonsense",
    "half": b'{"prompt": "a"',
    "nested": b'{"prompt": ' + b"[" * 10000 + b"]" * 10000 + b"}",
    "a list": b"[]",
    "NaN": b'{"prompt": "a", "temperature": NaN}',
    "infinite": b'{"prompt": "a", "temperature": 1e999}',
    "no UTF-8": b'{"prompt": "\xff\xfe"}',
    "half a pair": b'{"prompt": "\\ud800"}',
    "prompt": b'{"prompt": {"a": 1}}',
    "mixed ids": b'{"prompt": [1, "a"]}',
    "negative id": b'{"prompt": [-1]}',
    "large id": b'{"prompt": [4096]}',
    "huge id": b'{"prompt": [99999999999999999999]}',
    "fraction": b'{"prompt": [1.5]}',
    "no prompt": b"{}",
    "empty ids": b'{"prompt": []}',
    "max_tokens 0": b'{"prompt": "a", "max_tokens": 0}',
    "max_tokens -1": b'{"prompt": "a", "max_tokens": -1}',
    "max_tokens text": b'{"prompt": "a", "max_tokens": "5"}',
    "max_tokens huge": b'{"prompt": "a", "max_tokens": 1e30}',
    "n": b'{"prompt": "a", "n": 0}',
    "n many": b'{"prompt": "a", "n": 1000000}',
    "stop": b'{"prompt": "a", "stop": 5}',
    "seed": b'{"prompt": "a", "seed": "x"}',
    "stream": b'{"prompt": "a", "stream": "yes"}',
    "logprobs": b'{"prompt": "a", "logprobs": 1000}',
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_a_bad_body_gets_400(cluster, name):
    status, answer = cluster.post("/v1/completions", BAD_BODIES[name])
    assert status == 400, answer
    assert set(answer["error"]) == {"message", "type", "param", "code"}
    assert answer["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": []},
        {"messages": "hello"},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": 5, "content": "a"}]},
        {"messages": [{"role": "user", "content": {"a": 1}}]},
        {"messages": [{"role": "wizard", "content": "a"}]},
        {"messages": [5]},
    ],
    ids=json.dumps,
)
def test_a_bad_chat_gets_400(cluster, body):
    status, answer = cluster.post("/v1/chat/completions", body)
    assert status == 400, answer
    assert answer["error"]["message"]


def test_a_prompt_longer_than_the_context(cluster):
    for prompt in ([5] * 4097, "word " * 50000):
        status, answer = cluster.post("/v1/completions", {"prompt": prompt, "max_tokens": 1})
        assert status == 400 and "4096" in answer["error"]["message"]


def test_an_unknown_model_and_path(cluster):
    assert cluster.post("/v1/completions", {"model": "gpt", "prompt": "a"})[0] == 404
    assert cluster.post("/v1/edits", {"prompt": "a"})[0] == 404


def test_a_body_of_100_mb(cluster):
    with nobody_is_harmed(cluster), connect(cluster.http_port) as s:
        head = POST + "Content-Length: 100000000\r\n\r\n"
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            s.sendall(head.encode())
            for _ in range(100):
                s.sendall(b" " * 1000000)
        assert b" 413 " in s.recv(65536).split(b"\r\n")[0]


def test_slow_headers_are_hung_up(cluster):
    with connect(cluster.http_port) as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\n")
        started = time.monotonic()
        assert b"200" not in s.recv(65536)
        bound("hung up", time.monotonic() - started, 15)


def test_idle_connections_keep_nobody_out(cluster):
    with contextlib.ExitStack() as stack:
        for _ in range(500):
            stack.enter_context(connect(cluster.http_port))
        with nobody_is_harmed(cluster):
            pass


def garbage(count, seed=1):
    source = random.Random(seed)
    yield b"\x16\x03\x01\xff\xff" + b"\x01" * 100
    yield b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    yield b"\x03\x00\xff\xff" + bytes(28)
    yield b"\x03\x00\x00\x10" + bytes(4)
    for _ in range(count):
        yield source.randbytes(source.choice([1, 8, 32, 100, 5000]))


def all_ports(cluster):
    pids = [cluster.processes[0].pid, *(node["pid"] for node in cluster.ready_nodes())]
    return listening_ports(pids)


def test_garbage_at_every_port(cluster):
    with nobody_is_harmed(cluster):
        jobs = [(port, data) for port in all_ports(cluster) for data in garbage(60)]
        at_once(lambda job: send_quietly(*job), jobs, threads=8)


def test_silence_at_every_port(cluster):
    with contextlib.ExitStack() as stack:
        for port in all_ports(cluster):
            for data in [b"", b"", b"\x03\x00\x00\x10", b"\x16\x03\x01\x02\x00\x01"]:
                s = stack.enter_context(connect(port))
                s.sendall(data)
        with nobody_is_harmed(cluster):
            assert run("status", env=cluster.env).returncode == 0
            time.sleep(1.5)  # longer than a lease


def test_strangers_at_the_bulk_ports_while_workers_meet(troupe):
    """The listeners are open while peers are expected: silence and garbage there only delay."""
    with Cluster() as cluster:
        cluster.up(DEMO, "--pipeline-parallel-size", 2, "--data-parallel-size", 1, ready=False)
        deadline = time.monotonic() + PATIENCE_S
        sockets = []
        try:
            while cluster.state() != "ready":
                assert time.monotonic() < deadline, cluster.logs()
                for port in listening_ports(cluster.pids()).keys() - {cluster.http_port}:
                    with contextlib.suppress(OSError):
                        s = connect(port)
                        s.sendall(b"\x03\x00\x00\x10")
                        sockets.append(s)
            answer_of(cluster)
        finally:
            for s in sockets:
                s.close()


def test_a_flood_of_control_connections(cluster):
    with nobody_is_harmed(cluster), contextlib.ExitStack() as stack:
        for _ in range(400):
            with contextlib.suppress(OSError):
                stack.enter_context(connect(cluster.control_port))
        time.sleep(1.5)
        unharmed(cluster, {n["id"]: n["incarnation"] for n in cluster.ready_nodes()}, answer_of(cluster))
    wait_until(lambda: run("status", env=cluster.env).returncode == 0, "the door is free again")


def test_clients_that_vanish_in_the_middle(cluster):
    body = json.dumps({"prompt": "a", "max_tokens": 2000, "ignore_eos": True, "stream": True}).encode()
    head = f"{POST}Content-Length: {len(body)}\r\n\r\n".encode()
    with nobody_is_harmed(cluster):
        for cut in (len(head) // 2, len(head) + 5, len(head) + len(body)):
            for _ in range(8):
                with connect(cluster.http_port) as s:
                    s.sendall((head + body)[:cut])
        wait_until(lambda: cluster.status()["requests"]["running"] == 0, "they are cancelled")
