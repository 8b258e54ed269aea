"""Requests of every kind, and what must never change in their answers."""

import itertools
import json
import random

KNOWN = "brandy valet river anchor candle garden mirror saddle violin harbor basket copper".split()


def made_up_word(rng):
    return "".join(rng.choice("zxqvkjwbmg") + rng.choice("aeiouy") for _ in range(rng.randint(2, 4)))


def make_requests(seed, count, longest_prompt=2500):
    """Requests of every kind, the same for the same seed. The demo model leads by several nats on
    what it knows, so most are no chat, or go on past its end, sampled hot: there a changed bit changes
    tokens.

    A request with `abort_after` is one whose client goes away after so many events with tokens."""
    rng = random.Random(seed)
    return [{"key": key, **make_request(rng, key, longest_prompt)} for key in range(count)]


def make_request(rng, key, longest_prompt):
    word = made_up_word(rng)
    long = rng.randint(80, 500)
    hot = {"temperature": 1, "top_p": 1, "seed": rng.randrange(1 << 40)}
    penalties = {"repetition_penalty": 1.2, "presence_penalty": 0.3, "frequency_penalty": 0.2}
    common = {"stream": True, "return_token_ids": True}
    counted = {"stream_options": {"include_usage": True}}
    endless = {"ignore_eos": True}
    chat, text = "/v1/chat/completions", "/v1/completions"

    def ask(content, **fields):
        return {"path": chat, "body": {"messages": [{"role": "user", "content": content}],
                                       **(common | fields)}}  # fmt: skip

    def go_on(prompt, **fields):
        return {"path": text, "body": {"prompt": prompt, **(common | fields)}}

    schema = {
        "type": "object",
        "properties": {
            "word": {"type": "string", "maxLength": 40},
            "kind": {"enum": ["noun", "verb", "adjective"]},
            "senses": {"type": "array", "items": {"type": "string", "maxLength": 60}, "maxItems": 4},
        },
        "required": ["word", "kind", "senses"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "entry", "schema": schema}}
    json_answer = {"response_format": form}

    def some_ids(least, most):
        return [0, *(rng.randrange(6, 4000) for _ in range(rng.randint(least, most)))]

    ids = some_ids(3, 200)
    kinds = [
        lambda: ask(f"What is a {word}?", max_tokens=long, **hot, logprobs=True, **endless),
        lambda: go_on(f"The {word} of {made_up_word(rng)} ", max_tokens=long, **hot, logprobs=2, **endless,
                      **counted),
        lambda: go_on(ids, max_tokens=long, temperature=0, logprobs=0, **endless),
        lambda: ask(f"What is {rng.choice(KNOWN)}?", max_tokens=60, temperature=0, logprobs=True, **counted),
        lambda: go_on(f"{word} ", max_tokens=long, **hot, **endless)
        | ({"abort_after": rng.randint(1, long)} if second else {}),
        # What depends on the tokens so far must survive a replay too.
        lambda: go_on(f"{word} {rng.choice(KNOWN)} ", max_tokens=long, **hot, logprobs=0, **endless,
                      **penalties, min_p=0.01, **counted),
        lambda: go_on(ids[: rng.randint(2, 20)], max_tokens=long // 2, n=2, **(hot | {"top_k": 50}),
                      logprobs=0, **endless),
        lambda: ask(f"Define {word}.", max_tokens=long, **hot, stream=bool(second), logprobs=True,
                    stop=[f" {rng.choice(KNOWN)}", " of the"]),
        # Echoes, and several choices that share them.
        lambda: go_on(some_ids(longest_prompt // 20, longest_prompt // 5), max_tokens=long // 4, n=3, **hot,
                      echo=True, logprobs=2, **endless, **counted),
        lambda: ask(f"Tell of {word} and {rng.choice(KNOWN)}.", max_tokens=long // 2, n=2, **hot,
                    logprobs=True, top_logprobs=5, **endless, **counted)
        | ({"abort_after": rng.randint(1, long)} if not second else {}),
        lambda: go_on(some_ids(longest_prompt // 2, longest_prompt), max_tokens=long // 8, temperature=0,
                      logprobs=1, **endless, **counted)
        | ({"abort_after": 1} if not second else {}),
        lambda: go_on(f"{word} is {made_up_word(rng)} ", max_tokens=long // 2, n=3, **hot, echo=True,
                      logprobs=1, **penalties, stream=False, stop=[" the", f" {rng.choice(KNOWN)}"]),
        # What may come next is a matter of all that came before.
        lambda: ask(f"Define {word} as JSON.", max_tokens=long, **hot, n=2, logprobs=True, **json_answer),
        lambda: go_on(f"{word} in numbers: ", max_tokens=long, **hot, logprobs=0,
                      guided_regex=r"(\d{1,3}(,\d{3})*(\.\d+)?; )+", logit_bias={"42": 2}, min_tokens=5),
    ]  # fmt: skip
    second = key // len(kinds) % 2
    return kinds[key % len(kinds)]()


# --- Reading answers --------------------------------------------------------------------------


def unchunked(body):
    """(what a chunked HTTP body holds, whether it is all there)."""
    parts, at = [], 0
    while (end := body.find(b"\r\n", at)) >= 0:
        size = int(body[at:end].split(b";")[0], 16)
        if size == 0:
            return b"".join(parts), True
        parts.append(body[end + 2 : end + 2 + size])
        at = end + 2 + size + 2
    return b"".join(parts), False


def read_response(raw):
    """(status, headers, body, whether the answer is all there)."""
    head, separator, body = raw.partition(b"\r\n\r\n")
    if not separator:
        return None, {}, b"", False
    lines = head.decode("latin-1").split("\r\n")
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    whole = True
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body, whole = unchunked(body)
    elif "content-length" in headers:
        whole = len(body) >= int(headers["content-length"])
    return int(lines[0].split()[1]), headers, body, whole


def events_of(body):
    return [line[6:].strip() for line in body.split(b"\n") if line.startswith(b"data: ")]


def add_choice(choices, choice, prompt):
    into = choices.setdefault(str(choice["index"]), {"prompt": [], "tokens": [], "text": "", "thought": "",
                                                "numbers": [], "finish": []})  # fmt: skip
    told = choice.get("delta") or choice.get("message") or {"content": choice.get("text")}
    into["prompt"] += prompt or choice.get("prompt_token_ids") or []
    into["tokens"] += choice.get("token_ids") or []
    into["text"] += told.get("content") or ""
    into["thought"] += told.get("reasoning_content") or ""
    numbers = choice.get("logprobs") or {}
    if "content" in numbers:
        into["numbers"] += [[n["token"], n["logprob"], n["top_logprobs"]] for n in numbers["content"] or []]
    elif numbers:
        # The shortest decimal that restores a float32 is the same exactly when the bits are.
        into["numbers"] += [list(n) for n in zip(
            numbers["tokens"], numbers["token_logprobs"], numbers["top_logprobs"] or itertools.repeat(None),
            numbers["text_offset"],
        )]  # fmt: skip
    into["finish"] += [choice["finish_reason"]] if choice.get("finish_reason") else []


def answer_of(body, whole=True):
    """What must never change in an answer: ({"choices", "usage"}, why it is none or None). Of an answer
    that is not whole, what had come of it."""
    streamed = not body.lstrip().startswith(b"{")
    if not streamed and not whole:
        return {"choices": {}, "usage": []}, None
    events = events_of(body if whole else body[: body.rfind(b"\n\n") + 1]) if streamed else [body]
    ends = [at for at, event in enumerate(events) if event == b"[DONE]"]
    if streamed and whole and ends != [len(events) - 1]:
        return None, f"{len(ends)} times [DONE] in {len(events)} events, not once in the end"
    choices, usage = {}, []
    for value in (json.loads(event) for event in events if event != b"[DONE]"):
        if "error" in value:
            return None, value["error"].get("message", "an error without a message")
        if value.get("usage"):
            # What was found in the prefix cache depends on who came before.
            usage.append({k: v for k, v in value["usage"].items() if k != "prompt_tokens_details"})
        for choice in value["choices"]:
            add_choice(choices, choice, value.get("prompt_token_ids"))
    return {"choices": choices, "usage": usage}, None


def begun(expected, got):
    """What is expected, as far as an answer that was not waited for has come."""
    choices = {
        index: {name: part[: len(new[name])] for name, part in expected["choices"][index].items()}
        for index, new in got["choices"].items() if index in expected["choices"]
    }  # fmt: skip
    return {"choices": choices, "usage": expected["usage"][: len(got["usage"])]}


def difference(expected, got):
    """One line about the first difference, None without any."""
    if set(expected["choices"]) != set(got["choices"]):
        return f"choices {sorted(expected['choices'])} expected, {sorted(got['choices'])} came"
    for index, old in expected["choices"].items():
        new = got["choices"][index]
        for name in ("prompt", "tokens", "numbers"):
            for at, (a, b) in enumerate(zip(old[name], new[name])):
                if a != b:
                    return f"choice {index}: {name}[{at}] is {b}, not {a}"
            if len(old[name]) != len(new[name]):
                return f"choice {index}: {len(new[name])} {name}, not {len(old[name])}"
        for name in ("text", "thought", "finish"):
            if old[name] != new[name]:
                return f"choice {index}: {name} is {new[name]!r}, not {old[name]!r}"
    if expected["usage"] != got["usage"]:
        return f"the usage is {got['usage']}, not {expected['usage']}"
    return None
