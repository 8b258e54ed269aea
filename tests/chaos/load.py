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
import random
import re
import sys
import time
from pathlib import Path

# Nothing may take this long: the harness's own limit of what counts as hung.
HUNG_AFTER_S = 60
KNOWN = "brandy valet river anchor candle garden mirror saddle violin harbor basket copper".split()


def made_up_word(rng):
    return "".join(rng.choice("zxqvkjwbmg") + rng.choice("aeiouy") for _ in range(rng.randint(2, 4)))


def make_requests(seed, count):
    """Requests of every kind, the same for the same seed. The demo model leads by several nats on
    words that it knows, so most are made up or sampled hot: there a changed bit changes tokens."""
    rng = random.Random(seed)
    return [{"key": key, **make_request(rng, key)} for key in range(count)]


def make_request(rng, key):
    kind = key % 8
    word = made_up_word(rng)
    long = rng.randint(80, 500)
    hot = {"temperature": 1, "top_p": 1, "seed": rng.randrange(1 << 40)}
    common = {"stream": True, "return_token_ids": True}
    chat, text = "/v1/chat/completions", "/v1/completions"

    def ask(content, **fields):
        return {"path": chat, "body": {"messages": [{"role": "user", "content": content}],
                                       **(common | fields)}}  # fmt: skip

    def go_on(prompt, **fields):
        return {"path": text, "body": {"prompt": prompt, **(common | fields)}}

    ids = [0, *(rng.randrange(6, 4000) for _ in range(rng.randint(3, 200)))]
    return [
        lambda: ask(f"What is a {word}?", max_tokens=long, **hot, logprobs=True, ignore_eos=True),
        lambda: go_on(f"The {word} of {made_up_word(rng)} ", max_tokens=long, **hot, logprobs=2,
                      ignore_eos=True),
        lambda: go_on(ids, max_tokens=long, temperature=0, logprobs=0, ignore_eos=True),
        lambda: ask(f"What is {rng.choice(KNOWN)}?", max_tokens=60, temperature=0, logprobs=True),
        lambda: go_on(f"{word} ", max_tokens=long, **hot, ignore_eos=True),
        # What depends on the tokens so far must survive a replay too.
        lambda: go_on(f"{word} {rng.choice(KNOWN)} ", max_tokens=long, **hot, logprobs=0, ignore_eos=True,
                      repetition_penalty=1.2, presence_penalty=0.3, frequency_penalty=0.2, min_p=0.01),
        lambda: go_on(ids[: rng.randint(2, 20)], max_tokens=long // 2, n=2, **(hot | {"top_k": 50}),
                      logprobs=0, ignore_eos=True),
        lambda: ask(f"Define {word}.", max_tokens=long, **hot, stream=key % 16 == 7, logprobs=True,
                    stop=[f" {rng.choice(KNOWN)}", " of the"]),
    ][kind]()  # fmt: skip


# --- Reading answers --------------------------------------------------------------------------


def unchunked(body):
    """The body of a chunked HTTP answer; None when it is cut off."""
    parts, at = [], 0
    while True:
        end = body.find(b"\r\n", at)
        if end < 0:
            return None
        size = int(body[at:end].split(b";")[0], 16)
        if size == 0:
            return b"".join(parts)
        parts.append(body[end + 2 : end + 2 + size])
        at = end + 2 + size + 2


def read_response(raw):
    """(status, headers, body); the body is None when the answer was cut off."""
    head, separator, body = raw.partition(b"\r\n\r\n")
    if not separator:
        return None, {}, None
    lines = head.decode("latin-1").split("\r\n")
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = unchunked(body)
    elif "content-length" in headers and len(body) < int(headers["content-length"]):
        body = None
    return int(lines[0].split()[1]), headers, body


def events_of(body):
    return [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]


def add_choice(choices, choice):
    into = choices.setdefault(
        choice["index"], {"tokens": [], "text": "", "thought": "", "numbers": [], "finish": None}
    )
    told = choice.get("delta") or choice.get("message") or {"content": choice.get("text")}
    into["tokens"] += choice.get("token_ids") or []
    into["text"] += told.get("content") or ""
    into["thought"] += told.get("reasoning_content") or ""
    numbers = choice.get("logprobs") or {}
    if "content" in numbers:
        into["numbers"] += [[n["token"], n["logprob"], n["top_logprobs"]] for n in numbers["content"] or []]
    elif numbers:
        # The shortest decimal that restores a float32 is the same exactly when the bits are.
        into["numbers"] += [list(n) for n in zip(
            numbers["tokens"], numbers["token_logprobs"], numbers["top_logprobs"] or itertools.repeat(None)
        )]  # fmt: skip
    into["finish"] = choice.get("finish_reason") or into["finish"]


def answer_of(body):
    """What must never change in an answer: (choices in order, error or None)."""
    choices, done = {}, False
    if not body.lstrip().startswith(b"{"):
        for event in events_of(body):
            if event.strip() == b"[DONE]":
                done = True
                continue
            value = json.loads(event)
            if "error" in value:
                return None, value["error"].get("message", "an error without a message")
            for choice in value["choices"]:
                add_choice(choices, choice)
        if not done:
            return None, "the stream ended without [DONE]"
    else:
        value = json.loads(body)
        if "error" in value:
            return None, value["error"].get("message", "an error without a message")
        for choice in value["choices"]:
            add_choice(choices, choice)
    return [choices[i] for i in sorted(choices)], None


def difference(expected, got):
    """One line about the first difference, None without any."""
    if len(expected) != len(got):
        return f"{len(expected)} choices expected, {len(got)} came"
    for index, (old, new) in enumerate(zip(expected, got)):
        for name in ("tokens", "numbers"):
            for at, (a, b) in enumerate(zip(old[name], new[name])):
                if a != b:
                    return f"choice {index}: {name}[{at}] is {b}, not {a}"
            if len(old[name]) != len(new[name]):
                return f"choice {index}: {len(new[name])} {name}, not {len(old[name])}"
        for name in ("text", "thought", "finish"):
            if old[name] != new[name]:
                return f"choice {index}: {name} is {new[name]!r}, not {old[name]!r}"
    return None


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
