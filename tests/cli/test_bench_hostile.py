"""Servers that lie, hang, break off and never end: each is a counted error, and the run ends."""

import json
import time

import pytest

from running import run
from scripted_server import (
    DONE,
    HEAD,
    LAST_CHUNK,
    ScriptedServer,
    chunk,
    event,
    plain,
    token,
    usage,
)

WORDS = list(range(100, 200))
OK = chunk(token("a")) + chunk(token("b", "stop"))
WHOLE = HEAD + OK + chunk(usage(3, 2)) + chunk(DONE) + LAST_CHUNK


def attack(answer, folder, *words, requests=3):
    with ScriptedServer(answer, WORDS) as server:
        done = run("bench", "serve", "--base-url", server.base_url, "--num-prompts", requests,
                   "--model", "m", "-i", 3, "-o", 2, "--save-result",
                   "--save-detailed", "--result-dir", folder, "--result-filename", "r.json",
                   *words)  # fmt: skip
    assert "Serving Benchmark Result" in done.stdout, done.stderr
    return json.loads((folder / "r.json").read_text()), done


def sends(*pieces, close=False):
    def answer(send, _request, _number):
        for piece in pieces:
            send(piece)
        return not close

    return answer


def forever(first, again):
    def answer(send, _request, _number):
        send(first)
        while True:
            send(again)

    return answer


def waits(send, _request, _number):
    send(HEAD + chunk(token("a")))
    time.sleep(600)
    return False


def fielded(field):
    return HEAD.replace(b"Transfer", field + b"\r\nTransfer")


def trickles(send, _request, _number):
    for byte in HEAD + chunk(": " + "c" * 100):
        send(bytes([byte]))
        time.sleep(0.1)


FAILURES = {
    "hangs": (waits, "did not end in time"),
    "never answers": (lambda *_: time.sleep(600), "did not end in time"),
    "trickles": (trickles, "did not end in time"),
    "says nothing": (sends(close=True), "without an answer"),
    "no HTTP": (sends(b"SSH-2.0-OpenSSH\r\n\r\n", close=True), "no HTTP"),
    "status from nowhere": (sends(b"HTTP/1.1 999 Odd\r\n\r\n"), "no status"),
    "endless head": (forever(b"HTTP/1.1 200 OK\r\n", b"X-A: " + b"b" * 4000 + b"\r\n"), "head of the answer"),
    "endless line": (forever(b"HTTP/1.1 200 OK\r\nX: ", b"a" * 4096), "head of the answer"),
    "endless 1xx": (forever(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100), "head of the answer"),
    "endless body": (forever(HEAD, chunk(": " + "c" * 65000 + "\n")), "longer than 64 MiB"),
    "endless event": (forever(HEAD, chunk("data: " + "c" * 65000)), "event of the answer has no end"),
    "endless chunk line": (forever(HEAD, b"00000000000000000000000"), "line before a chunk"),
    "wrong chunk": (sends(HEAD + b"zz\r\n", close=True), "how long it is"),
    "chunk too long": (sends(HEAD + b"2\r\nabcd\r\n", close=True), "longer than it says"),
    "huge chunk": (sends(HEAD + b"fffffffffffffff\r\n", close=True), "longer than 64 MiB"),
    "length is no number": (sends(b"HTTP/1.1 200 OK\r\nContent-Length: 1e3\r\n\r\n"), "no number"),
    "another coding": (sends(HEAD.replace(b"chunked", b"gzip, chunked")), "Transfer-Encoding"),
    "compressed": (sends(fielded(b"Content-Encoding: gzip")), "compressed"),
    "no stream": (sends(plain(200, {"choices": [{"text": "a"}]})), "no stream of events"),
    "moved": (sends(plain(307, {}, "Location: http://elsewhere/")), "points to 'http://elsewhere/'"),
    "refused": (sends(plain(400, {"error": {"message": "no\nsuch model"}})), "HTTP 400: no such model"),
    "busy": (sends(plain(429, {"error": {"message": "later"}}, "Retry-After: 7")), "Retry-After: 7"),
    "not JSON": (sends(HEAD + chunk(event("{nope")), close=True), "no JSON object"),
    "a number": (sends(HEAD + chunk(event("17")), close=True), "no JSON object"),
    "nested": (sends(HEAD + chunk(event("[" * 100_000)), close=True), "no JSON object"),
    "breaks off politely": (
        sends(HEAD + chunk(token("a")) + chunk(event({"error": {"message": "lost it"}})), close=True),
        "broke off: lost it"),
    "no token": (sends(HEAD + chunk(DONE) + LAST_CHUNK), "no token"),
    "no last event": (sends(HEAD + chunk(token("a")) + LAST_CHUNK), "before its last event"),
    "choices of nothing": (
        sends(HEAD + chunk(event({"choices": [None]})) + chunk(event({"choices": 3})) + chunk(DONE)
              + LAST_CHUNK), "no token"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
def test_each_is_a_counted_error(tmp_path, name):
    answer, told = FAILURES[name]
    timeout = 2 if "in time" in told else 60
    result, done = attack(answer, tmp_path, "--timeout", timeout)
    assert (result["completed"], result["failed"]) == (0, 3), done.stdout
    assert all(told in error for error in result["errors"]), result["errors"]
    assert done.returncode == 1 and told in done.stdout


def test_closed_at_any_byte(tmp_path):
    """An answer is whole from its last event on, however little of the rest comes."""
    complete = WHOLE.index(b"[DONE]\n\n") + 8

    def answer(send, _request, number):
        send(WHOLE[:number])
        return False

    result, _ = attack(answer, tmp_path, "--max-concurrency", 8, requests=len(WHOLE) + 1)
    assert result["completed"] + result["failed"] == len(WHOLE) + 1
    # The reason why it ended stands before the last event, but the chunk has to be whole.
    assert len(WHOLE) + 1 - complete == result["completed"], result["errors"][-20:]


def test_odd_but_right(tmp_path):
    """What HTTP and events allow is taken: early answers, extensions, trailers, other line ends."""

    def answer(send, _request, number):
        if number == 0:
            send(b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" + WHOLE)
        elif number == 1:
            body = token("a") + token("b", "stop") + DONE
            send(HEAD + b"%X;name=\"v\";x\r\n%s\r\n0;y\r\nX-Sum: 3\r\n\r\n" % (len(body), body.encode()))
        elif number == 2:
            body = (token("a") + token("b", "stop") + ": ping\n\nevent: x\nretry: 3\n\n" + DONE)
            send(b"HTTP/1.0 200\r\ncontent-type: TEXT/EVENT-STREAM; charset=utf-8\r\n\r\n"
                 + body.replace("\n", "\r\n").encode())  # fmt: skip
            return False
        else:
            for byte in WHOLE:
                send(bytes([byte]))
        return True

    result, _ = attack(answer, tmp_path, "--max-concurrency", 1, requests=4)
    assert result["failed"] == 0, result["errors"]
    assert result["output_lens"] == [2, 2, 2, 2]


@pytest.mark.parametrize("told, kept", [
    (usage(3, 2), False), (usage(3, 1), False),  # the last piece may bring what was held back
    (usage(3, 0), True), (usage(3, 9), True), (usage(99, 2), True), (usage(3, -2), True),
    (event({"choices": [], "usage": {"completion_tokens": "two"}}), True),
    (event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1e30}}), True),
])  # fmt: skip
def test_usage_that_lies_is_told(tmp_path, told, kept):
    body = HEAD + OK + chunk(told) + chunk(DONE) + LAST_CHUNK
    result, done = attack(sends(body), tmp_path)
    assert result["completed"] == 3
    assert result["total_input_tokens"] == 9  # the ids that were sent
    assert (result["usage_doubtful"] == 3) is kept
    assert ("contradicts what it sent" in done.stdout) is kept
    if kept and "99" not in told:
        assert result["total_output_tokens"] == 6 and result["output_tokens_from_chunks"] == 3


@pytest.mark.parametrize("pieces", [
    [token("ab", "stop")],  # one piece for both tokens
    [token("a") + token("b", "stop")],  # held back until the end
])  # fmt: skip
def test_tokens_that_come_at_one_moment_have_no_time_per_token(tmp_path, pieces):
    """Else they would be the fastest, and meet every goal."""
    body = "".join(pieces) + usage(3, 2) + DONE
    goals = ("--goodput", "tpot:60000")
    result, done = attack(sends(HEAD + chunk(body) + LAST_CHUNK), tmp_path, *goals)
    assert result["completed"] == 3 and result["total_output_tokens"] == 6
    assert result["answers_at_once"] == 3 and result["goodput_share"] == 0
    assert "All tokens of an answer came at one moment for 3 requests" in done.stdout

    def one_by_one(send, _request, _number):
        send(HEAD + chunk(token("a")))
        time.sleep(0.05)
        send(chunk(token("b", "stop")) + chunk(usage(3, 2)) + chunk(DONE) + LAST_CHUNK)

    result, done = attack(one_by_one, tmp_path, *goals)
    assert result["answers_at_once"] == 0 and result["goodput_share"] == 1, done.stdout
    assert result["mean_tpot_ms"] > 0 and "at one moment" not in done.stdout


def test_no_usage_is_told(tmp_path):
    result, done = attack(sends(HEAD + OK + chunk(DONE) + LAST_CHUNK), tmp_path)
    assert result["output_tokens_from_chunks"] == 3 and result["usage_doubtful"] == 0
    assert "counted from the pieces of the stream" in done.stdout


def test_a_busy_server_is_asked_again_only_if_wished(tmp_path):
    def answer(send, _request, number):
        send(plain(429, {"error": {"message": "later"}}, "Retry-After: 1") if number == 0 else WHOLE)
        return True

    result, _ = attack(answer, tmp_path, requests=1)
    assert (result["completed"], result["failed"]) == (0, 1)
    result, _ = attack(answer, tmp_path, "--max-retries", 2, requests=1)
    assert (result["completed"], result["failed"]) == (1, 0)
    assert result["ttfts"][0] >= 0.99  # it waited since it asked first


def test_one_that_is_busy_for_ever_is_given_up(tmp_path):
    """However often it may be asked again, a request has its time."""

    def answer(send, _request, _number):
        send(plain(429, {"error": {"message": "later"}}, "Retry-After: 1"))
        return True

    result, done = attack(answer, tmp_path, "--max-retries", 100, "--timeout", 2.5)
    assert (result["completed"], result["failed"]) == (0, 3) and result["duration"] < 60
    assert all("HTTP 429: later" in error for error in result["errors"]), done.stdout


def test_a_server_that_points_elsewhere_is_not_followed(tmp_path):
    with ScriptedServer(sends(WHOLE), models=plain(302, {}, "Location: http://elsewhere/v1")) as server:
        done = run("bench", "serve", "--base-url", server.base_url, "--num-prompts", 2)
        assert not server.requests
    assert done.returncode == 1 and not done.stdout
    assert "points to 'http://elsewhere/v1'; give that as --base-url" in done.stderr, done.stderr


def test_nobody_there():
    with ScriptedServer(sends()) as server:
        pass
    done = run("bench", "serve", "--base-url", server.base_url, "--model", "m", "--num-prompts", 2)
    assert done.returncode == 1 and "Cannot connect" in done.stdout
    done = run("bench", "serve", "--base-url", server.base_url)
    assert done.returncode == 1 and "--base-url" in done.stderr and done.stderr.count("\n") == 1


def test_connections_are_kept_and_closed_ones_are_not_used(tmp_path):
    with ScriptedServer(sends(WHOLE), WORDS) as server:
        run("bench", "serve", "--base-url", server.base_url, "--num-prompts", 20, "--max-concurrency", 1)
        assert server.connections <= 2
    told = WHOLE.replace(b"Transfer", b"Connection: close\r\nTransfer")
    result, _ = attack(sends(told, close=True), tmp_path, "--max-concurrency", 1, requests=20)
    assert result["failed"] == 0, result["errors"]
    # One that does not say so is found out before the next request, if it has a moment.
    spaced = ("--request-rate", 4, "--burstiness", 1000)
    result, _ = attack(sends(WHOLE, close=True), tmp_path, *spaced, requests=8)
    assert result["failed"] == 0, result["errors"]
