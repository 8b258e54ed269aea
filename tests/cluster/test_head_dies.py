"""The head is killed under load: every request that it had accepted completes, with the same tokens and
log-probabilities, and a client that asks again gets each token once."""

import http.client
import itertools
import json
import re
import textwrap
import threading
import time

import openai
import pytest

from answers import answer_of, difference
from recovery import LASTING, MIXED, SMALL
from running import PATIENCE_S, ROOT, free_port, get, wait_until
from streams import Missed, Streams, arranged

FLAGS = [*SMALL, "--min-devices", 2]
WAIT_S = 3 * PATIENCE_S


class Asker:
    """A client with a key: it asks until it has an answer that is whole. From its second try on it may
    only read on (`reads`), from where it was."""

    def __init__(self, stage, request, name, reads=False, doors=()):
        self.stage, self.request, self.name, self.reads = stage, request, name, reads
        self.streamed = request["body"]["stream"]
        self.doors = list(doors) or [stage.http_port]  # one after the other
        self.key = f"key-{name}-{request['key']}"
        self.id = None
        self.parts = []  # of the answer: the bodies that were used
        self.had = ""  # of each choice, as in the ids of events
        self.tries = 0
        self.tokens = 0
        self.answer = self.error = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        end = time.monotonic() + WAIT_S
        while self.answer is None and self.error is None:
            if time.monotonic() > end:
                self.error = f"no answer after {WAIT_S} s and {self.tries} tries"
                return
            try:
                self._try()
            except (OSError, http.client.HTTPException):
                time.sleep(0.05)

    def _try(self):
        door = self.doors[self.tries % len(self.doors)]
        connection = http.client.HTTPConnection("127.0.0.1", door, timeout=PATIENCE_S)
        self.tries += 1
        reading = self.reads and self.id is not None
        if reading:
            connection.request("GET", f"/v1/requests/{self.id}/events?from={self.had or 0}")
        else:
            connection.request("POST", self.request["path"], json.dumps(self.request["body"]),
                               {"Content-Type": "application/json", "Idempotency-Key": self.key})  # fmt: skip
        response = connection.getresponse()
        if response.status == 503:
            time.sleep(0.05)
            return
        if response.status != 200:
            self.error = f"{response.status} {response.read()}"
            return
        if not reading:
            known = response.headers["X-Request-Id"]
            assert self.id in (None, known), f"{self.id} became {known}"
            self.id = known
        body = b""
        try:
            while line := response.readline():
                body += line
                if line.startswith(b"id: "):
                    self.had = line[4:].strip().decode()
                self.tokens += line.count(b'"token_ids":[')
        finally:
            # What a reader has is not told again; to an asker all of it is.
            whole = body[: body.rfind(b"\n\n") + 2] if reading else body
            self.parts = [*self.parts, whole] if reading else [body]
        ends = b"[DONE]" in whole if self.streamed else whole.endswith(b"}") and not response.length
        if not ends:
            raise ConnectionResetError("it ends before its end")
        self.answer, self.error = answer_of(b"".join(self.parts))


def askers(stage, requests, name, count=32, doors=()):
    return [Asker(stage, requests[i % len(requests)], f"{name}-{i}", doors=doors) for i in range(count)]


def assert_answered(stage, asked, expected):
    for asker in asked:
        asker.thread.join(WAIT_S + 10)
        assert asker.error is None, f"{asker.key}: {asker.error}\n{stage.logs()}"
        undisturbed = expected[asker.request["key"]]
        if not asker.streamed and not undisturbed["usage"]:  # a stream's, which was not asked for it
            asker.answer["usage"] = []
        assert difference(undisturbed, asker.answer) is None, asker.key


def kill_head(stage, down_s):
    stage.head_process.kill()
    stage.head_process.popen.wait()
    time.sleep(down_s)
    stage.start_head()


STREAMED = [request for request in [*LASTING, *MIXED]
            if request["body"]["stream"] and "abort_after" not in request]  # fmt: skip
# Chats and texts, several choices, echoes, log-probabilities, penalties, stop strings.
WHOLE = [{**request, "body": {**request["body"], "stream": False, "stream_options": None}}
         for request in [*LASTING[:3], *MIXED] if "abort_after" not in request]  # fmt: skip
ALL = [request for pair in itertools.zip_longest(STREAMED, WHOLE) for request in pair if request]


def test_every_accepted_request_outlives_the_head(stages, expected):
    stage = stages(*FLAGS)
    asked = askers(stage, ALL, "a")
    wait_until(lambda: sum(asker.tokens > 3 for asker in asked) >= 4, "tokens come")
    kill_head(stage, 1)
    assert_answered(stage, asked, expected)
    assert max(asker.tries for asker in asked) > 1
    requests = stage.status()["requests"]
    assert requests["failed"] == 0 and requests["replayed"] > 0
    # Asked once more, an answer that is over comes at once, and is the same.
    again = [Asker(stage, asker.request, asker.name) for asker in asked[:4]]
    assert_answered(stage, again, expected)
    assert [asker.id for asker in again] == [asker.id for asker in asked[:4]]
    assert stage.status()["requests"]["finished"] == requests["finished"]


def test_the_head_and_a_worker_die_together_and_it_comes_back_elsewhere(stages, expected):
    stage = stages(*FLAGS)
    asked = askers(stage, STREAMED, "e", 12)
    wait_until(lambda: sum(asker.tokens > 3 for asker in asked) >= 4, "tokens come")
    stage.head_process.kill()
    stage.workers.pop().kill()
    stage.head_process.popen.wait()
    # Workers read there where it is.
    stage.control_port = free_port()
    stage.start_head()
    stage.add_worker()
    assert_answered(stage, asked, expected)
    assert stage.status()["requests"]["failed"] == 0
    assert len([node for node in stage.status()["nodes"] if node["state"] != "lost"]) == 2


@pytest.mark.long
def test_a_head_that_dies_again_and_again(stages, expected):
    stage = stages(*FLAGS)
    asked = askers(stage, ALL, "b", 2 * len(ALL))
    wait_until(lambda: any(asker.tokens > 3 for asker in asked), "tokens come")
    for _ in range(3):
        kill_head(stage, 1)
        time.sleep(1)
    assert_answered(stage, asked, expected)
    assert all(worker.alive() for worker in stage.workers)


def test_requests_that_nobody_asks_for_again_end_as_well(stages, expected):
    stage = stages(*FLAGS)
    streams = Streams(stage, LASTING).flow()
    ids = [stream.request["key"] for stream in streams.streams]
    kill_head(stage, 1)
    for stream in streams.streams:
        stream.wait()
        assert stream.error is not None
    wait_until(lambda: stage.state() == "ready" and stage.status()["requests"]["finished"] == len(ids),
               "all are finished")  # fmt: skip


@pytest.mark.parametrize("request_", [LASTING[0], *[r for r in STREAMED if r["body"].get("n", 1) > 1][:2]],
                         ids=lambda r: str(r["key"]))  # fmt: skip
def test_a_reader_goes_on_where_it_was(stages, expected, request_):
    stage = stages(*FLAGS)
    names = itertools.count()

    def read_while_it_dies():
        first = Asker(stage, request_, f"reader-{next(names)}")
        wait_until(lambda: first.id is not None, "it is accepted")
        reader = Asker.__new__(Asker)
        reader.__dict__.update(first.__dict__, reads=True, parts=[], had="", tokens=0, tries=0,
                               answer=None, error=None)  # fmt: skip
        reader.thread = threading.Thread(target=reader._run, daemon=True)
        reader.thread.start()
        wait_until(lambda: reader.tokens > 3, "it reads")
        kill_head(stage, 0.5)
        assert_answered(stage, [reader], expected)
        if reader.tries == 1:
            raise Missed("it had read all before the head died")
        return first

    first = arranged(read_while_it_dies)
    assert_answered(stage, [first], expected)
    told = json.loads(get(stage.base_url, f"/v1/requests/{first.id}"))
    assert told["status"] == "finished" and told["id"] == first.id


def test_a_journal_that_is_torn_costs_no_accepted_request(stages, expected):
    stage = stages(*FLAGS)
    asked = askers(stage, LASTING, "t", 6)
    wait_until(lambda: all(asker.tokens > 3 for asker in asked), "tokens come")
    stage.head_process.kill()
    stage.head_process.popen.wait()
    newest = max((stage.state_dir / "journal").glob("*.log"), key=lambda path: int(path.stem))
    with open(newest, "r+b") as file:
        file.truncate(newest.stat().st_size - 13)
    stage.start_head()
    assert_answered(stage, asked, expected)
    assert "was cut off within a record" in stage.head_process.log()


def refusal(stage, path="/v1/completions", body=None):
    """What the head says that takes nobody; None: it does."""
    connection = http.client.HTTPConnection("127.0.0.1", stage.http_port, timeout=PATIENCE_S)
    connection.request("POST" if body else "GET", path, json.dumps(body),
                       {"Content-Type": "application/json"})  # fmt: skip
    answer = connection.getresponse()
    text = answer.read()
    if answer.status == 200:
        return None
    assert answer.status == 503 and int(answer.headers["Retry-After"]) > 0
    return json.loads(text)["error"]["message"]


def test_a_journal_that_cannot_be_written_stops_newcomers_only(stages, expected):
    stage = stages(*FLAGS)
    asked = askers(stage, LASTING, "w", 6)
    wait_until(lambda: all(asker.tokens > 3 for asker in asked), "tokens come")
    (newest,) = (stage.state_dir / "journal").glob("*.log")
    # The next file cannot be made where a folder is.
    blocked = [stage.state_dir / "journal" / f"{int(newest.stem) + i}.log" for i in range(1, 9)]
    for path in blocked:
        path.mkdir()
    kill_head(stage, 0)

    def noted(text):
        status = stage.status_or_none()
        return status and any(text in event["text"] for event in status["events"])

    wait_until(lambda: noted("The journal cannot be written"), "it is told")
    assert_answered(stage, asked, expected)
    why = refusal(stage, body=LASTING[0]["body"])
    assert any(str(path) in why for path in blocked), why
    assert "--no-journal" in why
    assert "The journal cannot be written" in refusal(stage, "/health")
    assert stage.state() == "ready"
    for path in blocked:
        path.rmdir()
    wait_until(lambda: noted("The journal is written again"), "it is told")
    assert refusal(stage, "/health") is None
    # What was there, and what came since, is all in the new file.
    (file,) = (stage.state_dir / "journal").iterdir()
    assert int(file.stem) > int(newest.stem)
    again = [Asker(stage, asker.request, asker.name) for asker in asked]
    fresh = askers(stage, LASTING, "f", 6)
    wait_until(lambda: all(asker.tokens > 3 for asker in fresh), "tokens come")
    kill_head(stage, 0.2)
    assert_answered(stage, again + fresh, expected)
    assert [asker.id for asker in again] == [asker.id for asker in asked]


def test_the_openai_client_retries_with_its_key(stages, expected):
    stage = stages(*FLAGS)
    body = {key: value for key, value in LASTING[0]["body"].items() if key not in ("stream", "top_p")}
    own = {key: body.pop(key) for key in ("ignore_eos", "return_token_ids")}
    client = openai.OpenAI(base_url=stage.base_url + "/v1", api_key="none", max_retries=30, timeout=WAIT_S)
    answers = []

    def ask():
        answers.append(client.completions.create(
            model="pocket-dictionary", top_p=1, **body, extra_body=own,
            extra_headers={"Idempotency-Key": "of a client"},
        ))  # fmt: skip

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    wait_until(lambda: any(r["kv_blocks_used"] for r in stage.status()["replicas"]), "it runs")
    kill_head(stage, 1)
    thread.join(WAIT_S)
    (answer,) = answers
    told = expected[LASTING[0]["key"]]["choices"]["0"]
    assert answer.choices[0].token_ids == told["tokens"]
    assert stage.status()["requests"]["finished"] == 1


def documented_stream():
    """The Python of the API's document that asks for a stream again."""
    text = (ROOT / "actors" / "gateway" / "API.md").read_text()
    begin = text.index("    import time, openai\n")
    return textwrap.dedent(re.match(r"(?:    .*\n|\n)+", text[begin:])[0])


def test_the_documented_client_goes_on_with_a_stream(stages):
    stage = stages(*FLAGS)
    code = documented_stream().replace("http://127.0.0.1:8000", stage.base_url)
    assert stage.base_url in code
    names = {}
    exec(compile(code, "API.md", "exec"), names)
    request = {"model": "pocket-dictionary", "max_tokens": 600, "temperature": 1, "seed": 5,
               "messages": [{"role": "user", "content": "What is a mill?"}],
               "extra_body": {"ignore_eos": True}}  # fmt: skip
    whole = names["client"].chat.completions.create(**request).choices[0].message.content

    def read_while_it_dies():
        pieces = names["stream"](f"documented-{time.monotonic()}", **request)
        read = next(piece for piece in pieces if piece)
        kill_head(stage, 0.2)
        rest = list(pieces)
        assert read + "".join(rest) == whole
        if stage.status()["requests"]["replayed"] == 0:
            raise Missed("it had all before the head died")

    arranged(read_while_it_dies)
