"""anthropic: its helpers for tools and types, whole and as streams."""

import anthropic
import pytest
from words import CHAT, MODEL, TOOLS, URL, LookUp, Rhymes

CLIENT = anthropic.Anthropic(base_url=URL.removesuffix("/v1"), auth_token="none", max_retries=0, timeout=120)
FUNCTIONS = [
    {"name": tool.__name__, "description": tool.__doc__, "input_schema": tool.model_json_schema()}
    for tool in (LookUp, Rhymes)
]
ASKED = {"model": MODEL, "messages": CHAT, "max_tokens": 400, "extra_body": {"seed": 3, "temperature": 1.0}}
CHOICES = [
    {"type": "any"},
    {"type": "any", "disable_parallel_tool_use": True},
    {"type": "tool", "name": "Rhymes"},
]


def check(message):
    assert message.stop_reason == "tool_use" and message.usage.output_tokens > 0
    calls = [block for block in message.content if block.type == "tool_use"]
    assert calls
    for call in calls:
        TOOLS[call.name].model_validate(call.input)


@pytest.mark.parametrize("choice", CHOICES)
def test_calls_are_of_their_types(choice):
    check(CLIENT.messages.create(tools=FUNCTIONS, tool_choice=choice, **ASKED))


@pytest.mark.parametrize("choice", CHOICES)
def test_a_stream_of_calls_ends_with_them(choice):
    with CLIENT.messages.stream(tools=FUNCTIONS, tool_choice=choice, **ASKED) as stream:
        kinds = {event.type for event in stream}
        check(stream.get_final_message())
        assert stream.response.headers["request-id"] == stream.get_final_message().id
    assert {"message_start", "input_json", "content_block_stop", "message_stop"} <= kinds


def test_an_answer_is_parsed_into_its_type():
    # Of other types it leaves out bounds, without which the model may find no end.
    answer = CLIENT.messages.parse(output_format=Rhymes, **ASKED)
    assert isinstance(answer.parsed_output, Rhymes)


def test_a_call_is_answered():
    choice = {"type": "tool", "name": "LookUp"}
    first = CLIENT.messages.create(tools=FUNCTIONS, tool_choice=choice, **ASKED)
    result = {"type": "tool_result", "tool_use_id": first.content[-1].id, "content": "two senses"}
    turns = [*CHAT, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    again = CLIENT.messages.create(tools=FUNCTIONS, **{**ASKED, "messages": turns, "max_tokens": 16})
    assert again.usage.input_tokens + again.usage.cache_read_input_tokens > first.usage.input_tokens


def test_tokens_are_counted():
    count = CLIENT.messages.count_tokens(model=MODEL, messages=CHAT, tools=FUNCTIONS).input_tokens
    usage = CLIENT.messages.create(tools=FUNCTIONS, **{**ASKED, "max_tokens": 1}).usage
    assert count == usage.input_tokens + usage.cache_read_input_tokens


def test_errors_are_of_their_types():
    with pytest.raises(anthropic.NotFoundError):
        CLIENT.messages.create(**{**ASKED, "model": "claude"})
    with pytest.raises(anthropic.BadRequestError) as refused:
        CLIENT.messages.create(tools=[{"type": "web_search_20250305", "name": "web_search"}], **ASKED)
    assert refused.value.body["error"]["type"] == "invalid_request_error"
