"""How often a call has a wrong form: never, whatever the model would say. Prompts and functions are those of
the Berkeley function calling leaderboard, the weights are random, the grammar does the rest."""

import collections
import json
import os
import time

import jsonschema
import pytest

import bfcl
import running
from tool_model import of_random_weights

# CI's brief run has tests/http/test_tools.py, with schemas of its own.
pytestmark = pytest.mark.long

# $TROUPE_TEST_PROMPTS=all asks each of them.
COUNT = os.environ.get("TROUPE_TEST_PROMPTS", "300")
SHAPES = ["required", "required, one", "named"]


@pytest.fixture(scope="module", params=["hermes", "glm", "harmony"])
def form(request):
    return request.param


@pytest.fixture(scope="module")
def cluster(troupe, tmp_path_factory, form):
    with running.Cluster() as made:
        made.up(of_random_weights(tmp_path_factory.mktemp("model"), form), "--kv-cache-memory", "256MiB")
        yield made


@pytest.fixture(scope="module")
def prompts(clients_python, form):
    chosen = bfcl.prompts() if COUNT == "all" else bfcl.sample(int(COUNT), 1)
    # Each shape for all kinds of prompts.
    asked = [(*prompt, SHAPES[number % len(SHAPES)]) for number, prompt in enumerate(chosen)]
    return asked if form == "hermes" else asked[: len(asked) // 3]


@pytest.fixture(scope="module")
def ends(cluster, form):
    """The bias of what ends a text or an object: all tokens are as likely, and one of 4096 ends it. GLM's
    texts end with </arg_value>, and gpt-oss' thoughts, which begin with their name, hardly ever."""
    likely = dict.fromkeys(('"', "}", "]"), 6)
    if form == "glm":
        likely["</arg_value>"] = 6
    if form == "harmony":
        likely |= {"analysis"[:length]: -100 for length in range(1, 9)}
    bias = {}
    for text, value in likely.items():
        asked = {"prompt": text, "add_special_tokens": False}
        tokens = cluster.post("/tokenize", asked)[1]["tokens"]
        if len(tokens) == 1:
            bias[str(tokens[0])] = value
    return bias


def body_of(messages, tools, **fields):
    return {"model": "random", "messages": messages, "tools": tools, "temperature": 1, "top_p": 1, **fields}


def answer_of(cluster, body):
    """(status, answer); where a disk hangs for a moment it is asked again, as clients do."""
    for _ in range(30):
        status, answer = cluster.post("/v1/chat/completions", body, 300)
        if status != 503:
            break
        time.sleep(1)
    return status, answer


def choice_of(shape, tools, number):
    if shape != "named":
        return {"tool_choice": "required", "parallel_tool_calls": shape == "required"}
    name = tools[number % len(tools)]["function"]["name"]
    return {"tool_choice": {"type": "function", "function": {"name": name}}}


def wrong_in(message, tools, shape, asked):
    """What is wrong with the calls of an answer; None: nothing is."""
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    calls = message.get("tool_calls")
    if not calls or message["content"]:
        return "no calls, or something beside them"
    if shape != "required" and len(calls) != 1:
        return f"{len(calls)} calls"
    wanted = schemas if shape != "named" else [asked["tool_choice"]["function"]["name"]]
    for call in calls:
        name = call["function"]["name"]
        if name not in wanted:
            return f"calls {name}"
        try:
            arguments = json.loads(call["function"]["arguments"])
            jsonschema.Draft202012Validator(schemas[name]).validate(arguments)
        except (ValueError, jsonschema.ValidationError) as error:
            return f"{name}: {error}"
    return None


def test_no_call_has_a_wrong_form(cluster, prompts, ends):
    counts, wrong = collections.Counter(), []

    def ask(numbered):
        number, (name, messages, tools, shape) = numbered
        asked = choice_of(shape, tools, number)
        fields = {"seed": number, "max_tokens": 2000, "logit_bias": ends, **asked}
        status, answer = answer_of(cluster, body_of(messages, tools, **fields))
        if status != 200:
            return "refused", f"{name}: {answer}"
        choice = answer["choices"][0]
        if choice["finish_reason"] == "length":
            return "cut off", None
        trouble = wrong_in(choice["message"], tools, shape, asked)
        return ("wrong", f"{name} ({shape}): {trouble}") if trouble else ("right", None)

    for kind, trouble in running.at_once(ask, enumerate(prompts), 16):
        counts[kind] += 1
        wrong += [trouble] if trouble else []
    print(f"{len(prompts)} prompts: {dict(counts)}")
    assert not wrong, "\n".join(wrong[:20])
    assert counts["cut off"] <= len(prompts) / 20


def test_where_it_may_call_any_text_is_read(cluster, prompts):
    def ask(numbered):
        number, (_, messages, tools, _) = numbered
        fields = {"seed": number, "max_tokens": 60}
        status, answer = answer_of(cluster, body_of(messages, tools, **fields))
        message = answer["choices"][0]["message"] if status == 200 else {}
        return None if message.get("content") or message.get("tool_calls") else answer

    assert not list(filter(None, running.at_once(ask, enumerate(prompts[:100]), 16)))
