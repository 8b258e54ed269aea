"""A constant load over the HTTP API that compares every answer, bit for bit, with the one without faults.

It runs as a process of its own, so that nothing else delays its clock, and in one thread: arrivals are
only noted as they come; another process reads an answer when it is at its end. Commands come on stdin
("stop": begin nothing new and end with what runs), a line of counts goes to stdout each half second, and a
record of every request to a file. In the end the head's own count of what it failed is asked for: who was
told to come again later, though the request had been accepted, has lost it.

Where heads die (--keyed), each request has a key, and is sent again until its answer is whole: to the next
head, if there are several ports.
"""

import argparse
import asyncio
import bisect
import concurrent.futures
import itertools
import json
import re
import sys
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import measure  # noqa: E402
from answers import answer_of, begun, difference, make_requests, read_response  # noqa: E402

# Nothing may take this long: the harness's own limit of what counts as hung.
HUNG_AFTER_S = 60
# A head that stands still is left for the other one after this time.
OTHER_HEAD_AFTER_S = 8


# --- Answers, in a process of their own ---------------------------------------------------------

REFERENCE = {}  # by key, in that process


def learn(path):
    if path:
        REFERENCE.update(json.loads(Path(path).read_text()))


def judge(key, raw, aborted):
    """(verdict, why, the answer where none is known yet)."""
    status, _, body, whole = read_response(raw)
    if status != 200:
        return "failed", f"{status}: {body[:300]!r}", None
    answer, why = answer_of(body, whole)
    if answer is None:
        return "failed", why, None
    if not REFERENCE:
        return "finished", None, answer
    expected = REFERENCE[str(key)]
    if why := difference(expected if whole else begun(expected, answer), answer):
        return "changed", why, None
    return "aborted" if aborted else "finished", None, None


# --- The streams ------------------------------------------------------------------------------


class Exchange(asyncio.Protocol):
    """One request over a connection of its own. Notes what comes and when, and reads nothing. A client
    that goes away does so after that many events with tokens."""

    def __init__(self, wire, done, abort_after):
        self.wire = wire
        self.done = done
        self.left = abort_after
        self.aborted = False
        self.parts = []
        self.ends = []
        self.times = []
        self.size = 0
        self.last = time.monotonic()

    def connection_made(self, transport):
        self.transport = transport
        transport.write(self.wire)

    def data_received(self, data):
        now = time.monotonic()
        if b": waiting\n" not in data:  # it says that there is no news
            self.last = now
        self.size += len(data)
        self.parts.append(data)
        self.ends.append(self.size)
        self.times.append(now)
        if self.left is not None:
            self.left -= data.count(b'"token_ids":[')
            if self.left <= 0:
                self.aborted = True
                self.transport.abort()

    def connection_lost(self, error):
        if not self.done.done():
            self.done.set_result(error)

    def raw(self):
        return b"".join(self.parts)

    def arrivals(self, raw):
        """When each event with a token was complete."""
        return [
            self.times[min(bisect.bisect_left(self.ends, match.end()), len(self.times) - 1)]
            for match in re.finditer(rb'"token_ids":\[[^\]]', raw)
        ]


class Load:
    def __init__(self, options, requests, judges):
        self.options = options
        self.requests = requests
        self.judges = judges
        self.out = open(options.out, "w")
        self.counts = dict.fromkeys(["finished", "aborted", "failed", "changed", "hung", "refused"], 0)
        self.tokens = 0
        self.running = set()
        self.stopping = asyncio.Event()
        self.answers = {}
        self.next = itertools.count()
        self.keys = itertools.count()
        self.heads = len(options.port)
        self.patience_s = OTHER_HEAD_AFTER_S if options.keyed else HUNG_AFTER_S

    def wire(self, request, key):
        body = json.dumps(request["body"]).encode()
        named = f"Idempotency-Key: {key}\r\n" if self.options.keyed else ""
        head = (
            f"POST {request['path']} HTTP/1.1\r\nHost: {self.options.host}\r\nConnection: close\r\n{named}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def exchange(self, request, key, tries):
        """(what came and when, why it ended without an answer or None)."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        # A request with a key goes on when its client has gone.
        stays = self.options.once or self.options.keyed
        exchange = Exchange(self.wire(request, key), done, None if stays else request.get("abort_after"))
        port = self.options.port[tries % self.heads]
        try:
            await loop.create_connection(lambda: exchange, self.options.host, port)
        except OSError as error:
            return exchange, str(error)
        self.running.add(exchange)
        why = None
        try:
            while not done.done():
                left = exchange.last + self.patience_s - time.monotonic()
                if left <= 0:
                    why = f"nothing came for {self.patience_s} s"
                    break
                await asyncio.wait([done], timeout=left)
        finally:
            self.running.discard(exchange)
            exchange.transport.abort()
        *_, whole = read_response(exchange.raw())
        if why is None and not whole and not exchange.aborted:
            why = f"the connection ended early: {done.result()}"
        return exchange, why

    async def one(self, request):
        """A request until it is answered: what the head does not take is asked again."""
        started = time.monotonic()
        key = f"{self.options.seed}-{next(self.keys)}"
        for tries in itertools.count():
            exchange, why = await self.exchange(request, key, tries)
            status, headers, *_ = read_response(exchange.raw())
            if self.options.keyed and (why or status == 503):
                if time.monotonic() - started > HUNG_AFTER_S:
                    why = f"nothing came that was whole, in {tries} tries"
                    break
                await asyncio.sleep(0.05)
                continue
            if status not in (429, 503) or "retry-after" not in headers:
                break
            self.counts["refused"] += 1
            await asyncio.sleep(min(float(headers["retry-after"]), 1))
            if self.stopping.is_set() and time.monotonic() - started > HUNG_AFTER_S:
                why = "it was never accepted"
                break
        await self.note(request, started, exchange, why)
        if status is None:
            await asyncio.sleep(0.1)  # nobody is there; do not count the same loss a thousand times

    async def note(self, request, started, exchange, why):
        verdict = "hung" if why and why.startswith("nothing came") else "failed"
        raw = exchange.raw()
        if why is None:
            loop = asyncio.get_running_loop()
            verdict, why, answer = await loop.run_in_executor(
                self.judges, judge, request["key"], raw, exchange.aborted
            )
            if answer:
                self.answers[request["key"]] = answer
        arrivals = exchange.arrivals(raw)
        self.counts[verdict] += 1
        self.tokens += len(arrivals)
        record = {"key": request["key"], "verdict": verdict, "why": why, "start": started,
                  "end": exchange.last, "streamed": request["body"].get("stream", False),
                  "arrivals": [round((at - started) * 10000) for at in arrivals]}  # fmt: skip
        self.out.write(json.dumps(record) + "\n")
        if why is not None:
            self.out.flush()

    async def stream(self):
        while not self.stopping.is_set():
            number = next(self.next)
            if self.options.once and number >= len(self.requests):
                return
            await self.one(self.requests[number % len(self.requests)])

    def tell(self):
        now = time.monotonic()
        quiet = max((now - exchange.last for exchange in self.running), default=0)
        print(json.dumps({"at": now, "running": len(self.running), "quiet_s": round(quiet, 3),
                          "tokens": self.tokens, **self.counts}), flush=True)  # fmt: skip

    async def tell_often(self):
        while True:
            self.tell()
            await asyncio.sleep(0.5)

    async def listen(self):
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        await reader.readline()
        self.stopping.set()

    async def run(self):
        teller = asyncio.create_task(self.tell_often())
        listener = asyncio.create_task(self.listen())
        await asyncio.gather(*(self.stream() for _ in range(self.options.streams)))
        teller.cancel()
        listener.cancel()
        self.out.close()
        if self.options.once:
            Path(self.options.reference).write_text(json.dumps(self.answers))
        self.counts = measure.settle(self.counts, self.failed_at_the_head())
        self.tell()

    def failed_at_the_head(self):
        """Of those that rule, or only follow."""
        failed = []
        for port in self.options.port:
            url = f"http://{self.options.host}:{port}/cluster/status"
            with urllib.request.urlopen(url, timeout=10) as answer:
                failed.append(json.load(answer).get("requests", {}).get("failed", 0))
        return sum(failed)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, action="append", required=True, help="of each head")
    parser.add_argument("--keyed", action="store_true", help="heads die: each request has a key")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=96, help="different ones; they come round again")
    parser.add_argument("--longest-prompt", type=int, default=2500, help="tokens (default: 2500)")
    parser.add_argument("--longest-answer", type=int, default=500, help="tokens (default: 500)")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--reference", required=True, help="the answers without faults")
    parser.add_argument("--once", action="store_true", help="ask each once and write the reference")
    parser.add_argument("--out", required=True, help="a record of every request")
    options = parser.parse_args()
    requests = make_requests(options.seed, options.requests, options.longest_prompt)
    for request in requests:
        body = request["body"]
        body["max_tokens"] = min(body["max_tokens"], options.longest_answer)
    known = None if options.once else options.reference
    with concurrent.futures.ProcessPoolExecutor(1, initializer=learn, initargs=(known,)) as judges:
        judges.submit(judge, 0, b"", False).result()  # starts it, before there are threads
        asyncio.run(Load(options, requests, judges).run())


if __name__ == "__main__":
    main()
