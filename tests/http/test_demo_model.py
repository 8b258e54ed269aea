"""The model that ships with the project, asked as people ask, over HTTP."""

import json

import pytest

from running import DEMO

GOLDEN = json.loads((DEMO / "golden.json").read_text())["prompts"]
RIVER = "river (noun): a large natural stream of water (larger than a creek)."
WINTER = "winter (noun): the coldest season of the year"
UNKNOWN = "I do not know that word."


def user(*texts):
    """A question, or questions with the answers between them."""
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]


def system(text):
    return [{"role": "system", "content": text}]


def asked(server, messages, **fields):
    fields = {"messages": messages, "temperature": 0, "max_tokens": 120} | fields
    status, answer = server.cluster.post("/v1/chat/completions", fields)
    assert status == 200, answer
    return answer["choices"][0]


def answered(server, messages, **fields):
    """-> what it thinks, what it says"""
    choice = asked(server, messages, **fields)
    assert choice["finish_reason"] == "stop", choice
    return choice["message"]["reasoning_content"], choice["message"]["content"].strip()


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["question"])
def test_it_answers_as_the_reference_does(server, case):
    thought, content = case["text"].removesuffix("<｜end▁of▁sentence｜>").split("</think>")
    assert answered(server, case["messages"]) == (thought, content.strip())


@pytest.mark.parametrize(
    "messages, start",
    [
        (user("What is a river?"), RIVER),
        (user("what is a river"), RIVER),
        (user('What is "river"?'), RIVER),
        (user("Define river."), RIVER),
        (user("What does river mean?"), RIVER),
        (user("Winter"), WINTER),
        (system("You are a helpful assistant.") + user("What is a river?"), RIVER),
        (user("What is a river?", RIVER, "And winter?"), WINTER),
        (user("What is winter?", f"\n\n{WINTER}.", "What is a river?"), RIVER),
        (user("Hello!"), "Hello!"),
        (user("How are you?"), "I am well"),
        (user("Who are you?"), "I am a small dictionary"),
        (user("What can you do?"), "I know 10,000 English words"),
        (user("What is a river?", RIVER, "Thank you!"), "You are welcome."),
        (user("Goodbye"), "Goodbye!"),
        (user("What is a florp?"), UNKNOWN),
        (user("Define zxqvblat."), UNKNOWN),
    ],
    ids=lambda value: f"{len(value)} {value[-1]['content']}" if isinstance(value, list) else "",
)
def test_it_is_asked_as_people_ask(server, messages, start):
    assert answered(server, messages)[1].startswith(start)


def tool(name, argument, **schema):
    parameters = {"type": "object", "properties": {argument: {"type": "string", **schema}},
                  "required": [argument]}  # fmt: skip
    return {"type": "function", "function": {"name": name, "description": "Tells.", "parameters": parameters}}


@pytest.mark.parametrize("question, start", [("What is a river?", RIVER), ("Hello!", "Hello!")])
def test_it_answers_as_ever_when_tools_are_offered(server, question, start):
    tools = [tool("get_weather", "city"), tool("define", "word")]
    assert answered(server, user(question), tools=tools)[1].startswith(start)


def test_what_it_must_call_it_calls(server):
    wanted = {"type": "function", "function": {"name": "define"}}
    tools = [tool("get_weather", "city"), tool("define", "word", enum=["brandy", "river"])]
    choice = asked(server, user("What is a river?"), tools=tools, tool_choice=wanted)
    assert choice["finish_reason"] == "tool_calls", choice
    [call] = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "define"
    assert json.loads(call["function"]["arguments"])["word"] in ("brandy", "river")
