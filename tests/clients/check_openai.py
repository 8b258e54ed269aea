"""openai: its helpers for tools and types, of chat and of responses."""

import openai
import pytest
from words import CHAT, HOT, MODEL, QUESTION, TOOLS, URL, Entry, LookUp, Rhymes

CLIENT = openai.OpenAI(base_url=URL, api_key="none", max_retries=0, timeout=120)
ASKED = {"model": MODEL, "messages": CHAT, "seed": 3, **HOT}
FUNCTIONS = [openai.pydantic_function_tool(LookUp), openai.pydantic_function_tool(Rhymes)]


def check(message):
    assert message.tool_calls
    for call in message.tool_calls:
        assert isinstance(call.function.parsed_arguments, TOOLS[call.function.name])


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "Rhymes"}}])
def test_calls_are_parsed_into_their_types(choice):
    answer = CLIENT.chat.completions.parse(tools=FUNCTIONS, tool_choice=choice, **ASKED)
    check(answer.choices[0].message)


def test_a_stream_of_calls_ends_with_them():
    with CLIENT.chat.completions.stream(tools=FUNCTIONS, tool_choice="required", **ASKED) as stream:
        kinds = {event.type for event in stream}
        check(stream.get_final_completion().choices[0].message)
    assert {"tool_calls.function.arguments.delta", "tool_calls.function.arguments.done"} <= kinds


def test_an_answer_is_parsed_into_its_type():
    answer = CLIENT.chat.completions.parse(response_format=Entry, **ASKED)
    assert isinstance(answer.choices[0].message.parsed, Entry)


def test_a_stream_is_parsed_into_its_type():
    with CLIENT.chat.completions.stream(response_format=Entry, **ASKED) as stream:
        kinds = {event.type for event in stream}
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Entry)
    assert {"content.delta", "content.done"} <= kinds


def test_a_model_may_call_or_answer_in_its_type():
    ends = set()
    for seed in range(8):
        answer = CLIENT.chat.completions.parse(
            tools=FUNCTIONS, response_format=Entry, **{**ASKED, "seed": seed}
        ).choices[0]
        ends.add(answer.finish_reason)
        if answer.finish_reason == "tool_calls":
            check(answer.message)
        else:
            assert isinstance(answer.message.parsed, Entry)
    assert ends == {"stop", "tool_calls"}


def test_a_response_is_parsed_into_its_type():
    response = CLIENT.responses.parse(
        model=MODEL, input=QUESTION, text_format=Entry, temperature=1, max_output_tokens=400
    )
    assert isinstance(response.output_parsed, Entry)


def test_the_calls_of_a_response_are_parsed():
    functions = [{"type": "function", "name": name, "parameters": tool.model_json_schema(), "strict": True}
                 for name, tool in TOOLS.items()]  # fmt: skip
    response = CLIENT.responses.create(model=MODEL, input=QUESTION, tools=functions, temperature=1,
                                       tool_choice="required", max_output_tokens=400)  # fmt: skip
    calls = [item for item in response.output if item.type == "function_call"]
    assert calls
    for call in calls:
        TOOLS[call.name].model_validate_json(call.arguments)
