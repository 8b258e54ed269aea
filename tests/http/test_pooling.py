"""Embeddings and hidden states over HTTP, with the openai client and without."""

import base64
import json
import math
import struct
import urllib.request

import openai
import pytest

from running import DEMO, wait_until

WORDS = ["river", "a mountain that is far away", "zxq"]


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.base_url + "/v1", api_key="none", max_retries=0, timeout=120)


def ids_of(server, text):
    return server.cluster.post("/tokenize", {"prompt": text})[1]["tokens"]


def embed(server, **body):
    status, answer = server.cluster.post("/v1/embeddings", body)
    assert status == 200, answer
    return [item["embedding"] for item in answer["data"]]


def pool(server, **body):
    status, answer = server.cluster.post("/pooling", body)
    assert status == 200, answer
    return [item["data"] for item in answer["data"]]


def floats(text):
    data = base64.b64decode(text)
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def normalized(vector):
    length = math.sqrt(math.fsum(x * x for x in vector))
    return [x / length for x in vector]


def test_the_openai_client_gets_embeddings(client, server):
    # Without encoding_format the client asks for base64.
    packed = client.embeddings.create(model=server.model, input=WORDS, user="somebody")
    written = client.embeddings.create(model=server.model, input=WORDS, encoding_format="float")
    assert packed.object == "list" and packed.model == server.model
    assert [item.index for item in packed.data] == [0, 1, 2]
    for a, b in zip(packed.data, written.data, strict=True):
        assert a.object == "embedding"
        # JSON's shortest digits restore the float32.
        assert struct.pack(f"<{len(a.embedding)}f", *a.embedding) == struct.pack(
            f"<{len(b.embedding)}f", *b.embedding)  # fmt: skip
        assert abs(sum(x * x for x in a.embedding) - 1) < 1e-5
    count = sum(len(ids_of(server, word)) for word in WORDS)
    assert packed.usage.prompt_tokens == packed.usage.total_tokens == count
    one = client.embeddings.create(model=server.model, input=WORDS[1], encoding_format="float")
    assert one.data[0].embedding == written.data[1].embedding


def test_text_and_ids_and_lists_of_either_are_the_same_input(server):
    ids = [ids_of(server, word) for word in WORDS]
    expected = embed(server, input=WORDS)
    assert embed(server, input=ids) == expected
    assert embed(server, input=ids[0]) == embed(server, input=WORDS[0]) == expected[:1]
    bare = embed(server, input=WORDS[1], add_special_tokens=False)
    plain = server.cluster.post("/tokenize", {"prompt": WORDS[1], "add_special_tokens": False})[1]
    assert bare == embed(server, input=plain["tokens"])
    assert embed(server, input=ids[1], truncate_prompt_tokens=3) == embed(server, input=ids[1][-3:])


def test_pooling_gives_hidden_states(server):
    ids = ids_of(server, WORDS[1])
    raw = pool(server, input=ids, normalize=False)[0]
    assert len(raw) == len(ids) > 3
    width = len(raw[0])
    assert all(len(row) == width for row in raw)
    # A causal model: what comes behind changes nothing before it.
    assert pool(server, input=ids[:-1], normalize=False)[0] == raw[:-1]
    assert pool(server, input=ids, normalize=False, task="embed")[0] == raw[-1]
    for row, wanted in zip(pool(server, input=ids)[0], raw, strict=True):
        assert row == pytest.approx(normalized(wanted), abs=1e-6)
    assert embed(server, input=ids)[0] == pool(server, input=ids, task="embed")[0]
    packed = pool(server, input=ids, normalize=False, encoding_format="base64")[0]
    assert floats(packed) == [
        struct.unpack("<f", struct.pack("<f", x))[0] for row in raw for x in row]  # fmt: skip


def test_a_batch_is_bit_for_bit_what_each_is_alone_with_a_warm_cache_too(server):
    inputs = [[0, 300 + i, *range(100, 100 + 3 * i)] for i in range(40)]
    together = embed(server, input=inputs)
    for i in (0, 7, 39):
        assert embed(server, input=inputs[i])[0] == together[i]
        assert normalized(pool(server, input=inputs[i], normalize=False)[0][-1]) == pytest.approx(
            together[i], abs=1e-6)  # fmt: skip
    _, answer = server.cluster.post("/v1/embeddings", {"input": inputs[39]})
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


@pytest.mark.parametrize("path", ["/v1/embeddings", "/pooling"])
@pytest.mark.parametrize("body, param", [
    ({"input": []}, "input"),
    ({"input": ""}, None),  # The BOS is a token.
    ({"input": "", "add_special_tokens": False}, "input"),
    ({"input": [[1], []]}, "input"),
    ({"input": [1, "a"]}, "input"),
    ({"input": [99_999_999]}, "input"),
    ({"input": 7}, "input"),
    ({}, "input"),
    ({"input": [5] * 100_000}, "input"),
    ({"input": "word " * 100_000}, "input"),
    ({"input": ["a"] * 1025}, "input"),
    ({"input": "a", "dimensions": 4}, "dimensions"),
    ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
], ids=lambda value: json.dumps(value)[:40])  # fmt: skip
def test_bad_input_is_named(server, path, body, param):
    status, answer = server.cluster.post(path, body)
    if param is None:
        assert status == 200
        return
    assert status == 400, answer
    assert answer["error"]["param"] == param


def test_one_that_is_refused_among_many_leaves_nothing(server):
    before = server.cluster.status()["requests"]
    status, answer = server.cluster.post("/v1/embeddings", {"input": ["a", "b", [99_999_999]]})
    assert status == 400 and answer["error"]["param"] == "input"
    after = server.cluster.status()["requests"]
    assert (after["running"], after["waiting"]) == (0, 0) and after["failed"] == before["failed"]


def test_hidden_states_are_found_again(cluster):
    cluster.up(DEMO, workers=1)
    body = json.dumps({"input": WORDS}).encode()

    def ask(path, key="pooled"):
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        request = urllib.request.Request(cluster.base_url + path, body, headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.headers["X-Request-Id"], json.load(response)

    name, first = ask("/v1/embeddings")
    assert name.startswith("embd-") and first["id"] == name
    again, second = ask("/v1/embeddings")
    assert (again, second["data"], second["usage"]) == (name, first["data"], first["usage"])
    # What has ended is counted a little later, and in order: the second was not computed.
    ask("/v1/embeddings", "another")
    wait_until(lambda: cluster.status()["requests"]["finished"] >= 2 * len(WORDS), "both are counted")
    assert cluster.status()["requests"]["finished"] == 2 * len(WORDS)
    with pytest.raises(urllib.error.HTTPError, match="422"):
        ask("/pooling")
    with urllib.request.urlopen(f"{cluster.base_url}/v1/requests/{name}") as response:
        found = json.load(response)
    assert found["status"] == "finished" and found["data"] == first["data"]
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(f"{cluster.base_url}/v1/requests/{name}/events?from=0")


def test_metrics_count_its_prompt_and_no_answer(server):
    def metric(name):
        with urllib.request.urlopen(server.base_url + "/metrics") as response:
            lines = response.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{"))

    before = metric("troupe:prompt_tokens_total"), metric("troupe:generation_tokens_total")
    embed(server, input=[[5, 6, 7], [8]])
    assert metric("troupe:prompt_tokens_total") == before[0] + 4
    assert metric("troupe:generation_tokens_total") == before[1]
