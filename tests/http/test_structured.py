"""Answers that must look like something: whatever the model says, what ends with `stop` is valid."""

import itertools
import json
import re
import time
import urllib.request
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import jsonschema
import openai
import pydantic
import pytest

import running
from streams import Missed, arranged


class Sense(pydantic.BaseModel):
    text: str = pydantic.Field(max_length=40)
    kind: str = pydantic.Field(pattern="^(noun|verb)$")


class Entry(pydantic.BaseModel):
    word: str = pydantic.Field(max_length=20)
    rank: int = pydantic.Field(ge=-5, le=1200)
    senses: list[Sense] = pydantic.Field(min_length=1, max_length=2)
    note: str | None = pydantic.Field(default=None, max_length=30)


SCHEMAS = {
    "entry": Entry.model_json_schema(),
    "enum": {"enum": ["noun", "verb", 3, None, {"a": [1, "b"]}]},
    "numbers": {"type": "array", "items": {"type": "number", "minimum": 0, "exclusiveMaximum": 10},
                "minItems": 2, "maxItems": 4},
    "tree": {"$defs": {"node": {"type": "object", "properties": {
                "name": {"type": "string", "maxLength": 8},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2}},
                "required": ["name"], "additionalProperties": False}},
             "$ref": "#/$defs/node"},
    "map": {"type": "object", "additionalProperties": {"type": "boolean"}, "maxProperties": 3},
}  # fmt: skip
HOT = {"temperature": 1.5, "top_p": 1, "max_tokens": 400}
CHAT = [{"role": "user", "content": "Define the word: river"}]


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.base_url + "/v1", api_key="none", max_retries=0, timeout=120)


def post(server, path, body):
    request = urllib.request.Request(server.base_url + path, json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})  # fmt: skip
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def formatted(schema):
    return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}


def answers_that_ended(client, server, schema, seeds):
    """How many of four a seed; they are valid."""
    ended = 0
    for seed in range(seeds):
        answer = client.chat.completions.create(model=server.model, messages=CHAT, n=4, seed=seed,
                                                response_format=formatted(schema), **HOT)  # fmt: skip
        for choice in answer.choices:
            if choice.finish_reason != "stop":
                assert choice.finish_reason == "length"
                continue
            ended += 1
            jsonschema.Draft202012Validator(schema).validate(json.loads(choice.message.content))
    return ended


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_answer_that_ends_is_valid(client, server, name):
    assert answers_that_ended(client, server, SCHEMAS[name], seeds=3) > 0


@pytest.mark.long
def test_answers_end_where_their_schemas_bound_them(client, server):
    bounded = [schema for name, schema in SCHEMAS.items() if name != "map"]
    ended = sum(answers_that_ended(client, server, schema, seeds=8) for schema in bounded)
    assert ended >= 0.95 * 32 * len(bounded)


def test_a_grammar_may_begin_with_the_thought(client, server):
    """Of a chat whose template opens the thought, what is held to it is the thought, which nothing ends."""
    kind = {"regex": "(brook|stream) of water", "enable_in_reasoning": True}
    answer = client.chat.completions.create(model=server.model, messages=CHAT, seed=1, **HOT,
                                            extra_body={"structured_outputs": kind})  # fmt: skip
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "stop" and not message.content
    assert re.fullmatch(kind["regex"], message.reasoning_content)


def test_the_other_names_of_it(client, server):
    def ask(**fields):
        answer = client.completions.create(model=server.model, prompt="A river is", seed=5, **HOT,
                                           extra_body=fields)  # fmt: skip
        assert answer.choices[0].finish_reason == "stop", fields
        return answer.choices[0].text

    schema = SCHEMAS["entry"]
    texts = [ask(guided_json=schema), ask(guided_json=json.dumps(schema)),
             ask(structured_outputs={"json": schema}), ask(response_format=formatted(schema))]  # fmt: skip
    assert len(set(texts)) == 1, "one schema is one grammar"
    free = client.completions.create(
        model=server.model, prompt="A river is", seed=9, max_tokens=60, temperature=1,
        extra_body={"response_format": {"type": "json_object"}})  # fmt: skip
    assert free.choices[0].text.startswith("{")
    pattern = r"[a-f]{2,6}-\d+(\.\d\d)?"
    assert re.fullmatch(pattern, ask(guided_regex=pattern))
    assert ask(guided_choice=["a brook", "a stream of water"]) in ["a brook", "a stream of water"]
    grammar = 'root ::= some "c"\nsome ::= "ab"{1,9}'
    assert re.fullmatch(r"(ab){1,9}c", ask(guided_grammar=grammar))
    # SGLang's names, and llama.cpp's.
    assert {ask(json_schema=schema), ask(json_schema=json.dumps(schema))} == {texts[0]}
    assert ask(regex=pattern) == ask(guided_regex=pattern)
    assert ask(ebnf=grammar) == ask(grammar=grammar) == ask(guided_grammar=grammar)
    with pytest.raises(openai.BadRequestError, match="ebnf cannot be used together with regex"):
        ask(regex=pattern, ebnf=grammar)


def test_what_no_token_can_meet_is_the_clients_error(client, server):
    """Which it is told once: its client tries a server's errors again."""
    for fields in ({"guided_regex": "zq", "allowed_token_ids": [5]},
                   {"guided_choice": ["yes"], "bad_words": list("yes") + ["ye", "es", "yes"]}):  # fmt: skip
        with pytest.raises(openai.BadRequestError, match="No token of the model may come next"):
            client.completions.create(model=server.model, prompt="A", max_tokens=8, extra_body=fields)


def held_by_none(ask_large, ask_small, count=5):
    """A small request is answered before most of the large ones, once the first of these is."""
    taken = itertools.count()

    def ask_all():
        with ThreadPoolExecutor(count) as askers:
            asked = [askers.submit(ask_large, next(taken)) for _ in range(count)]
            wait(asked, return_when=FIRST_COMPLETED)
            ask_small()
            done = sum(one.done() for one in asked)
            assert all(one.result()["choices"] for one in asked)
        if done > count // 2:
            raise Missed(f"{done} large ones were answered before the small one")

    arranged(ask_all)


def test_a_schema_that_takes_long_holds_nobody_else(server):
    names = {f"p{i}": {"$ref": "#"} for i in range(1200)}

    def ask(i):
        schema = {"type": "object", "properties": {f"first{i}": {"type": "null"}, **names}}
        return post(server, "/v1/completions", {"prompt": "A", "max_tokens": 1, "guided_json": schema})

    held_by_none(ask, lambda: post(server, "/v1/completions", {"prompt": "A", "max_tokens": 1}))


def test_large_grammars_hold_no_small_one(server):
    def ask(grammar):
        return post(server, "/v1/completions", {"prompt": "A", "max_tokens": 1, "guided_grammar": grammar})

    def large(i):
        names = [f"r{i}x{j}" for j in range(12000)]
        return ask(f"root ::= {' | '.join(names)}\n" + "".join(f'{n} ::= "{n}" [a-z]*\n' for n in names))

    held_by_none(large, lambda: ask('root ::= "a"+'))


def test_a_stream_says_what_the_whole_answer_says(client, server):
    asked = {"model": server.model, "messages": CHAT, "seed": 3, **HOT,
             "response_format": formatted(SCHEMAS["entry"])}  # fmt: skip
    whole = client.chat.completions.create(**asked).choices[0].message.content

    def in_pieces():
        chunks = client.chat.completions.create(stream=True, **asked)
        pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
        assert "".join(pieces) == whole
        # A reader that was late gets several tokens at once.
        if len(pieces) <= 5:
            raise Missed(f"it came in {len(pieces)} pieces")

    arranged(in_pieces)


def test_the_client_parses_into_its_own_type(client, server):
    parsed = client.beta.chat.completions.parse(
        model=server.model, messages=CHAT, response_format=Entry, seed=1, **HOT
    )
    assert isinstance(parsed.choices[0].message.parsed, Entry)


@pytest.mark.parametrize(
    "schema, word",
    [
        ({"type": "array", "items": {"type": "object"}, "uniqueItems": True}, "uniqueItems"),
        ({"properties": {"a": {"type": "array", "items": {"$dynamicRef": "#b"}}}}, "#/properties/a/items"),
        ({"$ref": "#"}, "$ref"),
        ({"$ref": "https://example.com/schema"}, "$ref"),
        ({"type": "string", "minLength": 5, "maxLength": 4}, "no value"),
        ({"type": "string", "pattern": "(?=a)b"}, "pattern"),
        ({"type": "text"}, "type"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_kept_is_refused_by_name(client, server, schema, word):
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model=server.model, messages=CHAT, response_format=formatted(schema))
    assert word in str(refused.value) and refused.value.param == "response_format"
    assert "response_format.json_schema.schema: " in str(refused.value)


@pytest.mark.parametrize("field, value, message", [
    ("guided_regex", "a(", "guided_regex: regular expression, character 3: "),
    ("guided_grammar", "root ::= (\n", "guided_grammar: line 1, column 10: "),
    ("structured_outputs", {"grammar": "a ::= b"}, "structured_outputs.grammar: line 1, column 7: "),
    ("guided_json", {"type": "x"}, "guided_json: #: there is no type"),
])  # fmt: skip
def test_what_is_wrong_with_a_format_names_the_field(client, server, field, value, message):
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model=server.model, prompt="x", extra_body={field: value})
    assert message in str(refused.value) and refused.value.param == field


def test_a_regular_expression_of_many_texts(client, server):
    words = [f"w{i}" for i in range(5000)]
    answer = client.completions.create(model=server.model, prompt="x", seed=1, **HOT,
                                       extra_body={"guided_regex": "|".join(words)})  # fmt: skip
    assert answer.choices[0].finish_reason == "stop" and answer.choices[0].text in words


def test_rules_for_single_tokens(client, server):
    def ask(seed=1, **fields):
        answer = client.completions.create(
            model=server.model, prompt="A river is", seed=seed, temperature=1, top_p=1, max_tokens=40,
            extra_body={"return_token_ids": True, **fields})  # fmt: skip
        return answer.choices[0].model_extra["token_ids"], answer.choices[0]

    free, _ = ask(ignore_eos=True)
    assert len(free) == 40
    forced, choice = ask(logit_bias={str(free[3]): 100})
    assert set(forced) == {free[3]} and choice.finish_reason == "length"
    without, _ = ask(logit_bias={str(id): -100 for id in set(free)}, ignore_eos=True)
    assert not set(without) & set(free)
    some, _ = ask(allowed_token_ids=free[:5], ignore_eos=True)
    assert set(some) <= set(free[:5])
    stopped, choice = ask(stop_token_ids=[free[6]], ignore_eos=True)
    assert choice.finish_reason == "stop" and stopped == free[: free.index(free[6]) + 1]
    for seed in range(5):
        tokens, _ = ask(seed=seed, min_tokens=30, guided_regex="[a-z ]*")
        assert len(tokens) >= 30
    letter = next(c for c in ask(ignore_eos=True)[1].text if c.isalpha())
    tokens, choice = ask(stop=[letter], min_tokens=20, ignore_eos=True)
    assert len(tokens) >= 20
    words = {id: post(server, "/detokenize", {"tokens": [id]})["prompt"] for id in set(free)}
    bad = next(id for id in free if words[id].startswith(" ") and words[id][1:].isalpha())
    assert bad not in ask(bad_words=[words[bad].strip()], ignore_eos=True)[0]


def test_answers_under_rules_are_the_same_when_they_are_preempted(troupe):
    """A cache for a few sequences: others give their blocks up and are computed again, rules and all."""
    text = {"type": "string", "minLength": 200, "maxLength": 300}
    schema = {"type": "object", "properties": {"text": text}, "required": ["text"],
              "additionalProperties": False}  # fmt: skip
    rules = [{"guided_json": schema}, {"guided_regex": r"(\d{1,3}; ){40,60}"},
             {"response_format": {"type": "json_object"}, "min_tokens": 60},
             {"min_tokens": 120, "bad_words": ["a", "the"], "logit_bias": {"300": 3}}]  # fmt: skip
    fields = {"temperature": 1.2, "top_p": 1, "max_tokens": 160}
    asked = [rules[i % 4] | fields | {"prompt": f"A river {i}", "seed": i} for i in range(16)]
    with running.Cluster() as cluster:
        cluster.up(running.DEMO, "--kv-cache-memory", "512KiB", "--max-model-len", 256, workers=1)

        def text(body):
            status, answer = cluster.post("/v1/completions", body, 120)
            assert status == 200, answer
            return answer["choices"][0]["text"]

        alone = [text(body) for body in asked]
        deadline = time.monotonic() + 2 * running.PATIENCE_S
        while not any(replica["preemptions"] for replica in cluster.status()["replicas"]):
            assert time.monotonic() < deadline, "nobody was preempted"
            assert running.at_once(text, asked, len(asked)) == alone
