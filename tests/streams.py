"""Requests in flight: threads that read streams, so that a test can break something meanwhile."""

import contextlib
import http.client
import itertools
import json
import os
import signal
import threading
import time

from answers import answer_of, difference
from running import PATIENCE_S, wait_until

# For answers of thousands of tokens.
WAIT_S = 3 * PATIENCE_S
TRIES = 3


class Stream:
    """One request, its answer as it comes."""

    def __init__(self, cluster, request):
        self.request = request
        self.times = []  # when each event with tokens came
        self.started = time.monotonic()
        self.status = None
        self.answer = None
        self.error = None
        self.body = b""
        self.connection = http.client.HTTPConnection("127.0.0.1", cluster.http_port, timeout=WAIT_S)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        try:
            self.connection.request("POST", self.request["path"], json.dumps(self.request["body"]),
                                    {"Content-Type": "application/json"})  # fmt: skip
            response = self.connection.getresponse()
            self.status = response.status
            while line := response.readline():
                if b'"token_ids":[' in line:
                    self.times.append(time.monotonic())
                self.body += line
            if self.status == 200:
                self.answer, self.error = answer_of(self.body)
            else:
                self.error = json.loads(self.body)["error"]["message"]
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"
        finally:
            self.ended = time.monotonic()
            self.connection.close()

    def flows(self):
        return self.thread.is_alive()

    def wait(self, seconds=WAIT_S):
        self.thread.join(max(0, seconds))
        assert not self.thread.is_alive(), f"no end after {seconds} s; {len(self.times)} tokens came"
        return self

    def stall(self, since):
        """The longest wait for a token that was not over at `since`."""
        times = [since, *(at for at in self.times if at > since)]
        return max((b - a for a, b in zip(times, times[1:])), default=0)


class Streams:
    """Several at a time."""

    def __init__(self, cluster, requests):
        self.cluster = cluster
        self.streams = [Stream(cluster, request) for request in requests]

    def flow(self, tokens=5, seconds=PATIENCE_S):
        """Waits until each has that many tokens and goes on. All begin again where one has come to its end by
        then: this process may not have run meanwhile."""
        for _ in range(TRIES):
            wait_until(lambda: all(len(s.times) >= tokens or not s.flows() for s in self.streams),
                       "tokens come", seconds)  # fmt: skip
            if all(s.flows() for s in self.streams):
                return self
            for stream in self.streams:
                assert stream.wait().error is None, f"{stream.error}\n{self.cluster.logs()}"
            self.streams = [Stream(self.cluster, s.request) for s in self.streams]
        raise AssertionError("a stream is at its end too early")

    def assert_unchanged(self, expected, seconds=WAIT_S):
        """Every stream comes to its end and is what it would have been."""
        end = time.monotonic() + seconds
        for stream in self.streams:
            stream.wait(end - time.monotonic())
            assert stream.error is None, f"{stream.status} {stream.error}\n{self.cluster.logs()}"
            assert difference(expected[stream.request["key"]], stream.answer) is None
        return self

    def stall(self, since):
        return max(stream.stall(since) for stream in self.streams)


class Steady:
    """A constant load of the same requests, round and round. Every answer is looked at."""

    def __init__(self, cluster, requests, expected, count=8):
        self.cluster = cluster
        self.expected = expected
        self.wrong = []
        self.answered = 0
        self.stopping = False
        self.next = itertools.cycle(requests)
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self._run, daemon=True) for _ in range(count)]

    def _run(self):
        while not self.stopping:
            with self.lock:
                request = next(self.next)
            stream = Stream(self.cluster, request)
            stream.thread.join(WAIT_S)
            wrong = "no end" if stream.thread.is_alive() else stream.error or difference(
                self.expected[request["key"]], stream.answer
            )  # fmt: skip
            with self.lock:
                self.answered += 1
                if wrong:
                    self.wrong.append(f"request {request['key']}: {stream.status} {wrong}")
                    return

    def go_on(self, more=8, seconds=WAIT_S):
        """Waits until that many more have been answered."""
        until = self.answered + more
        wait_until(lambda: self.answered >= until or self.wrong, "requests are answered", seconds)
        assert not self.wrong, f"{self.wrong}\n{self.cluster.logs()}"

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, kind, *_):
        self.stopping = True
        for thread in self.threads:
            thread.join(WAIT_S + 5)
        if kind is None:
            assert not self.wrong, f"{self.wrong}\n{self.cluster.logs()}"
            assert self.answered >= len(self.threads)


class Missed(Exception):
    """What a test arranged did not come about: the machine was quicker or slower than it was meant for."""


def arranged(arrange):
    """What a function gives that may miss what it wants to arrange: it is called again then, up to three
    times in all."""
    for _ in range(TRIES - 1):
        with contextlib.suppress(Missed):
            return arrange()
    return arrange()


def answer_in_spite_of_a_kill(cluster, ask, has_begun):
    """What `ask` gives while a worker is killed: once `has_begun`, and before the answer is there. Both get a
    list that is theirs."""

    def ask_and_kill():
        seen, answers = [], []
        asking = threading.Thread(target=lambda: answers.append(ask(seen)))
        asking.start()
        wait_until(lambda: has_begun(seen) or not asking.is_alive(), "the request runs")
        os.kill(cluster.ready_nodes()[0]["pid"], signal.SIGKILL)
        over = not asking.is_alive()
        asking.join(3 * PATIENCE_S)
        assert answers, "no answer"
        if over:
            raise Missed("it was answered before the kill")
        return answers[0]

    return arranged(ask_and_kill)
