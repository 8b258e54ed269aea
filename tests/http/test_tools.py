"""Calls of tools over HTTP, with the openai client. The model has never learnt them: what it must call, it
calls because nothing else is allowed."""

import json

import jsonschema
import openai
import pytest

import running
from streams import Missed, answer_in_spite_of_a_kill, arranged
from tool_model import with_tools

SCHEMAS = {
    "look_up": {"type": "object", "properties": {
        "word": {"type": "string", "maxLength": 12},
        "senses": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["word", "senses"], "additionalProperties": False},
    "rhymes": {"type": "object", "properties": {
        "with": {"type": "array", "items": {"enum": ["moon", "june", "spoon"]},
                 "minItems": 1, "maxItems": 3}},
        "required": ["with"], "additionalProperties": False},
}  # fmt: skip
TOOLS = [
    {"type": "function", "function": {"name": name, "description": f"To {name}.", "parameters": schema}}
    for name, schema in SCHEMAS.items()
]
CHAT = [{"role": "user", "content": "What does river mean?"}]
HOT = {"temperature": 1.3, "top_p": 1, "max_tokens": 300}


@pytest.fixture(scope="module")
def cluster(troupe, tmp_path_factory):
    with running.Cluster() as made:
        made.up(with_tools(tmp_path_factory.mktemp("model")), "--kv-cache-memory", "128MiB")
        yield made


@pytest.fixture(scope="module")
def client(cluster):
    return openai.OpenAI(base_url=cluster.base_url + "/v1", api_key="none", max_retries=0, timeout=120)


def ask(client, **fields):
    fields = {"model": "with-tools", "messages": CHAT, "tools": TOOLS} | HOT | fields
    return client.chat.completions.create(**fields)


def check(call, names=tuple(SCHEMAS)):
    assert call.type == "function" and call.function.name in names
    jsonschema.Draft202012Validator(SCHEMAS[call.function.name]).validate(json.loads(call.function.arguments))


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "rhymes"}}])
def test_what_must_be_called_is_called_right(client, choice):
    calls = 0
    for seed in range(4):
        answer = ask(client, n=4, seed=seed, tool_choice=choice)
        for choice_of in answer.choices:
            if choice_of.finish_reason == "length":
                continue
            assert choice_of.finish_reason == "tool_calls" and not choice_of.message.content
            calls += len(choice_of.message.tool_calls)
            for call in choice_of.message.tool_calls:
                check(call, SCHEMAS if choice == "required" else ["rhymes"])
            if choice != "required":
                assert len(choice_of.message.tool_calls) == 1
    assert calls >= 8


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_is_cut_is_not_told_as_one_to_carry_out(client, stream):
    """By a text of the request's own `stop`, among the arguments."""
    wanted = {"type": "function", "function": {"name": "rhymes"}}
    answer = ask(client, seed=2, tool_choice=wanted, stop=["oon", "une"], stream=stream)
    choices = [chunk.choices[0] for chunk in answer if chunk.choices] if stream else answer.choices
    messages = [choice.delta if stream else choice.message for choice in choices]
    calls = [call for message in messages for call in message.tool_calls or []]
    arguments = "".join(call.function.arguments or "" for call in calls)
    assert arguments.endswith(('"m', '"j', '"sp')) and choices[-1].finish_reason == "stop"


def test_one_call_where_several_are_not_wanted(client):
    for seed in range(4):
        answer = ask(client, seed=seed, tool_choice="required", parallel_tool_calls=False)
        assert len(answer.choices[0].message.tool_calls or []) == 1


def test_a_stream_tells_the_same_calls_piece_by_piece(client):
    fields = {"seed": 2, "tool_choice": "required"}
    whole = ask(client, **fields).choices[0]

    def in_pieces():
        calls, reason, pieces = {}, None, 0
        for chunk in ask(client, stream=True, **fields):
            for choice in chunk.choices:
                reason = choice.finish_reason or reason
                for delta in choice.delta.tool_calls or []:
                    begun = {"id": delta.id, "name": delta.function.name, "arguments": ""}
                    call = calls.setdefault(delta.index, begun)
                    call["arguments"] += delta.function.arguments or ""
                    pieces += 1
        assert reason == whole.finish_reason == "tool_calls"
        told = [(c["name"], c["arguments"]) for c in calls.values()]
        assert told == [(c.function.name, c.function.arguments) for c in whole.message.tool_calls]
        # A reader that was late gets several tokens at once.
        if pieces <= 2 * len(calls):
            raise Missed(f"it came in {pieces} pieces")

    arranged(in_pieces)


def test_results_go_back_and_the_model_may_answer(client):
    first = ask(client, seed=1, tool_choice="required").choices[0].message
    results = [{"role": "tool", "tool_call_id": call.id, "content": "a stream of water"}
               for call in first.tool_calls]  # fmt: skip
    answer = client.chat.completions.create(
        model="with-tools", messages=[*CHAT, first, *results], tools=TOOLS, tool_choice="none", max_tokens=20
    )
    assert answer.choices[0].message.content and not answer.choices[0].message.tool_calls


def test_a_model_that_calls_nothing_answers(client):
    answer = ask(client, temperature=0, max_tokens=60)
    assert answer.choices[0].message.content and not answer.choices[0].message.tool_calls


@pytest.mark.parametrize(
    "fields, param",
    [
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "x" * 129}}]}, "tools"),
        ({"tools": [TOOLS[0], TOOLS[0]]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": f"f{i}"}} for i in range(10000)]}, "tools"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "nobody"}}}, "tool_choice"),
    ],
)
def test_tools_that_cannot_be_are_named(client, fields, param):
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, **fields)
    assert refused.value.param == param


def test_a_call_survives_the_loss_of_workers(cluster, client):
    fields = {"n": 4, "tool_choice": "required", "max_tokens": 600, "seed": 11}
    fields["tools"] = [{"type": "function", "function": {"name": "tell", "parameters": {
        "type": "object", "properties": {"story": {"type": "string", "minLength": 1200, "maxLength": 2000}},
        "required": ["story"], "additionalProperties": False}}}]  # fmt: skip
    expected = ask(client, **fields)

    def runs(_):
        return any(replica["kv_blocks_used"] for replica in cluster.status()["replicas"])

    answer = answer_in_spite_of_a_kill(cluster, lambda _: ask(client, **fields), runs)
    for before, after in zip(expected.choices, answer.choices, strict=True):
        assert [c.function.arguments for c in before.message.tool_calls or []] == \
            [c.function.arguments for c in after.message.tool_calls or []]  # fmt: skip
        assert before.message.content == after.message.content


def test_beside_a_format_the_model_calls_or_answers(client):
    answer = {"type": "object", "properties": {"meaning": {"type": "string", "maxLength": 20}},
              "required": ["meaning"], "additionalProperties": False}  # fmt: skip
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": answer}}
    ends = set()
    for seed in range(4):
        for choice in ask(client, n=4, seed=seed, response_format=form).choices:
            ends.add(choice.finish_reason)
            if choice.finish_reason == "tool_calls":
                assert not choice.message.content
                for call in choice.message.tool_calls:
                    check(call)
            elif choice.finish_reason == "stop":
                jsonschema.validate(json.loads(choice.message.content), answer)
    assert {"stop", "tool_calls"} <= ends


@pytest.fixture(scope="module")
def tagged(troupe, tmp_path_factory):
    """A model whose calls begin with a token of their own, which a bias makes likely."""
    with running.Cluster() as made:
        model = with_tools(tmp_path_factory.mktemp("tagged"), "deepseek")
        made.up(model, "--kv-cache-memory", "128MiB", workers=1)
        tag = {"prompt": "<｜tool▁calls▁begin｜>", "add_special_tokens": False}
        (begin,) = made.post("/tokenize", tag)[1]["tokens"]
        client = openai.OpenAI(base_url=made.base_url + "/v1", api_key="none", max_retries=0, timeout=120)
        yield lambda bias=7, **fields: ask(client, logit_bias={str(begin): bias}, **fields)


def strict(tool, **schema):
    function = tool["function"]
    return tool | {"function": function | {"strict": True, "parameters": function["parameters"] | schema}}


def test_strict_arguments_satisfy_their_schema_wherever_the_model_calls(tagged):
    calls = texts = 0
    for seed in range(4):
        for choice in tagged(tools=[strict(tool) for tool in TOOLS], seed=seed, n=4).choices:
            texts += bool(choice.message.content)
            if choice.finish_reason == "tool_calls":
                calls += 1
                for call in choice.message.tool_calls:
                    check(call)
    assert calls and texts


def test_a_strict_schema_that_cannot_be_kept_is_named(tagged):
    within = {"properties": {"a": {"type": "array", "$dynamicRef": "#b"}}}
    with pytest.raises(openai.BadRequestError) as refused:
        tagged(tools=[strict(TOOLS[0], **within)])
    assert refused.value.param == "tools" and "$dynamicRef" in str(refused.value)
    with pytest.raises(openai.BadRequestError, match="dynamicRef"):
        tagged(tools=[strict(TOOLS[0], **within)], response_format={"type": "json_object"})


def test_of_allowed_tools_alone_some_is_called(tagged):
    only = [{"type": "function", "function": {"name": "rhymes"}}]
    for mode, bias in (("required", 0), ("auto", 15)):
        choice = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": only}}
        ended = [one for one in tagged(bias, n=4, seed=3, tool_choice=choice).choices
                 if one.finish_reason == "tool_calls"]  # fmt: skip
        assert ended
        for one in ended:
            for call in one.message.tool_calls:
                check(call, ["rhymes"])


def test_an_older_clients_functions(client):
    functions = [tool["function"] for tool in TOOLS]
    body = {"model": "with-tools", "messages": CHAT, "functions": functions} | HOT
    answer = client.chat.completions.create(**body, function_call={"name": "rhymes"}, seed=3).choices[0]
    assert answer.finish_reason == "function_call" and answer.message.tool_calls is None
    called = answer.message.function_call
    jsonschema.validate(json.loads(called.arguments), SCHEMAS[called.name])
    result = {"role": "function", "name": called.name, "content": "moon"}
    body["messages"] = [*CHAT, answer.message, result]
    assert client.chat.completions.create(**body | {"max_tokens": 5}).choices[0].message.content
