"""Tools whose names and arguments have odd names: the model must call them right all the same."""

import json

import jsonschema
import openai
import pytest

import running
from tool_model import with_tools

# A name that another begins with, names that the forms of calls have themselves, and the longest one.
NAMES = ["f", "f_2", "f-2", "F", "-", "_", "0", "name", "arguments", "tool_call", "null", "f" * 128]
# What stands in JSON with escapes, what tags are made of, and what no token says as a whole.
PROPERTIES = ['a "quoted" one', "back\\slash", "ключ", "🜚", "tab\tand\nline", "</tool_call>", "<arg_key>", "",
              "a", "ab", "a.b", "$ref", "{}", "'"]  # fmt: skip
CHAT = [{"role": "user", "content": "What does river mean?"}]


def function(name, **more):
    return {"type": "function", "function": {"name": name} | more}


def schema_of(names, value):
    return {"type": "object", "properties": {name: value for name in names}, "required": list(names),
            "additionalProperties": False}  # fmt: skip


@pytest.fixture(scope="module", params=["hermes", "glm", "deepseek"])
def ask(request, troupe, tmp_path_factory):
    with running.Cluster() as cluster:
        model = with_tools(tmp_path_factory.mktemp("model"), request.param)
        cluster.up(model, "--kv-cache-memory", "64MiB", workers=1)
        client = openai.OpenAI(base_url=cluster.base_url + "/v1", api_key="none", max_retries=0, timeout=120)

        def asked(**fields):
            fields = {"model": "with-tools", "messages": CHAT, "max_tokens": 900, "temperature": 1.3,
                      "top_p": 1, "seed": 7} | fields  # fmt: skip
            return client.chat.completions.create(**fields).choices

        yield asked


def calls_of(choices):
    return [call.function for choice in choices if choice.finish_reason == "tool_calls"
            for call in choice.message.tool_calls]  # fmt: skip


def test_each_of_odd_names_is_called_where_it_is_named(ask):
    tools = [function(name, parameters=schema_of(["a"], {"enum": [1, 2]})) for name in NAMES]
    for name in NAMES:
        (call,) = calls_of(ask(tools=tools, tool_choice=function(name)))
        assert call.name == name and json.loads(call.arguments) in ({"a": 1}, {"a": 2})


def test_of_odd_names_those_that_are_allowed_are_called(ask):
    tools = [function(name) for name in NAMES]
    only = ["f_2", "name", "f" * 128]
    # A name that is there twice is no other one.
    allowed = {"mode": "required", "tools": [function(name) for name in [*only, "f_2"]]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    called = {call.name for seed in range(4) for call in calls_of(ask(tools=tools, tool_choice=choice, n=4,
                                                                      seed=seed))}  # fmt: skip
    assert called and called <= set(only)


@pytest.mark.parametrize("strict", [True, False])
def test_arguments_with_odd_names_satisfy_their_schema(ask, strict):
    for value in ({"enum": [1, None, 'a "b" </arg_value>\n']}, {"type": "string", "maxLength": 3}):
        schema = schema_of(PROPERTIES, value)
        tools = [function("f", parameters=schema, strict=strict)]
        calls = calls_of(ask(tools=tools, tool_choice="required", parallel_tool_calls=False, n=2))
        assert calls
        for call in calls:
            jsonschema.validate(json.loads(call.arguments), schema)


@pytest.mark.parametrize(
    "named", ["g", "f_", "F_2", "", "f ", "ф", 'f"', "f_2\n", None, 7, "f" * 129]
)  # fmt: skip
def test_what_is_not_offered_cannot_be_allowed(ask, named):
    tools = [function("f"), function("f_2")]
    one = {"type": "function", "function": {"name": named}}
    for choice in (one, {"type": "allowed_tools",
                         "allowed_tools": {"mode": "auto", "tools": [function("f"), one]}}):  # fmt: skip
        with pytest.raises(openai.BadRequestError) as refused:
            ask(tools=tools, tool_choice=choice)
        assert refused.value.param == "tool_choice"


@pytest.mark.parametrize("name", ["", "a b", "f.g", 'f"', "ф", "f\n", "f" * 129, None, 7])
def test_what_is_no_name_is_refused(ask, name):
    with pytest.raises(openai.BadRequestError) as refused:
        ask(tools=[function("f"), {"type": "function", "function": {"name": name}}])
    assert refused.value.param == "tools" and "tools[1].function.name" in refused.value.message


@pytest.mark.parametrize("properties", [3, None, [], "a", {"a": 3}, {"a": {"items": "x"}}])
def test_what_is_no_schema_is_refused_by_its_path(ask, properties):
    for strict in (False, True):
        parameters = {"type": "object", "properties": properties}
        with pytest.raises(openai.BadRequestError) as refused:
            ask(tools=[function("f", parameters=parameters, strict=strict)])
        assert refused.value.param == "tools"
        assert "tools[0].function.parameters.properties" in refused.value.message
