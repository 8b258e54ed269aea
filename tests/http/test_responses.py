"""The Responses API with the openai client."""

import json
import urllib.request

import openai
import pydantic
import pytest

import running
from streams import answer_in_spite_of_a_kill

ASKED = "Define the word: river"
TOOL = {
    "type": "function", "name": "look_up", "parameters": {
        "type": "object", "properties": {"word": {"enum": ["moon", "river"]}},
        "required": ["word"], "additionalProperties": False}}  # fmt: skip


class Word(pydantic.BaseModel):
    letter: str = pydantic.Field(pattern="^[a-z]$")
    number: int = pydantic.Field(ge=1, le=9)


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.base_url + "/v1", api_key="none", max_retries=0, timeout=120)


@pytest.fixture
def ask(client, server):
    def asked(method="create", **fields):
        fields = {"model": server.model, "input": ASKED, "temperature": 0, "max_output_tokens": 48} | fields
        return getattr(client.responses, method)(**fields)

    return asked


def thoughts(response):
    return "".join(part.text for item in response.output if item.type == "reasoning" for part in item.content)


def test_a_response_says_what_a_chat_says(ask, client, server):
    response = ask(instructions=None, metadata={"a": "b"})
    chat = client.chat.completions.create(
        model=server.model, messages=[{"role": "user", "content": ASKED}], temperature=0, max_tokens=48
    )
    message = chat.choices[0].message
    assert response.output_text == (message.content or "")
    assert thoughts(response) == (getattr(message, "reasoning_content", None) or "")
    assert response.status == {"stop": "completed", "length": "incomplete"}[chat.choices[0].finish_reason]
    assert response.usage.input_tokens == chat.usage.prompt_tokens
    assert response.usage.output_tokens == chat.usage.completion_tokens
    assert response.usage.input_tokens_details.cached_tokens >= 0
    assert response.metadata == {"a": "b"} and response.model == server.model
    assert client.responses.retrieve(response.id).output == response.output
    client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)


def test_a_stream_says_it_piece_by_piece(ask):
    whole = ask()
    text, numbers, last = "", [], None
    for event in ask(stream=True):
        numbers.append(event.sequence_number)
        if event.type == "response.output_text.delta":
            text += event.delta
        last = event
    assert numbers == list(range(len(numbers)))
    assert text == whole.output_text == last.response.output_text
    assert last.type == "response." + whole.status
    with ask("stream") as stream:
        for _ in stream:
            pass
        if whole.status == "completed":
            assert stream.get_final_response().output_text == text


def test_each_event_is_a_line_however_its_request_was_written(server):
    """By hand and with line breaks, as people type it."""
    fields = {"input": ASKED, "stream": True, "max_output_tokens": 4, "tools": [TOOL],
              "metadata": {"a": "b\nc"}, "text": {"format": {"type": "text"}}}  # fmt: skip
    body = json.dumps(fields, indent=4)
    assert "\n" in body
    body = body.replace("\n", "\r\n").encode()
    request = urllib.request.Request(server.base_url + "/v1/responses", body,
                                     {"Content-Type": "application/json"})  # fmt: skip
    with urllib.request.urlopen(request, timeout=running.PATIENCE_S) as answer:
        lines = [line for line in answer.read().decode().splitlines() if line]
    assert all(line.startswith(("event: ", "data: ", "id: ")) for line in lines), lines
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert events[0]["response"]["tools"] == [TOOL] and events[0]["response"]["metadata"] == {"a": "b\nc"}
    assert events[-1]["type"] in ("response.completed", "response.incomplete")


def test_a_history_may_have_begun_with_another_server(ask):
    """Whose functions have other names."""
    call = {"type": "function_call", "call_id": "c1", "name": "mcp.files/read:1", "arguments": "{}"}
    told = {"type": "function_call_output", "call_id": "c1", "output": "It is empty."}
    asked = {"role": "user", "content": ASKED}
    assert ask(input=[asked, call, told], max_output_tokens=2).status == "incomplete"
    with pytest.raises(openai.BadRequestError, match="1 to 256 of"):
        ask(input=[asked, call | {"name": "a b"}, told])


def test_an_answer_is_parsed(ask):
    answer = ask("parse", text_format=Word, max_output_tokens=200)
    assert answer.status == "completed" and isinstance(answer.output_parsed, Word)


def test_what_must_be_called_is_called(ask):
    first = ask(tools=[TOOL], tool_choice="required", parallel_tool_calls=False, max_output_tokens=200)
    (call,) = [item for item in first.output if item.type == "function_call"]
    assert json.loads(call.arguments)["word"] in ("moon", "river")
    events = list(ask(tools=[TOOL], tool_choice="required", parallel_tool_calls=False,
                      max_output_tokens=200, stream=True))  # fmt: skip
    pieces = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(pieces) == call.arguments


def test_a_response_follows_another(ask, client):
    first = ask()
    then = "And the moon?"
    after = ask(input=then, previous_response_id=first.id)
    history = [{"role": "user", "content": ASKED}, *first.output, {"role": "user", "content": then}]
    assert ask(input=history).output_text == after.output_text
    named = [{"type": "item_reference", "id": item.id} for item in first.output]
    assert ask(input=[history[0], *named, history[-1]]).output_text == after.output_text
    assert after.previous_response_id == first.id
    assert after.usage.input_tokens > first.usage.input_tokens
    unkept = ask(store=False)
    for method in (client.responses.retrieve, client.responses.delete):
        with pytest.raises(openai.NotFoundError):
            method(unkept.id)
    for gone in ("resp_nobody", unkept.id):
        with pytest.raises(openai.BadRequestError) as refused:
            ask(previous_response_id=gone)
        assert refused.value.param == "previous_response_id"
        assert refused.value.code == "previous_response_not_found"


def test_a_response_is_read_again_as_openai_reads_it(ask, client):
    first = ask()
    after = ask(input="And the moon?", previous_response_id=first.id)
    last = list(client.responses.retrieve(after.id, stream=True))[-1]
    assert last.type == "response." + after.status and last.response.output == after.output
    items = list(client.responses.input_items.list(after.id, order="asc", limit=2))
    kinds = [item.type for item in items]
    assert kinds == ["message", *(item.type for item in first.output), "message"]
    assert items[-1].content[0].text == "And the moon?" and items[0].content[0].text == ASKED
    for wrong in ({"limit": 0}, {"order": "up"}, {"after": "msg_nobody"}):
        with pytest.raises(openai.BadRequestError) as refused:
            client.responses.input_items.list(after.id, **wrong)
        assert refused.value.param == next(iter(wrong))
    named = [{"type": "item_reference", "id": item.id} for item in items]
    assert ask(input=named).output_text == after.output_text
    with pytest.raises(openai.BadRequestError):
        client.responses.cancel(after.id)


def test_what_asks_for_nothing_is_taken(ask):
    wishes = {"truncation": "auto", "text": {"verbosity": "low"}, "reasoning": {"summary": "detailed"},
              "include": ["file_search_call.results"]}  # fmt: skip
    plain, wished = ask(), ask(**wishes)
    assert wished.output_text == plain.output_text
    assert wished.truncation == "auto" and wished.text.verbosity == "low"
    with pytest.raises(openai.BadRequestError) as refused:
        ask(reasoning={"effort": "none"})
    assert refused.value.param == "reasoning" and "reasoning.effort" in refused.value.message


@pytest.mark.parametrize("stream", [False, True])
def test_a_key_gives_its_answer_when_what_it_followed_is_gone(ask, client, stream):
    first = ask()
    key = {"extra_headers": {"Idempotency-Key": f"followed-{first.id}"}}
    fields = {"input": "And the moon?", "previous_response_id": first.id, "stream": stream}

    def answer():
        return list(ask(**fields, **key))[-1].response if stream else ask(**fields, **key)

    expected = answer()
    client.responses.delete(first.id)
    again = answer()
    assert again.id == expected.id and again.output == expected.output
    assert again.previous_response_id == first.id
    with pytest.raises(openai.UnprocessableEntityError):
        ask(**fields | {"input": "And the sun?"}, **key)
    with pytest.raises(openai.BadRequestError):
        ask(**fields)
    with pytest.raises(openai.BadRequestError):
        ask(**fields, extra_headers={"Idempotency-Key": f"new-{first.id}"})


def test_a_stream_that_goes_on_at_its_end_shows_the_same_text(ask, server):
    text = ask().output_text
    half = len(text) // 2
    # One that is there, one that only begins.
    for stop, wanted in ((text[half:half + 12], text[:half]), (text[-1:] + "~~", text)):
        answer = ask(extra_body={"stop": [stop]})
        assert answer.output_text == wanted
        had = answer.usage.output_tokens
        events = running.get(server.base_url, f"/v1/requests/{answer.id}/events?from={had}")
        told = json.loads(events.strip().split("\n\n")[-1].split("data: ", 1)[1])["response"]
        messages = [item["content"] for item in told["output"] if item["type"] == "message"]
        assert "".join(part["text"] for parts in messages for part in parts) == answer.output_text, stop


def test_a_text_has_the_log_probabilities_of_a_chat(ask, client, server):
    asked = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    whole = ask(**asked)
    *events, last = ask(stream=True, **asked)
    chat = client.chat.completions.create(
        model=server.model, messages=[{"role": "user", "content": ASKED}], temperature=0, max_tokens=48,
        logprobs=True, top_logprobs=2)  # fmt: skip
    (part,) = [part for item in whole.output if item.type == "message" for part in item.content]
    assert "".join(token.token for token in part.logprobs) == part.text
    # The text's tokens are the last ones of the chat's that are shown.
    of_chat = [token for token in chat.choices[0].logprobs.content if token.token]
    first = len(of_chat) - len(part.logprobs)
    first -= 1 if chat.choices[0].finish_reason == "stop" else 0
    for token, its in zip(part.logprobs, of_chat[first:], strict=False):
        assert (token.token, token.logprob, token.bytes) == (its.token, its.logprob, its.bytes)
        assert [top.token for top in token.top_logprobs] == [top.token for top in its.top_logprobs]
    assert last.response.output[-1].content[0].logprobs == part.logprobs
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    told = [token for event in deltas for token in event.logprobs]
    assert [(token.token, token.logprob) for token in told] == [
        (token.token, token.logprob) for token in part.logprobs
    ]
    kept = client.responses.retrieve(whole.id, include=["message.output_text.logprobs"])
    assert kept.output == whole.output


def test_a_stream_goes_on_behind_any_of_its_events(ask, client):
    events = list(ask(stream=True))
    for number in (0, 2, len(events) // 2, len(events) - 2):
        rest = list(client.responses.retrieve(events[-1].response.id, stream=True, starting_after=number))
        assert rest == events[number + 1:]


@pytest.mark.parametrize(
    "fields, param",
    [
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"background": True}, "background"),
        ({"include": ["message.output_text.chances"]}, "include"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input"),
    ],
)
def test_what_is_not_there_is_named(ask, fields, param):
    with pytest.raises(openai.BadRequestError) as refused:
        ask(**fields)
    assert refused.value.param == param


def test_a_stream_survives_the_loss_of_a_worker(troupe):
    fields = {"input": ASKED, "temperature": 1, "max_output_tokens": 400, "stream": True,
              "extra_body": {"seed": 5, "ignore_eos": True}}  # fmt: skip
    with running.Cluster() as cluster:
        cluster.up(running.DEMO, "--kv-cache-memory", "128MiB")
        client = openai.OpenAI(base_url=cluster.base_url + "/v1", api_key="none", max_retries=0, timeout=120)
        fields["model"] = client.models.list().data[0].id

        def read(events):
            return [event for event in client.responses.create(**fields) if events.append(event) is None][-1]

        expected = read([])

        seen, last = answer_in_spite_of_a_kill(
            cluster, lambda seen: (seen, read(seen)), lambda seen: len(seen) > 20
        )
        assert last.type == expected.type
        assert last.response.output_text == expected.response.output_text
        assert thoughts(last.response) == thoughts(expected.response)
        deltas = "".join(event.delta for event in seen if event.type == "response.output_text.delta")
        assert deltas == expected.response.output_text


def test_a_response_is_followed_after_the_head_died(troupe):
    with running.Cluster() as cluster:
        words = ["--min-devices", 2, "--kv-cache-memory", "64MiB"]
        head = cluster.head(running.DEMO, *words)
        cluster.wait_joinable()
        cluster.worker(), cluster.worker()
        cluster.wait_ready()
        client = openai.OpenAI(base_url=cluster.base_url + "/v1", api_key="none", max_retries=0, timeout=60)
        fields = {"model": running.DEMO.name, "temperature": 0, "max_output_tokens": 24}
        first = client.responses.create(input=ASKED, **fields)
        expected = client.responses.create(input="Then?", previous_response_id=first.id, **fields)
        head.kill()
        head.exit_code()
        cluster.head(running.DEMO, *words)
        cluster.wait_ready()
        after = client.responses.create(input="Then?", previous_response_id=first.id, **fields)
        assert after.output_text == expected.output_text
        # What is cached differs: nothing is after a head's return, or what its first life left.
        assert after.usage.input_tokens == expected.usage.input_tokens
        assert after.usage.output_tokens_details == expected.usage.output_tokens_details
        assert client.responses.retrieve(first.id).output == first.output
