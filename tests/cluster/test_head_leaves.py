"""A head that is told to end and keeps its workers leaves them as a crash would: they serve on under its next
life, which goes on with every request that was accepted."""

import http.client
import json
import signal
import threading
import time
import urllib.request

import pytest

from answers import answer_of, difference, events_of
from pair import Pair, standby_of
from promises import bound
from recovery import LASTING, SMALL
from running import PATIENCE_S, get, wait_until
from streams import Streams
from test_head_dies import STREAMED, WAIT_S, askers, assert_answered

FLAGS = [*SMALL, "--min-devices", 2, "--keep-workers"]


class Whole:
    """A client that wants a whole answer, and asks again with its key when it finds nobody."""

    def __init__(self, stage, request):
        self.stage, self.request, self.told = stage, request, []
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        end = time.monotonic() + WAIT_S
        body = json.dumps(self.request["body"] | {"stream": False})
        headers = {"Content-Type": "application/json", "Idempotency-Key": "a whole one"}
        while time.monotonic() < end and 200 not in self.told:
            connection = http.client.HTTPConnection("127.0.0.1", self.stage.http_port, timeout=PATIENCE_S)
            try:
                connection.request("POST", self.request["path"], body, headers)
                response = connection.getresponse()
                self.body = response.read()
                self.told.append(response.status)
            except (OSError, http.client.HTTPException):
                self.told.append(None)
                time.sleep(0.05)

    def assert_answered(self, expected):
        self.thread.join(WAIT_S + 10)
        # While the next life begins it may say that it cannot serve yet.
        assert self.told[-1] == 200 and set(self.told) <= {None, 503, 200}, (self.told, self.body)
        answer, error = answer_of(self.body)
        assert error is None and len(self.told) > 1
        assert difference(expected[self.request["key"]], answer | {"usage": []}) is None


def pids(stage):
    return {node["pid"] for node in stage.ready_nodes()}


def leave(stage, number=signal.SIGTERM):
    """Tells the head to end; its clients have heard nothing that is not so."""
    began = time.monotonic()
    stage.head_process.kill(number)
    assert stage.head_process.exit_code() == 0, stage.logs()
    bound("the head leaves", time.monotonic() - began, 3)


def test_a_head_leaves_and_its_next_life_goes_on(stages, expected):
    stage = stages(*FLAGS)
    workers = pids(stage)
    asked, whole = askers(stage, STREAMED, "l", 12), Whole(stage, LASTING[5])
    alone = Streams(stage, LASTING[4:5]).flow()  # nobody will ask for it again
    wait_until(lambda: sum(asker.tokens > 3 for asker in asked) >= 6, "tokens come")
    leave(stage)
    assert not [asker.error for asker in asked if asker.error]
    assert all(worker.alive() for worker in stage.workers)
    stage.start_head()
    assert_answered(stage, asked, expected)
    whole.assert_answered(expected)
    assert max(asker.tries for asker in asked) > 1
    heard = alone.streams[0].wait().body
    assert b"[DONE]" not in heard and b"error" not in heard
    name = json.loads(events_of(heard)[0])["id"]
    wait_until(lambda: json.loads(get(stage.base_url, f"/v1/requests/{name}"))["status"] == "finished",
               "what nobody asks for is finished")  # fmt: skip
    requests = stage.status()["requests"]
    assert requests["failed"] == 0 and requests["replayed"] > 0
    assert pids(stage) == workers == {worker.pid for worker in stage.workers}
    # By Ctrl-C as well; `troupe stop` ends them all.
    leave(stage, signal.SIGINT)
    assert all(worker.alive() for worker in stage.workers)
    stage.start_head()
    stage.wait_ready()
    stage.stop()
    assert stage.head_process.exit_code() == 0
    assert [worker.process.exit_code() for worker in stage.workers] == [0, 0]


@pytest.mark.long
def test_the_standby_of_a_head_that_leaves_takes_over(stages, expected):
    stage = stages(*FLAGS)
    pair = Pair(stage)
    pair.wait_follows()
    asked = askers(stage, STREAMED, "s", 10, pair.doors)
    wait_until(lambda: sum(asker.tokens > 3 for asker in asked) >= 5, "tokens come")
    leave(stage)
    pair.wait_rules()
    assert_answered(stage, asked, expected)
    assert all(worker.alive() for worker in stage.workers)
    # One that comes back before it is missed goes on: of the other it hears that it does not rule.
    stage.start_head()
    stage._wait(lambda: standby_of(pair.base_url) == "ready", "the old head has it all")
    pair.process.kill(signal.SIGTERM)
    assert pair.process.exit_code() == 0
    pair.start()
    stage._wait(lambda: "ready" in (stage.state(), pair.state()), "one of them serves")
    assert all(worker.alive() for worker in stage.workers)


def asked_with_a_key(stage):
    """The answer's id."""
    body = {"prompt": "ab", "max_tokens": 3, "temperature": 0}
    headers = {"Content-Type": "application/json", "Idempotency-Key": "of a client"}
    request = urllib.request.Request(stage.base_url + "/v1/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        return json.load(response)["id"]


def test_without_a_journal_nothing_of_requests_is_kept(stages, expected):
    stage = stages(*FLAGS)
    journal = stage.state_dir / "journal"
    written = asked_with_a_key(stage)
    assert asked_with_a_key(stage) == written and list(journal.glob("*.log"))
    # Not as long as something goes on.
    asked = askers(stage, LASTING, "n", 2)
    wait_until(lambda: all(asker.tokens > 3 for asker in asked), "tokens come")
    leave(stage)
    stage.head_flags.append("--no-journal")
    stage.start_head()
    assert stage.head_process.exit_code() == 1
    assert f"in {journal} there are 2 requests" in stage.head_process.log()
    stage.head_flags.pop()
    stage.start_head()
    assert_answered(stage, asked, expected)
    leave(stage)
    stage.head_flags.append("--no-journal")
    for _ in range(2):
        stage.start_head()
        stage.wait_ready()
        kept = asked_with_a_key(stage)
        # A key counts as long as this life lasts, and what an earlier one knew is gone.
        assert asked_with_a_key(stage) == kept != written
        assert stage.status()["requests"]["finished"] == 1 and not journal.exists()
        written = kept
        leave(stage)
    assert "what an earlier life of the head wrote down of requests" in stage.processes[-2].log()
    # Nobody can go on with what it accepts.
    stage.start_head()
    told = Pair(stage)
    assert told.process.exit_code() == 2 and "--no-journal: a standby has a copy" in told.process.log()
    stage.head_flags.pop()
    told.start()
    assert told.process.exit_code() == 1
    assert "The head keeps no journal (--no-journal), so nobody can follow it." in told.process.log()


def test_workers_that_no_head_comes_for_let_go_and_seek_it_on(stages, expected):
    stage = stages(*FLAGS, "--keep-for", 1)
    workers = pids(stage)
    asked = askers(stage, LASTING[:2], "k", 2)
    wait_until(lambda: all(asker.tokens > 3 for asker in asked), "tokens come")
    leave(stage)
    for worker in stage.workers:
        worker.process.wait_log("No head has come for 1 s (--keep-for): the weights are let go.")
    stage.start_head()
    assert_answered(stage, asked, expected)
    assert pids(stage) == workers
    assert not [event for event in stage.status()["events"] if "goes on with what it served" in event["text"]]
