"""Anthropic's Messages API, by hand: tests/clients has their own client."""

import http.client
import json
import re

import pytest

import running
from streams import answer_in_spite_of_a_kill
from tool_model import with_tools

ASKED = [{"role": "user", "content": "Define the word: river"}]
TOOL = {
    "name": "look_up",
    "input_schema": {
        "type": "object", "properties": {"word": {"enum": ["moon", "river"]}},
        "required": ["word"], "additionalProperties": False}}  # fmt: skip
# What Claude Code sends beside the question.
HEADERS = {
    "Content-Type": "application/json", "X-Api-Key": "none", "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14"}  # fmt: skip


def send(port, body, path="/v1/messages", **headers):
    """(status, headers, body)"""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=running.PATIENCE_S)
    connection.request("POST", path, json.dumps(body), HEADERS | headers)
    response = connection.getresponse()
    return response.status, {name.lower(): value for name, value in response.getheaders()}, response


def events_of(lines):
    """The events of a stream, as they come."""
    kind = None
    for line in lines:
        line = line.decode().strip()
        if line.startswith("event: "):
            kind = line[7:]
        if line.startswith("data: "):
            event = json.loads(line[6:])
            assert event["type"] == kind
            yield event


def message_of(events):
    """The message that a client builds of them."""
    message, blocks, pieces = None, {}, {}
    for event in events:
        if event["type"] == "message_start":
            message = event["message"]
        if event["type"] == "content_block_start":
            blocks[event["index"]] = event["content_block"]
        if event["type"] == "content_block_delta":
            delta, block = event["delta"], blocks[event["index"]]
            for name in ("text", "thinking", "signature"):
                if name in delta:
                    block[name] += delta[name]
            if "partial_json" in delta:
                pieces[event["index"]] = pieces.get(event["index"], "") + delta["partial_json"]
        if event["type"] == "message_delta":
            message |= event["delta"] | {"usage": event["usage"]}
    for index, text in pieces.items():
        blocks[index]["input"] = json.loads(text)
    assert event["type"] == "message_stop"
    return message | {"content": list(blocks.values())}


def said(message):
    """What does not differ when it is said again."""
    return [{k: v for k, v in block.items() if k != "id"} for block in message["content"]]


@pytest.fixture(scope="module")
def ask(server):
    def asked(ok=True, port=server.cluster.http_port, model=server.model, **fields):
        body = {"model": model, "max_tokens": 48, "messages": ASKED, "temperature": 0} | fields
        status, _, response = send(port, body)
        assert (status == 200) == ok, status
        return message_of(events_of(response)) if body.get("stream") and ok else json.load(response)

    return asked


@pytest.fixture(scope="module")
def call(troupe, ask, tmp_path_factory):
    with running.Cluster() as cluster:
        cluster.up(with_tools(tmp_path_factory.mktemp("model")), "--kv-cache-memory", "64MiB")

        def called(**fields):
            fields = {"max_tokens": 200, "tools": [TOOL], "tool_choice": {"type": "any"}} | fields
            return ask(port=cluster.http_port, model="with-tools", **fields)

        yield called


def test_a_message_says_what_a_chat_says(ask, server):
    message = ask()
    status, chat = server.cluster.post(
        "/v1/chat/completions", {"messages": ASKED, "temperature": 0, "max_tokens": 48}
    )
    answer = chat["choices"][0]
    thinking, text = message["content"]
    assert thinking["type"] == "thinking" and thinking["signature"]
    assert thinking["thinking"] == answer["message"]["reasoning_content"]
    assert text == {"type": "text", "text": answer["message"]["content"]}
    assert message["stop_reason"] == "end_turn" and answer["finish_reason"] == "stop"
    usage = message["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == chat["usage"]["prompt_tokens"]
    assert usage["output_tokens"] == chat["usage"]["completion_tokens"]
    found = json.loads(running.get(server.base_url, f"/v1/requests/{message['id']}"))
    assert found["content"] == message["content"] and found["status"] == "finished"


def test_a_stream_says_it_piece_by_piece(ask):
    whole, streamed = ask(), ask(stream=True)
    assert said(streamed) == said(whole)
    for name in ("stop_reason", "stop_sequence", "model", "role", "type"):
        assert streamed[name] == whole[name]
    assert streamed["usage"]["output_tokens"] == whole["usage"]["output_tokens"]


def test_an_answer_says_which_sequence_stopped_it(ask):
    text = ask()["content"][-1]["text"]
    for stream in (False, True):
        stopped = ask(stop_sequences=["~~", text[9:15]], stream=stream)
        assert stopped["stop_reason"] == "stop_sequence" and stopped["stop_sequence"] == text[9:15]
        assert stopped["content"][-1]["text"] == text[:9]
        assert ask(max_tokens=20, stop_sequences=["~~"], stream=stream)["stop_reason"] == "max_tokens"
        # One among the first tokens, where none counts, did not.
        free = ask(stop_sequences=[text[9:15]], min_tokens=47, stream=stream)
        assert free["stop_reason"] in ("end_turn", "max_tokens") and free["stop_sequence"] is None
        assert text in free["content"][-1]["text"]


@pytest.fixture(scope="module")
def chat(server):
    def asked(messages, **fields):
        """What a chat says to this, and how many tokens it was asked."""
        body = {"messages": messages, "temperature": 0, "max_tokens": 48} | fields
        status, answer = server.cluster.post("/v1/chat/completions", body)
        assert status == 200, answer
        return answer["choices"][0]["message"]["content"], answer["usage"]["prompt_tokens"]

    return asked


def text_of(message):
    return "".join(block["text"] for block in message["content"] if block["type"] == "text")


def asked_tokens(message):
    return message["usage"]["input_tokens"] + message["usage"]["cache_read_input_tokens"]


def test_an_answer_goes_on_with_what_was_said(ask, chat):
    begun = [*ASKED, {"role": "assistant", "content": text_of(ask())[:20]}]
    after = ask(messages=begun)
    assert (text_of(after), asked_tokens(after)) == chat(begun, continue_final_message=True)
    assert asked_tokens(after) != chat(begun)[1]


def test_a_conversation_comes_back_as_it_was_said(ask, chat):
    first = ask()
    then = {"role": "user", "content": [{"type": "text", "text": "And the moon?", "cache_control": {}}]}
    after = ask(messages=[*ASKED, {"role": "assistant", "content": first["content"]}, then])
    thought = "".join(block["thinking"] for block in first["content"] if block["type"] == "thinking")
    turns = [*ASKED, {"role": "assistant", "content": text_of(first), "reasoning_content": thought},
             {"role": "user", "content": "And the moon?"}]  # fmt: skip
    assert (text_of(after), asked_tokens(after)) == chat(turns)
    assert text_of(first) and asked_tokens(after) > chat(turns[-1:])[1]


def test_what_must_be_called_is_called(call):
    for choice in ({"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "look_up"}):
        whole, streamed = call(tool_choice=choice), call(tool_choice=choice, stream=True)
        assert said(whole) == said(streamed)
        assert whole["stop_reason"] == streamed["stop_reason"] == "tool_use"
        (block,) = whole["content"]
        assert block["type"] == "tool_use" and block["input"]["word"] in ("moon", "river")
        result = {"type": "tool_result", "tool_use_id": block["id"], "content": "nothing", "is_error": True}
        turns = [*ASKED, {"role": "assistant", "content": [block]}, {"role": "user", "content": [result]}]
        assert call(messages=turns, tool_choice={"type": "auto"}, max_tokens=8)["usage"]


def test_an_answer_has_the_form_that_is_asked_for(call):
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"],
              "additionalProperties": False}  # fmt: skip
    form = {"type": "json_schema", "schema": schema}
    answer = call(tools=[], tool_choice=None, output_config={"format": form})
    assert json.loads(answer["content"][-1]["text"])["n"] in (1, 2)


def test_vllms_fields_of_a_chat_hold_here_too(call):
    for fields, form in (({"guided_choice": ["moon", "river"]}, "moon|river"),
                          ({"guided_regex": "[ab]{3}"}, "[ab]{3}"),
                          ({"allowed_token_ids": [97], "min_tokens": 4, "max_tokens": 4}, "(.)\\1{3}")):
        answer = call(tools=[], tool_choice=None, **fields)
        assert re.fullmatch(form, answer["content"][-1]["text"]), answer


def test_tokens_are_counted_as_they_are_asked(ask, server):
    for fields in ({}, {"system": "Be brief.", "messages": [*ASKED, {"role": "assistant", "content": "So"}]}):
        asked = {"model": server.model, "messages": ASKED} | fields
        status, _, response = send(server.cluster.http_port, asked, "/v1/messages/count_tokens")
        assert status == 200
        usage = ask(**fields, max_tokens=1)["usage"]
        count = json.load(response)["input_tokens"]
        assert count == usage["input_tokens"] + usage["cache_read_input_tokens"]


@pytest.mark.parametrize(
    "fields, status, kind, named",
    [
        ({"max_tokens": None}, 400, "invalid_request", "max_tokens"),
        ({"model": "claude"}, 404, "not_found", "claude"),
        ({"tools": [{"type": "web_search_20250305", "name": "w"}]}, 400, "invalid_request", "web_search"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, 400, "invalid_request", "video"),
        ({"thinking": {"type": "disabled"}}, 400, "invalid_request", "thinking"),
        ({"stop_token_ids": "a"}, 400, "invalid_request", "stop_token_ids must"),
        ({"stop_sequences": 3}, 400, "invalid_request", "stop_sequences"),
        ({"messages": [*ASKED, {"role": "assistant", "content": [{"type": "thinking", "thinking": "So"}]}]},
         400, "invalid_request", "a thought alone"),
    ],
)
def test_errors_are_told_as_anthropic_does(server, fields, status, kind, named):
    body = {"model": server.model, "max_tokens": 8, "messages": ASKED} | fields
    got, headers, response = send(server.cluster.http_port, body, **{"X-Request-Id": "mine"})
    answer = json.load(response)
    assert (got, answer["type"], answer["error"]["type"]) == (status, "error", kind + "_error")
    assert named in answer["error"]["message"]
    assert answer["request_id"] == headers["request-id"] == "mine"


def test_what_does_not_fit_is_said_in_numbers_that_clients_read(server):
    def refused(**fields):
        body = {"model": server.model, "max_tokens": 8, "messages": ASKED} | fields
        status, _, response = send(server.cluster.http_port, body)
        assert status == 400
        return json.load(response)["error"]

    models = json.loads(running.get(server.base_url, "/v1/models"))
    context = models["data"][0]["max_model_len"]
    error = refused(max_tokens=context)
    assert error["type"] == "invalid_request_error"
    # As Claude Code reads it.
    exceeds = re.match(r"input length and `max_tokens` exceed context limit: (\d+) \+ (\d+) > (\d+)",
                       error["message"])  # fmt: skip
    asked, output, limit = map(int, exceeds.groups())
    assert output == limit == context and 0 < asked < context
    refused(max_tokens=context - asked + 1)
    long = refused(messages=[{"role": "user", "content": "river " * context}])["message"]
    has, most = map(int, re.match(r"prompt is too long[^0-9]*(\d+)\s*tokens?\s*>\s*(\d+)", long).groups())
    assert has > most == context - 1


def test_a_conversation_with_an_image_goes_on(call):
    block = {"type": "tool_use", "id": "t1", "name": "look_up", "input": {"word": "moon"}}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0K"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [image]}
    turns = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]},
             {"role": "assistant", "content": [block]},
             {"role": "user", "content": [result]},
             {"role": "system", "content": "Be brief."}]  # fmt: skip
    shown = call(messages=turns, tool_choice={"type": "auto"}, max_tokens=8)
    turns[0]["content"].pop()
    less = call(messages=turns, tool_choice={"type": "auto"}, max_tokens=8)
    assert asked_tokens(shown) > asked_tokens(less)  # the image is a note


def test_a_message_survives_the_loss_of_a_worker_and_of_the_head(troupe):
    body = {"model": running.DEMO.name, "max_tokens": 400, "messages": ASKED, "temperature": 1, "seed": 5,
            "ignore_eos": True, "stop_sequences": ["~never~"], "stream": True}  # fmt: skip
    with running.Cluster() as cluster:
        words = ["--min-devices", 2, "--kv-cache-memory", "64MiB"]
        head = cluster.head(running.DEMO, *words)
        cluster.wait_joinable()
        cluster.worker(), cluster.worker()
        cluster.wait_ready()

        def read(seen, **headers):
            _, _, response = send(cluster.http_port, body, **headers)
            return message_of(seen.append(event) or event for event in events_of(response))

        expected = read([])
        key = {"Idempotency-Key": "once"}
        cluster.worker()  # One is left when one of them is killed, and a third.
        running.wait_until(lambda: len(cluster.joined_nodes()) == 3, "three have joined")
        answer = answer_in_spite_of_a_kill(cluster, read, lambda seen: len(seen) > 20)
        assert said(answer) == said(expected)
        cluster.wait_ready()

        _, _, response = send(cluster.http_port, body, **key)
        begun = events_of(response)
        first = next(begun)
        next(event for event in begun if event["type"] == "content_block_delta")
        head.kill()
        head.exit_code()
        cluster.head(running.DEMO, *words)
        cluster.wait_ready()
        again = read([], **key)
        assert again["id"] == first["message"]["id"]
        assert said(again) == said(expected) and again["stop_reason"] == "max_tokens"
