"""A constant load over the HTTP API that compares every answer, bit for bit, with the one without faults.

It runs as a process of its own, so that nothing else delays its clock, and in one thread: arrivals are
only noted as they come and read when a stream is at its end. Commands come on stdin ("stop": begin
nothing new and end with what runs), a line of counts goes to stdout each half second, and a record of
every request to a file.
"""

import argparse
import asyncio
import bisect
import itertools
import json
import re
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from answers import answer_of, difference, make_requests, read_response  # noqa: E402

# Nothing may take this long: the harness's own limit of what counts as hung.
HUNG_AFTER_S = 60


# --- The streams ------------------------------------------------------------------------------


class Exchange(asyncio.Protocol):
    """One request over a connection of its own. Notes what comes and when, and reads nothing."""

    def __init__(self, wire, done):
        self.wire = wire
        self.done = done
        self.parts = []
        self.ends = []
        self.times = []
        self.size = 0
        self.last = time.monotonic()

    def connection_made(self, transport):
        self.transport = transport
        transport.write(self.wire)

    def data_received(self, data):
        self.last = time.monotonic()
        self.size += len(data)
        self.parts.append(data)
        self.ends.append(self.size)
        self.times.append(self.last)

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
    def __init__(self, options, requests, reference):
        self.options = options
        self.requests = requests
        self.reference = reference
        self.out = open(options.out, "w")
        self.counts = dict.fromkeys(["finished", "failed", "changed", "hung", "refused", "reset"], 0)
        self.tokens = 0
        self.running = set()
        self.stopping = asyncio.Event()
        self.answers = {}
        self.next = itertools.count()

    def wire(self, request):
        body = json.dumps(request["body"]).encode()
        head = (
            f"POST {request['path']} HTTP/1.1\r\nHost: {self.options.host}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def exchange(self, request):
        """(status, headers, body, arrivals, why it ended without an answer or None)."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        exchange = Exchange(self.wire(request), done)
        try:
            await loop.create_connection(lambda: exchange, self.options.host, self.options.port)
        except OSError as error:
            return None, {}, None, [], str(error)
        self.running.add(exchange)
        why = None
        try:
            while not done.done():
                left = exchange.last + HUNG_AFTER_S - time.monotonic()
                if left <= 0:
                    why = f"nothing came for {HUNG_AFTER_S} s"
                    break
                await asyncio.wait([done], timeout=left)
        finally:
            self.running.discard(exchange)
            exchange.transport.abort()
        raw = exchange.raw()
        status, headers, body = read_response(raw)
        if why is None and body is None:
            why = f"the connection ended early: {done.result()}"
        return status, headers, body, exchange.arrivals(raw), why

    async def one(self, request):
        """A request until it is answered: only what was never accepted is asked again."""
        started = time.monotonic()
        while True:
            status, headers, body, arrivals, why = await self.exchange(request)
            if status in (429, 503) and "retry-after" in headers:
                self.counts["refused"] += 1
                await asyncio.sleep(min(float(headers["retry-after"]), 1))
            elif status is None and why and self.options.head_may_die and "nothing came" not in why:
                self.counts["reset"] += 1
                await asyncio.sleep(0.1)
            else:
                break
            if self.stopping.is_set() and time.monotonic() - started > HUNG_AFTER_S:
                why = "it was never accepted"
                break
        self.judge(request, started, arrivals, status, body, why)
        if status is None:
            await asyncio.sleep(0.1)  # nobody is there; do not count the same loss a thousand times

    def judge(self, request, started, arrivals, status, body, why):
        answer = None
        if why is None:
            answer, why = answer_of(body) if status == 200 else (None, f"{status}: {body[:300]!r}")
        verdict = "finished"
        if why is not None:
            verdict = "hung" if why.startswith("nothing came") else "failed"
        elif self.reference is None:
            self.answers[request["key"]] = answer
        elif why := difference(self.reference[str(request["key"])], answer):
            verdict = "changed"
        self.counts[verdict] += 1
        self.tokens += len(arrivals)
        record = {"key": request["key"], "verdict": verdict, "why": why, "start": started,
                  "end": time.monotonic(), "streamed": request["body"].get("stream", False),
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
        if self.reference is None:
            Path(self.options.reference).write_text(json.dumps(self.answers))
        self.tell()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=96, help="different ones; they come round again")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--reference", required=True, help="the answers without faults")
    parser.add_argument("--once", action="store_true", help="ask each once and write the reference")
    parser.add_argument("--out", required=True, help="a record of every request")
    parser.add_argument("--head-may-die", action="store_true", help="ask again what a dead head lost")
    options = parser.parse_args()
    reference = None if options.once else json.loads(Path(options.reference).read_text())
    asyncio.run(Load(options, make_requests(options.seed, options.requests), reference).run())


if __name__ == "__main__":
    main()
