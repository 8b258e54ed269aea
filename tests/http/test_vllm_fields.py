"""Fields that vLLM, OpenAI and DeepSeek have beside the common ones, with the openai client."""

import json
import urllib.error
import urllib.request

import openai
import pytest

CHAT = [{"role": "user", "content": "Define the word: river"}]
EOS = "<｜end▁of▁sentence｜>"


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.base_url + "/v1", api_key="none", max_retries=0, timeout=120)


def get(server, path):
    with urllib.request.urlopen(server.base_url + path, timeout=60) as response:
        return response.read().decode()


def again(server, answer):
    return json.loads(get(server, f"/v1/requests/{answer.id}"))


def told_from(server, answer, count):
    """The text of what follows that many tokens."""
    events = get(server, f"/v1/requests/{answer.id}/events?from={count}").split("\n\n")
    data = [event.split("data: ", 1)[1] for event in events if "data: " in event]
    assert data.pop() == "[DONE]"
    return "".join(json.loads(item)["choices"][0]["text"] for item in data)


def detokenize(server, tokens):
    status, answer = server.cluster.post("/detokenize", {"tokens": tokens})
    assert status == 200, answer
    return answer["prompt"]


def test_thoughts_are_counted_the_same_in_every_way_to_read_them(client, server):
    args = dict(model=server.model, messages=CHAT, max_tokens=200, temperature=0)
    raw = client.chat.completions.create(**args, extra_body={"return_token_ids": True})
    ids = raw.choices[0].model_extra["token_ids"]
    end = server.cluster.post("/tokenize", {"prompt": "</think>", "add_special_tokens": False})[1]["tokens"]
    assert len(end) == 1
    thought = raw.usage.completion_tokens_details.reasoning_tokens
    assert thought == ids.index(end[0]) > 0
    assert again(server, raw)["usage"]["completion_tokens_details"] == {"reasoning_tokens": thought}

    def streamed(**more):
        return [chunk.usage for chunk in client.chat.completions.create(
            **{**args, **more}, stream=True,
            stream_options={"include_usage": True, "continuous_usage_stats": True})]

    usages = streamed()
    assert usages[-1].completion_tokens == len(ids)
    assert usages[-1].completion_tokens_details.reasoning_tokens == thought
    assert all(usage.prompt_tokens == raw.usage.prompt_tokens for usage in usages)
    # So many that they do not come at once, however busy the machine is.
    counts = [usage.completion_tokens for usage in streamed(max_tokens=2000, extra_body={"ignore_eos": True})]
    assert counts == sorted(counts) and len(set(counts)) > 3


def test_special_tokens_and_what_ends_an_answer_are_shown_to_all_readers(client, server):
    # Nothing may come but the token that ends an answer, after one more.
    args = dict(model=server.model, prompt="river", max_tokens=40, temperature=0)
    plain = client.completions.create(**args).choices[0].text
    word = plain.split()[-2]
    for stop, body, wanted in [
        (word, {}, plain[:plain.index(word)]),
        (word, {"include_stop_str_in_output": True}, plain[:plain.index(word) + len(word)]),
        (None, {"skip_special_tokens": False, "allowed_token_ids": [1]}, ""),
        (None, {"skip_special_tokens": False, "allowed_token_ids": [1], "ignore_eos": True,
                "stop_token_ids": [1], "include_stop_str_in_output": True}, EOS),
        (None, {"allowed_token_ids": [1], "include_stop_str_in_output": True}, ""),
        (None, {"skip_special_tokens": False, "allowed_token_ids": [0], "max_tokens": 2}, None),
    ]:
        answer = client.completions.create(**args, stop=stop, extra_body=body)
        text = answer.choices[0].text
        if wanted is None:
            wanted = detokenize(server, [0, 0])
        else:
            assert answer.choices[0].finish_reason == "stop"
        assert text == wanted, body
        streamed = client.completions.create(**args, stop=stop, extra_body=body, stream=True)
        assert "".join(chunk.choices[0].text for chunk in streamed) == wanted, body
        assert again(server, answer)["choices"][0]["text"] == wanted, body
        assert told_from(server, answer, 0) == wanted, body
        assert wanted.endswith(told_from(server, answer, 1)), body
    with pytest.raises(urllib.error.HTTPError) as refused:
        told_from(server, answer, 999999)
    error = json.load(refused.value)["error"]
    assert refused.value.code == 400 and error["param"] == "from" and "999999" in error["message"]


def test_an_answer_goes_on_with_the_last_message(client, server):
    def ask(messages, **body):
        return client.chat.completions.create(
            model=server.model, messages=messages, max_tokens=8, temperature=0,
            extra_body={"return_token_ids": True, **body})

    def prompt(answer):
        return detokenize(server, answer.model_extra["prompt_token_ids"])

    before = prompt(ask(CHAT, add_generation_prompt=False))
    assert before.endswith(CHAT[0]["content"])
    last = {"role": "assistant", "content": "a large natural"}
    for answer in (ask([*CHAT, last], continue_final_message=True, add_generation_prompt=False),
                   ask([*CHAT, {**last, "prefix": True}])):
        assert prompt(answer) == before + "<｜Assistant｜>a large natural"
        # It is what a completion of that text is; a chat also shows a tag that comes where none belongs.
        same = client.completions.create(model=server.model, max_tokens=8, temperature=0,
                                         prompt=answer.model_extra["prompt_token_ids"])
        wanted = answer.choices[0].message.content
        assert wanted.replace("</think>", "") == same.choices[0].text
        assert not answer.choices[0].message.reasoning_content
        assert again(server, answer)["choices"][0]["message"]["content"] == wanted

    thought = {**last, "content": "", "reasoning_content": "A river", "prefix": True}
    answer = ask([*CHAT, thought])
    assert prompt(answer) == before + "<｜Assistant｜><think>\nA river"
    assert answer.choices[0].message.reasoning_content
    assert again(server, answer)["choices"][0]["message"] == answer.choices[0].message.to_dict()
    with pytest.raises(openai.BadRequestError, match="assistant"):
        ask(CHAT, continue_final_message=True)


def test_a_prompts_log_probabilities_are_those_of_its_echo(client, server):
    args = dict(model=server.model, prompt="a small river", max_tokens=1, temperature=0)
    echoed = client.completions.create(**args, echo=True, logprobs=2).choices[0].logprobs
    answer = client.completions.create(**args, extra_body={"prompt_logprobs": 2, "return_token_ids": True})
    ids = answer.choices[0].model_extra["prompt_token_ids"]
    told = answer.choices[0].model_extra["prompt_logprobs"]
    assert len(told) == len(ids) and told[0] is None
    for place, token in list(enumerate(ids))[1:]:
        own = told[place][str(token)]
        assert own["logprob"] == echoed.token_logprobs[place]
        assert own["decoded_token"] == echoed.tokens[place]
        ranks = sorted(entry["rank"] for entry in told[place].values() if entry["rank"])
        assert ranks == [1, 2]
        assert 2 <= len(told[place]) <= 3
    assert again(server, answer)["choices"][0]["prompt_logprobs"] == told
    chat = client.chat.completions.create(model=server.model, messages=CHAT, max_tokens=1,
                                          extra_body={"prompt_logprobs": 0})
    told = chat.model_extra["prompt_logprobs"]
    assert len(told) == chat.usage.prompt_tokens
    assert told[0] is None and all(len(entry) == 1 for entry in told[1:])


def test_every_token_of_log_probabilities_has_an_entry_of_its_own(client, server):
    face = server.cluster.post("/tokenize", {"prompt": "🙂", "add_special_tokens": False})[1]["tokens"]
    parts = [token for token in face if bytes_of(server, token) is None]
    assert len(parts) > 1  # of one character
    args = dict(model=server.model, temperature=0, max_tokens=2,
                extra_body={"allowed_token_ids": parts, "ignore_eos": True})
    whole = client.completions.create(**args, prompt="🙂", echo=True, logprobs=20).choices[0].logprobs
    streamed = [chunk.choices[0].logprobs for chunk in client.completions.create(
        **args, prompt="🙂", echo=True, logprobs=20, stream=True) if chunk.choices[0].logprobs]
    for name in ("tokens", "token_logprobs", "top_logprobs"):
        assert sum((getattr(some, name) for some in streamed), []) == getattr(whole, name)
    for token, logprob, top in list(zip(whole.tokens, whole.token_logprobs, whole.top_logprobs))[1:]:
        assert top[token] == logprob
        assert 20 <= len(top) <= 21
    face_bytes = b"".join(shown_bytes(name) for name in whole.tokens[-2 - len(face):-2])
    assert face_bytes.decode().strip() == "🙂"
    assert all(name.startswith("bytes:\\x") for name in whole.tokens[-2:])
    chat = client.chat.completions.create(**args, messages=CHAT, logprobs=True, top_logprobs=20)
    for token in chat.choices[0].logprobs.content:
        assert shown_bytes(token.token) == bytes(token.bytes)
        assert len(token.top_logprobs) == 20


def bytes_of(server, token):
    """Of a token that is a text; None: it is a part of a character."""
    text = server.cluster.post("/detokenize", {"tokens": [token]})[1]["prompt"]
    return None if "\N{REPLACEMENT CHARACTER}" in text else text.encode()


def shown_bytes(name):
    part = name.removeprefix("bytes:")
    return name.encode() if part == name else bytes.fromhex(part.replace("\\x", ""))


def test_more_tokens_than_the_context_leaves_are_refused(client, server):
    size = client.models.list().data[0].model_extra["max_model_len"]
    chat = dict(model=server.model, messages=CHAT)
    prompt = client.chat.completions.create(**chat, max_tokens=1).usage.prompt_tokens
    for field in ("max_tokens", "max_completion_tokens"):
        with pytest.raises(openai.BadRequestError, match=f"is {size}, .* {prompt} tokens.* holds {size},"):
            client.chat.completions.create(**chat, **{field: size})
    with pytest.raises(openai.BadRequestError, match=f"at most {size - prompt} "):
        client.chat.completions.create(**chat, max_tokens=size - prompt + 1)
    with pytest.raises(openai.BadRequestError, match=f"at most {size - 1} "):
        client.completions.create(model=server.model, prompt=[5], max_tokens=size)
    # What is not asked for is what is left.
    prompt = [5] * (size - 3)
    answer = client.completions.create(model=server.model, prompt=prompt, extra_body={"ignore_eos": True})
    assert answer.usage.completion_tokens == 3


def test_the_best_of_several_is_the_one_with_the_highest_mean(client, server):
    args = dict(model=server.model, prompt="river", max_tokens=12, temperature=1, seed=7)
    every = client.completions.create(**args, n=4, logprobs=0).choices

    def mean(choice):
        return sum(choice.logprobs.token_logprobs) / len(choice.logprobs.token_logprobs)

    ranked = [choice.text for choice in sorted(every, key=mean, reverse=True)]
    assert len(set(ranked)) == 4
    best = client.completions.create(**args, n=2, best_of=4)
    assert [choice.text for choice in best.choices] == ranked[:2]
    assert best.choices[0].logprobs is None
    assert best.usage.completion_tokens == sum(len(c.logprobs.token_logprobs) for c in every)
    assert [choice["text"] for choice in again(server, best)["choices"]] == ranked[:2]


def test_a_prompt_keeps_its_last_tokens(client, server):
    args = dict(model=server.model, max_tokens=4, temperature=0)
    ids = server.cluster.post("/tokenize", {"prompt": "a small wide river"})[1]["tokens"]
    short = client.completions.create(prompt=ids[-2:], echo=True, **args)
    cut = client.completions.create(prompt="a small wide river", echo=True, **args,
                                    extra_body={"truncate_prompt_tokens": 2})
    assert cut.choices[0].text == short.choices[0].text
    assert cut.usage == short.usage
    assert again(server, cut)["choices"][0]["text"] == short.choices[0].text
    whole = client.completions.create(prompt="word " * 100_000, **args,
                                      extra_body={"truncate_prompt_tokens": -1})
    assert whole.usage.prompt_tokens == 4096 - 4


def test_rules_for_tokens_go_with_all_of_this(client, server):
    rules = {"min_tokens": 3, "stop_token_ids": [1], "bad_words": ["sea"], "logit_bias": {"300": -5},
             "allowed_token_ids": list(range(2000))}
    body = {"prompt": "river", "max_tokens": 6, "temperature": 0, "n": 1, "best_of": 2,
            "prompt_logprobs": 1, "truncate_prompt_tokens": 2, "skip_special_tokens": False,
            "include_stop_str_in_output": True, "stop": ["zz"], "echo": True, "logprobs": 1, **rules}
    status, answer = server.cluster.post("/v1/completions", body)
    assert status == 200, answer
    assert answer["usage"]["completion_tokens"] >= 6
    chat = {"messages": [*CHAT, {"role": "assistant", "content": "a", "prefix": True}], "max_tokens": 6,
            "temperature": 0, "prompt_logprobs": 1, "skip_special_tokens": False, **rules}
    status, answer = server.cluster.post("/v1/chat/completions", chat)
    assert status == 200, answer
    assert answer["usage"]["completion_tokens"] >= 3


def test_the_tokens_of_a_chat_are_those_that_the_model_sees(client, server):
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    cases = [
        {"messages": CHAT},
        {"messages": [*CHAT, {"role": "assistant", "content": "So"}], "continue_final_message": True},
        {"messages": CHAT, "add_generation_prompt": False},
        {"messages": CHAT, "tools": [tool], "tool_choice": "none"},
    ]
    for fields in cases:
        status, told = server.cluster.post("/tokenize", fields | {"return_token_strs": True})
        assert status == 200, told
        answer = client.chat.completions.create(
            model=server.model,
            max_tokens=1,
            messages=fields["messages"],
            extra_body={k: v for k, v in fields.items() if k != "messages"} | {"return_token_ids": True},
        )
        assert told["tokens"] == answer.prompt_token_ids
        assert told["count"] == len(told["token_strs"]) == answer.usage.prompt_tokens
        assert "".join(told["token_strs"]) == detokenize(server, told["tokens"])
