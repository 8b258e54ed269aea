"""What clients hear while they wait."""

import json
import os
import signal
import socket

import pytest

from running import DEMO, PATIENCE_S, Cluster
from streams import Missed, arranged

HEAD = "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def asked(path, body, more=""):
    text = json.dumps(body)
    return f"{HEAD.format(path)}{more}Content-Length: {len(text)}\r\n\r\n{text}".encode()


def stream_lines(s):
    with s.makefile("rb") as file:
        for line in file:
            yield line.decode().strip()


@pytest.fixture(scope="module")
def one_at_a_time(troupe):
    with Cluster() as cluster:
        cluster.up(DEMO, "--max-num-seqs", 1, workers=1)
        yield cluster


@pytest.mark.parametrize("path, body", [
    ("/v1/completions", {"prompt": "a", "max_tokens": 2}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}),
    ("/v1/responses", {"input": "a", "max_output_tokens": 16}),
])  # fmt: skip
def test_a_stream_that_waits_for_its_turn_has_its_header_soon(one_at_a_time, path, body):
    long = {"prompt": "river", "max_tokens": 3500, "ignore_eos": True, "stream": True, "n": 16}

    def ask():
        with connect(one_at_a_time.http_port) as busy, connect(one_at_a_time.http_port) as s:
            busy.sendall(asked("/v1/completions", long))
            assert busy.recv(64).startswith(b"HTTP/1.1 200 ")
            s.sendall(asked(path, {**body, "stream": True}, "Connection: close\r\n"))
            assert next(stream_lines(s)) == "HTTP/1.1 200 OK"
            if one_at_a_time.status()["requests"]["waiting"] == 0:
                raise Missed("its turn came")

    arranged(ask)


@pytest.mark.long
def test_a_stream_that_waits_long_says_so_from_time_to_time(one_at_a_time):
    """In the queue, and in the middle of an answer whose worker hangs."""
    body = {"prompt": "river", "max_tokens": 3500, "ignore_eos": True, "stream": True, "temperature": 0}

    def ask():
        with connect(one_at_a_time.http_port) as first, connect(one_at_a_time.http_port) as second:
            first.sendall(asked("/v1/completions", body, "Connection: close\r\n"))
            begun, queued = stream_lines(first), stream_lines(second)
            assert any(line.startswith("data: ") for line in begun)
            second.sendall(asked("/v1/completions", body, "Connection: close\r\n"))
            worker = one_at_a_time.ready_nodes()[0]["pid"]
            os.kill(worker, signal.SIGSTOP)
            try:
                for lines in (begun, queued):
                    if not any(line == ": waiting" for line in lines):
                        raise Missed("it was answered before its worker hung")
            finally:
                os.kill(worker, signal.SIGCONT)
            for lines in (begun, queued):
                assert any(line == "data: [DONE]" for line in lines)

    arranged(ask)
