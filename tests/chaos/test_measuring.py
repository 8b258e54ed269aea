"""That chaos would see what it looks for: each judge is shown what it must not let pass.

A head of a few lines stands in for the real one where whole answers are judged: it can be told to lie.
"""

import copy
import functools
import http.server
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import chaos
import faults
import measure
import network
import notice
import promises
from answers import answer_of, begun, difference

HERE = Path(__file__).resolve().parent

# --- Answers ----------------------------------------------------------------------------------


def event(value):
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def chunk(token, index=0, finish=None):
    numbers = {"tokens": [f"t{token}"], "token_logprobs": [-0.5], "top_logprobs": [{}],
               "text_offset": [token]}  # fmt: skip
    return event({"choices": [{"index": index, "text": f"t{token} ", "token_ids": [token],
                               "logprobs": numbers, "finish_reason": finish}]})  # fmt: skip


USAGE = event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}})
DONE = event(b"[DONE]")
GOOD = chunk(1) + chunk(2, finish="length") + USAGE + DONE


def test_the_same_answer_may_come_in_other_pieces():
    two = {"index": 0, "text": "t1 t2 ", "token_ids": [1, 2], "finish_reason": "length", "logprobs": {
        "tokens": ["t1", "t2"], "token_logprobs": [-0.5, -0.5], "top_logprobs": [{}, {}],
        "text_offset": [1, 2]}}  # fmt: skip
    same = event({"choices": [two], "usage": None}) + USAGE + DONE
    assert difference(answer_of(GOOD)[0], answer_of(same)[0]) is None


@pytest.mark.parametrize("bad, why", [
    (GOOD + DONE, "2 times [DONE]"),
    (GOOD[: -len(DONE)], "0 times [DONE]"),
    (GOOD + chunk(3), "not once in the end"),
    (chunk(1) + event({"error": {"message": "It is lost."}}) + DONE, "It is lost."),
])  # fmt: skip
def test_an_answer_that_is_none(bad, why):
    answer, said = answer_of(bad)
    assert answer is None and why in said


@pytest.mark.parametrize("bad, why", [
    (chunk(1) + chunk(1) + chunk(2, finish="length") + USAGE + DONE, "tokens[1]"),
    (chunk(1) + USAGE + DONE, "1 tokens, not 2"),
    (GOOD.replace(b"-0.5", b"-0.50000006", 1), "numbers[0]"),
    (GOOD.replace(b'"text_offset": [2]', b'"text_offset": [7]'), "numbers[1]"),
    (GOOD.replace(b'"length"', b'"stop"'), "finish"),
    (chunk(1, finish="length") + chunk(2, finish="length") + USAGE + DONE, "finish"),
    (chunk(1) + chunk(2, finish="length") + DONE, "usage"),
    (GOOD.replace(DONE, USAGE + DONE), "usage"),
    (GOOD.replace(b'"completion_tokens": 2', b'"completion_tokens": 4'), "usage"),
    (chunk(1, 1) + GOOD, "choices ['0']"),
])  # fmt: skip
def test_an_answer_that_has_changed(bad, why):
    assert why in difference(answer_of(GOOD)[0], answer_of(bad)[0])


def test_the_beginning_of_an_answer():
    expected, _ = answer_of(GOOD)
    for cut in range(len(GOOD)):
        part, why = answer_of(GOOD[:cut], whole=False)
        assert why is None and difference(begun(expected, part), part) is None
    changed, _ = answer_of(chunk(1) + chunk(3), whole=False)
    assert "tokens[1]" in difference(begun(expected, changed), changed)


# --- The load, against a head that lies -------------------------------------------------------


class FakeHead(http.server.ThreadingHTTPServer):
    """Gives each request the same answer each time. `lie` changes one answer: it gets (status, headers,
    body) and returns them; `failed` is what the status says."""

    daemon_threads = True

    def __init__(self, lie=lambda *answer: answer, failed=0):
        super().__init__(("127.0.0.1", 0), FakeAnswers)
        self.lie = lie
        self.failed = failed
        self.count = itertools.count()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class FakeAnswers(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def send(self, status, headers, body):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": len(body), "Connection": "close"}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.send(200, {}, json.dumps({"requests": {"failed": self.server.failed}}).encode())

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        streams = asked["stream"]
        body = GOOD if streams else json.dumps(
            {"choices": [{"index": 0, "text": "t", "token_ids": [1], "finish_reason": "stop"}],
             "usage": {"total_tokens": 2}}).encode()  # fmt: skip
        answer = (200, {}, body)
        if streams and next(self.server.count) == 0:
            answer = self.server.lie(*answer)
        self.send(*answer)


def counts_of(folder, reference, head, *words):
    """One request of each kind; what the load tells in the end."""
    out = folder / "records.jsonl"
    with head:
        done = subprocess.run(
            [sys.executable, str(HERE / "load.py"), "--port", str(head.server_port), "--requests", "12",
             "--streams", "12", "--reference", str(reference), "--out", str(out), *words],
            input="stop\n", capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("honest")
    counts_of(folder, folder / "reference.json", FakeHead(), "--once")
    return folder / "reference.json"


RETRY = {"Retry-After": 1}
ERROR = b'{"error": {"message": "No."}}'


@pytest.mark.parametrize("lie, failed, expected", [
    (None, 0, {}),
    # Not accepted, and asked again: nobody has lost anything.
    (lambda *_: (503, RETRY, ERROR), 0, {"refused": 1}),
    # Accepted and given up: the same for the client, but the head has counted it.
    (lambda *_: (503, RETRY, ERROR), 1, {"failed": 1}),
    (lambda *_: (429, RETRY, ERROR), 1, {"failed": 1}),
    (lambda *_: (500, {}, ERROR), 1, {"failed": 1}),
    (lambda *_: (503, {}, ERROR), 0, {"failed": 1}),
    (lambda *_: (408, {}, ERROR), 1, {"failed": 1}),
    # An answer that ends in an error, though the head forgets to count it.
    (lambda *_: (200, {}, chunk(1) + event(json.loads(ERROR)) + DONE), 0, {"failed": 1}),
    (lambda *_: (200, {}, GOOD + DONE), 0, {"failed": 1}),
    (lambda *_: (200, {}, GOOD[: -len(DONE)]), 0, {"failed": 1}),
    (lambda *_: (200, {}, GOOD.replace(b'"total_tokens": 5', b'"total_tokens": 6')), 0, {"changed": 1}),
    # Nothing that any client saw.
    (None, 2, {"failed": 2}),
])  # fmt: skip
def test_the_load_counts_what_was_lost(tmp_path, reference, lie, failed, expected):
    told = counts_of(tmp_path, reference, FakeHead(lie or (lambda *answer: answer), failed))
    wanted = {"failed": 0, "changed": 0, "hung": 0, "refused": 0} | expected
    assert {name: told[name] for name in wanted} == wanted
    # Whoever was refused came again.
    gone = sum(told[name] for name in ("finished", "aborted", "changed"))
    clients_that_failed = expected.get("failed", 0) if lie and "refused" not in expected else 0
    assert gone >= 12 - clients_that_failed


# --- What outsiders notice --------------------------------------------------------------------


def status(nodes, state="ready", running=3):
    shown = [{"pid": pid, "id": f"node-{pid}", "incarnation": incarnation, "state": node_state}
             for pid, incarnation, node_state in nodes]  # fmt: skip
    replicas = [{"running": running, "shards": [{"device": "node-1/0"}]}]
    return {"cluster": {"state": state}, "nodes": shown, "replicas": replicas}


BOTH = status([(1, 10, "ready"), (2, 11, "ready")])


def watch(*looks):
    """What a watch of both nodes says of answers at 1, 2, 3... seconds after the fault."""
    fault = {"at": 100, "pids": [1, 2]}
    one = notice.Watch(0, [1, 2])
    one.end = 100 + notice.NEVER_S
    fault["before"] = one.look(BOTH, 99)["before"]
    for seconds, look in enumerate(looks, 1):
        one.look(look, 100 + seconds)
    return {**fault, **one.told}


@pytest.mark.parametrize("looks, times, never, again", [
    ([status([(1, 10, "lost"), (2, 11, "lost")])], [1, 1], 0, 101),
    ([BOTH, status([(2, 11, "ready")], "degraded"), status([], "loading"), BOTH], [2, 3], 0, 104),
    # It was lost and is back as new between two looks.
    ([BOTH, status([(1, 12, "ready"), (2, 13, "joining")])], [2, 2], 0, 102),
    # What nobody notices is the worst, not absent.
    ([BOTH] * 9, [notice.NEVER_S] * 2, 2, None),
    ([BOTH, status([(1, 10, "lost"), (2, 11, "ready")])], [2, notice.NEVER_S], 1, None),
])  # fmt: skip
def test_noticed(looks, times, never, again):
    fault = watch(*looks)
    assert fault["before"][1]["runs"] == 3 and fault["before"][2]["runs"] == 0
    assert notice.notice_times(fault) == (times, never)
    assert fault["again"] == again


def test_one_that_was_no_member_cannot_be_lost():
    one = notice.Watch(0, [1, 3])
    assert set(one.look(status([(1, 10, "joining")]), 1)["before"]) == set()


def test_a_fault_of_which_nobody_could_say_whom_it_took_was_never_noticed():
    assert notice.notice_times({"before": None, "lost": {}, "at": 5}) == ([notice.NEVER_S], 1)


def test_a_verdict_is_by_the_longest():
    def said(*words, **more):
        return measure.verdict(measure.row("x", *words, **more))

    assert said([0.01, 0.049], 0.05) == "kept"
    assert said([0.01] * 99 + [0.051], 0.05) == "over (1 of 100)"
    assert said([0.01, 8], 0.05, never=1) == "over (1 of 2, 1 never)"
    assert said([], 0.05) == "not measured"
    assert said([5]) == ""


ALWAYS, IF_NOT_JUDGED, NEVER = (True, True), (True, False), (False, False)


@pytest.mark.parametrize("hold, measured, promise, said, may_go_on", [
    (promises.bound, 0.05, 0.05, "50 ms of 50 ms promised: kept", ALWAYS),
    (promises.bound, 9.9, 0.05, "9900 ms of 50 ms promised: BROKEN", IF_NOT_JUDGED),
    (promises.bound, 10.1, 0.05, "10100 ms of 50 ms promised: BROKEN, and", NEVER),
    (promises.bound, 19.9, 2, "19900 ms of 2000 ms promised: BROKEN", IF_NOT_JUDGED),
    (promises.bound, 20.1, 2, "20100 ms of 2000 ms promised: BROKEN, and", NEVER),
    (promises.ratio, 0.5, 0.5, "0.5 of 0.5 promised: kept", ALWAYS),
    (promises.ratio, 4.9, 0.5, "4.9 of 0.5 promised: BROKEN", IF_NOT_JUDGED),
    (promises.ratio, 5.1, 0.5, "5.1 of 0.5 promised: BROKEN, and", NEVER),
    (functools.partial(promises.ratio, broken=1), 1.1, 0.5, "1.1 of 0.5 promised: BROKEN, and", NEVER),
])  # fmt: skip
def test_a_busy_machine_excuses_nothing_in_silence(monkeypatch, hold, measured, promise, said, may_go_on):
    told = []
    monkeypatch.setattr(promises, "told", lambda *words: told.append(words))
    for judged in ("", "1"):
        monkeypatch.setenv("TROUPE_JUDGE", judged)
        hold("noticed", measured, promise)
    assert all(line.startswith(f"noticed: {said}") for line, _ in told)
    assert tuple(goes_on for _, goes_on in told) == may_go_on


def test_stalls_and_first_waits():
    def record(*arrivals):
        return {"start": 0, "streamed": True, "arrivals": [at * 10000 for at in arrivals]}

    arrivals = measure.Arrivals([record(1, 2, 5, 6), record(4, 5), record(1, 2)])
    # The second waits for its first token at that time; the third is at its end.
    assert arrivals.stalls(3, 10) == [2, 1]
    assert arrivals.first_waits(3, 10) == [1]
    assert arrivals.stalls(1.5, 1.9) == [0.5, 0.5]


def test_the_next_token_of_what_ran_when_a_head_died():
    def record(start, end, *arrivals, streamed=True):
        return {"start": start, "end": end, "streamed": streamed,
                "arrivals": [(at - start) * 10000 for at in arrivals]}  # fmt: skip

    records = [record(0, 9, 1, 2, 5), record(1, 8, 6, 7), record(0, 2, 1), record(4, 9, 5), record(0, 6),
               record(0, 9, 5, streamed=False)]  # fmt: skip
    assert measure.next_tokens(records, 3) == [2, 3, 3]


def test_every_fault_comes_in_a_short_run():
    class Everything(network.Direct):
        can = network.Namespaces.all

    for twins, heads_die in itertools.product((0, 1), (False, True)):
        wanted = set(faults.WEIGHTS)
        wanted -= set() if twins else faults.NEEDS_TWINS
        wanted -= set() if heads_die else faults.NEEDS_HEADS
        schedule = faults.schedule(1, Everything, twins=twins, heads_die=heads_die)
        plan = list(itertools.islice(schedule, len(wanted)))
        assert {planned.kind for planned in plan} == wanted
        assert sum(planned.gap_s for planned in plan) < 0.8 * chaos.Plan.seconds


RESULT = {
    "counts": {"finished": 5, "failed": 0, "changed": 0, "hung": 0}, "state": "ready", "left_over": 0,
    "crashes": [], "commands": [], "bad": [], "requests": {"replayed": 3, "failed": 0},
    "faults": [{"kind": "kill", "before": {7: {"runs": 4}}}], "plan": {"heads_die": False},
}  # fmt: skip


@pytest.mark.parametrize("path, value", [
    (("counts", "failed"), 1), (("counts", "changed"), 1), (("counts", "hung"), 1), (("left_over",), 1),
    (("counts", "finished"), 0), (("state",), "degraded"), (("crashes",), ["it crashed"]),
    # A replica was killed with requests on it, and none was replayed: they cannot all have finished.
    (("requests", "replayed"), 0),
])  # fmt: skip
def test_what_chaos_complains_of(path, value):
    assert list(chaos.complaints(RESULT)) == []
    bad = copy.deepcopy(RESULT)
    inner = bad
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    assert len(list(chaos.complaints(bad))) == 1


def test_with_two_heads_nobody_counts_what_was_replayed():
    # The head that counted it may have died since.
    result = RESULT | {"requests": {"replayed": 0, "failed": 0}, "plan": {"heads_die": True}}
    assert list(chaos.complaints(result)) == []


# --- Links that are treated badly -------------------------------------------------------------

SENDER = """
import socket, sys, time
to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(2000):
    to.sendto(repr(time.monotonic()).encode().ljust(900), (sys.argv[1], 9999))
    time.sleep(0 if number % 10 else 0.002)
"""


@pytest.mark.alone
@pytest.mark.parametrize("how", [
    None, *(pytest.param(how, marks=pytest.mark.long) for how in ("slow", "lossy", "bursty")),
])
def test_a_link_is_treated_as_said(how):
    delays = delays_of(how)
    if how == "lossy":
        assert 1800 < len(delays) < 1995, len(delays)
    elif how == "slow":
        assert sorted(delays)[1000] > 0.05, delays[1000]
    elif how == "bursty":
        assert len(delays) == 2000 and max(delays) > 0.25, max(delays)
    else:
        assert len(delays) == 2000
        promises.bound("half of what nothing holds up has come", sorted(delays)[1000], 0.05)


def delays_of(how):
    with network.private() as inside:
        if not inside:
            pytest.skip("network namespaces need root, ip and unshare")
        net = network.Namespaces(f"{os.getpid():x}")
        try:
            if why := net.cannot.get(how):
                pytest.skip(why)
            return delays_over(net.join(1), how)
        finally:
            net.close()


def delays_over(link, how):
    """Of those of 2,000 packets that arrive at the hub, in seconds."""
    heal = getattr(link, how)() if how else lambda: None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as hub:
        # All of them, if this process does not run meanwhile; the namespace's root may have that much.
        hub.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_RCVBUFFORCE", 33), 1 << 23)
        hub.bind((network.HUB, 9999))
        hub.settimeout(2)
        sender = subprocess.Popen([*link.prefix, sys.executable, "-c", SENDER, network.HUB])
        delays = []
        while True:
            running = sender.poll() is None
            try:
                sent = float(hub.recv(2000))
                delays.append(time.monotonic() - sent)
            except TimeoutError:
                if not running:
                    break
    heal()
    return delays
