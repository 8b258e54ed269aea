"""Requests of every kind, and what must never change in their answers."""

import itertools
import json
import random

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
