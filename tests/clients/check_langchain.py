"""langchain: bound tools, and structured output by each of its methods."""

import json

import openai
import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from words import HOT, MODEL, QUESTION, TOOLS, URL, Entry, LookUp, Rhymes, Word

CHAT = ChatOpenAI(base_url=URL, api_key="none", model=MODEL, seed=5, max_retries=0, timeout=120, **HOT)
CHOICES = ["required", "any", "Rhymes", {"type": "function", "function": {"name": "LookUp"}}]


def check(calls):
    assert calls
    for call in calls:
        TOOLS[call["name"]].model_validate(call["args"])


@pytest.mark.parametrize("choice", CHOICES, ids=str)
@pytest.mark.parametrize("strict", [None, True])
def test_bound_tools_are_called(choice, strict):
    answer = CHAT.bind_tools([LookUp, Rhymes], tool_choice=choice, strict=strict).invoke(QUESTION)
    check(answer.tool_calls)
    assert not answer.invalid_tool_calls


def test_a_stream_adds_up_to_the_calls():
    bound = CHAT.bind_tools([LookUp, Rhymes], tool_choice="required")
    whole = None
    for chunk in bound.stream(QUESTION):
        whole = chunk if whole is None else whole + chunk
    check(whole.tool_calls)
    assert [(c["name"], c["args"]) for c in whole.tool_calls] == [
        (c["name"], c["args"]) for c in bound.invoke(QUESTION).tool_calls]  # fmt: skip


def test_one_call_where_several_are_not_wanted():
    bound = CHAT.bind_tools([LookUp, Rhymes], tool_choice="required", parallel_tool_calls=False)
    assert len(bound.invoke(QUESTION).tool_calls) == 1


@tool
def look_up(word: Word) -> str:
    """Looks a word up."""
    return f"{word}: a stream of water"


def test_results_go_back_to_the_model():
    asked = [HumanMessage(QUESTION)]
    answer = CHAT.bind_tools([look_up], tool_choice="look_up").invoke(asked)
    results = [look_up.invoke(call) for call in answer.tool_calls]
    assert all(isinstance(result, ToolMessage) for result in results)
    last = CHAT.bind_tools([look_up]).invoke([*asked, answer, *results], max_tokens=40)
    assert last.response_metadata["finish_reason"] in ("stop", "length", "tool_calls")


@pytest.mark.parametrize("schema", [Entry, Entry.model_json_schema()], ids=["type", "schema"])
@pytest.mark.parametrize("method", ["function_calling", "json_schema"])
def test_structured_output_has_its_type(method, schema):
    structured = CHAT.with_structured_output(schema, method=method)
    told = [structured.invoke(QUESTION), list(structured.stream(QUESTION))[-1]]
    for value in told:
        assert Entry.model_validate(value if isinstance(value, dict) else value.model_dump())
    assert told[0] == told[1]


@pytest.mark.parametrize("method", ["function_calling", "json_schema"])
def test_the_raw_answer_comes_along(method):
    told = CHAT.with_structured_output(Entry, method=method, include_raw=True).invoke(QUESTION)
    assert isinstance(told["parsed"], Entry) and told["parsing_error"] is None


def test_tools_beside_an_answer_in_a_form():
    told = CHAT.with_structured_output(
        Entry, method="json_schema", tools=[LookUp, Rhymes], include_raw=True, strict=True
    ).invoke(QUESTION)
    if told["raw"].tool_calls:
        check(told["raw"].tool_calls)
    else:
        assert isinstance(told["parsed"], Entry)


def test_json_mode_gives_json():
    """What is in it depends on what the model has learnt, and how long it is, too."""
    ended = 0
    for seed in range(8):
        chat = CHAT.model_copy(update={"seed": seed})
        structured = chat.with_structured_output(Entry, method="json_mode", include_raw=True)
        try:
            raw = structured.invoke("Answer in JSON: " + QUESTION)["raw"]
        except openai.LengthFinishReasonError:
            continue
        assert isinstance(json.loads(raw.content), dict)
        ended += 1
    assert ended > 0
