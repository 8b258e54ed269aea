"""The openai client against a running cluster.

The fixture `server` has base_url ("http://host:port"), model (the served name) and state_dir.
"""

import concurrent.futures
import json
import math
import urllib.error
import urllib.request

import openai
import pytest

from running import wait_until


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.base_url + "/v1", api_key="none", max_retries=0, timeout=120)


def get(server, path):
    with urllib.request.urlopen(server.base_url + path, timeout=60) as response:
        return response.read().decode()


def post(server, path, body):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(server.base_url + path, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def metric(server, name):
    """The sum of a metric's series."""
    lines = [line for line in get(server, "/metrics").splitlines() if line.startswith(name + "{")]
    assert lines, f"{name} is not in /metrics"
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


CHAT = [{"role": "user", "content": "Define the word: river"}]


def test_models(client, server):
    models = client.models.list().data
    assert [model.id for model in models] == [server.model]
    assert client.models.retrieve(server.model).id == server.model


def test_a_chat_streamed_says_what_it_says_whole(client, server):
    args = dict(model=server.model, messages=CHAT, max_tokens=48, temperature=0)
    whole = client.chat.completions.create(**args)
    message = whole.choices[0].message
    assert message.role == "assistant"
    assert whole.choices[0].finish_reason in ("stop", "length")
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    reasoning, content, finish, usage = "", "", None, None
    for chunk in client.chat.completions.create(
        **args, stream=True, stream_options={"include_usage": True}
    ):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            content += choice.delta.content or ""
            finish = choice.finish_reason or finish
    assert content == (message.content or "")
    assert reasoning == (getattr(message, "reasoning_content", None) or "")
    assert content + reasoning
    assert finish == whole.choices[0].finish_reason
    assert usage == whole.usage


def test_a_completion_streamed_says_what_it_says_whole(client, server):
    args = dict(model=server.model, prompt="river", max_tokens=24, temperature=0, logprobs=2)
    whole = client.completions.create(**args).choices[0]
    text, tokens, logprobs = "", [], []
    for chunk in client.completions.create(**args, stream=True):
        text += chunk.choices[0].text
        if chunk.choices[0].logprobs:
            tokens += chunk.choices[0].logprobs.tokens
            logprobs += chunk.choices[0].logprobs.token_logprobs
    assert text == whole.text
    assert tokens == whole.logprobs.tokens
    assert logprobs == whole.logprobs.token_logprobs
    assert all(math.isfinite(value) and value <= 0 for value in logprobs)


def test_ids_lists_and_choices(client, server):
    _, encoded = post(server, "/tokenize", {"prompt": "river"})
    args = dict(model=server.model, max_tokens=4, temperature=0)
    text = client.completions.create(prompt="river", **args)
    ids = client.completions.create(prompt=encoded["tokens"], **args)
    assert ids.choices[0].text == text.choices[0].text
    assert ids.usage == text.usage
    both = client.completions.create(prompt=["river", "stone"], n=2, **args)
    assert [choice.index for choice in both.choices] == [0, 1, 2, 3]
    assert both.choices[0].text == both.choices[1].text == text.choices[0].text


def test_tokens_of_the_answer_come_back_as_ids(client, server):
    answer = client.completions.create(
        model=server.model, prompt="river", max_tokens=8, temperature=0,
        extra_body={"return_token_ids": True, "ignore_eos": True},
    )
    ids = answer.choices[0].model_extra["token_ids"]
    assert len(ids) == answer.usage.completion_tokens == 8


def test_echo_scores_the_prompt(client, server):
    for max_tokens in (0, 1):
        choice = client.completions.create(
            model=server.model, prompt="a small river", max_tokens=max_tokens, echo=True, logprobs=1,
            temperature=0,
        ).choices[0]
        logprobs = choice.logprobs
        _, encoded = post(server, "/tokenize", {"prompt": "a small river"})
        assert len(logprobs.tokens) == encoded["count"] + max_tokens
        assert logprobs.token_logprobs[0] is None
        assert all(value is not None and value <= 0 for value in logprobs.token_logprobs[1:])
        assert choice.text.startswith("a small river")


def test_a_seed_repeats(client, server):
    args = dict(model=server.model, messages=CHAT, max_tokens=16, temperature=1, seed=5)
    first = client.chat.completions.create(**args).choices[0].message
    assert client.chat.completions.create(**args).choices[0].message == first


def test_tokenize_and_back(server):
    status, encoded = post(server, "/tokenize", {"prompt": "héllo wörld", "add_special_tokens": False})
    assert status == 200
    assert encoded["count"] == len(encoded["tokens"]) > 0
    assert post(server, "/detokenize", {"tokens": encoded["tokens"]}) == (200, {"prompt": "héllo wörld"})


def test_64_streams_at_once(client, server):
    def stream(i):
        chunks = client.completions.create(
            model=server.model, prompt=f"word {i}", max_tokens=16, temperature=0, stream=True
        )
        return "".join(chunk.choices[0].text for chunk in chunks)

    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        texts = list(pool.map(stream, range(64)))
    for i in (0, 31, 63):
        alone = client.completions.create(
            model=server.model, prompt=f"word {i}", max_tokens=16, temperature=0
        )
        assert texts[i] == alone.choices[0].text


def test_an_aborted_stream_frees_its_blocks(client, server):
    wait_until(lambda: metric(server, "troupe:num_requests_running") == 0, "nothing runs")
    streams = [
        client.completions.create(
            model=server.model, prompt="river", max_tokens=400, stream=True,
            extra_body={"ignore_eos": True},
        )
        for _ in range(4)
    ]
    for stream in streams:
        next(iter(stream))
    wait_until(lambda: metric(server, "troupe:num_requests_running") > 0, "they run")
    for stream in streams:
        stream.close()
    wait_until(lambda: metric(server, "troupe:num_requests_running") == 0, "they run no more")
    wait_until(lambda: metric(server, "troupe:kv_cache_usage_perc") == 0, "their blocks are free")
    assert metric(server, "troupe:num_requests_waiting") == 0


@pytest.mark.parametrize(
    "body, param",
    [
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "a", "max_tokens": -1}, "max_tokens"),
        ({"prompt": "a", "temperature": "hot"}, "temperature"),
        ({"prompt": "a", "top_p": 2}, "top_p"),
        ({"prompt": [2**30]}, "prompt"),
        ({"prompt": "word " * 100000}, "prompt"),
        ({"prompt": "a", "logit_bias": {"1": 101}}, "logit_bias"),
    ],
)
def test_a_bad_field_is_named(server, body, param):
    status, answer = post(server, "/v1/completions", body)
    assert status == 400
    assert answer["error"]["param"] == param
    assert param in answer["error"]["message"]


@pytest.mark.parametrize(
    "body", [b"", b"nonsense", b'{"prompt": NaN}', b"[" * 10000, b'{"prompt": "\xff"}', b'{"prompt":1e999}']
)
def test_a_bad_body_is_refused(server, body):
    status, answer = post(server, "/v1/completions", body)
    assert status == 400
    assert answer["error"]["message"]


def test_what_is_not_there(client, server):
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="no-such-model", prompt="a")
    assert post(server, "/v1/nothing", {})[0] == 404


def test_health_and_status(server):
    assert json.loads(get(server, "/health"))["status"] == "ok"
    status = json.loads(get(server, "/cluster/status"))
    assert status["cluster"]["state"] == "ready"
