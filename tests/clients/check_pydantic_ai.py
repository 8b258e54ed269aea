"""pydantic-ai: agents with tools, and their output as a tool, in the answer's form or asked for."""

import asyncio

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput, UsageLimits
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider
from words import HOT, MODEL, QUESTION, URL, Entry, Rhymes, Word

PROVIDER = OpenAIProvider(base_url=URL, api_key="none")
CHAT = OpenAIChatModel(MODEL, provider=PROVIDER)
SETTINGS = {**HOT, "seed": 4}
OUTPUTS = {"tool": ToolOutput(Entry), "native": NativeOutput(Entry)}


@pytest.mark.parametrize("output", OUTPUTS)
def test_an_output_has_its_type(output):
    agent = Agent(CHAT, output_type=OUTPUTS[output], model_settings=SETTINGS)
    assert isinstance(agent.run_sync(QUESTION).output, Entry)


@pytest.mark.parametrize("output", OUTPUTS)
def test_a_stream_ends_with_its_type(output):
    agent = Agent(CHAT, output_type=OUTPUTS[output], model_settings=SETTINGS)

    async def ask():
        async with agent.run_stream(QUESTION) as result:
            return [part async for part in result.stream_output(debounce_by=None)]

    parts = asyncio.run(ask())
    assert len(parts) > 1 and Entry.model_validate(parts[-1].model_dump())


class Anything(BaseModel):
    """Any JSON object is one."""

    remark: object = None


def test_an_output_that_is_asked_for_in_words():
    agent = Agent(CHAT, output_type=PromptedOutput(Anything), model_settings=SETTINGS, retries=5)
    assert isinstance(agent.run_sync(QUESTION).output, Anything)
    # Where the client knows of no JSON mode, vLLM's field holds the model to what the words say.
    plain = OpenAIChatModel(
        MODEL, provider=PROVIDER, profile=OpenAIModelProfile(supports_json_object_output=False)
    )
    held = {**SETTINGS, "extra_body": {"guided_json": Entry.model_json_schema()}}
    agent = Agent(plain, output_type=PromptedOutput(Entry), model_settings=held)
    assert isinstance(agent.run_sync(QUESTION).output, Entry)


def test_several_types_of_output():
    agent = Agent(CHAT, output_type=[Entry, Rhymes], model_settings=SETTINGS)
    assert isinstance(agent.run_sync(QUESTION).output, Entry | Rhymes)


@pytest.mark.parametrize("output", OUTPUTS)
def test_tools_are_called_before_the_output(output):
    agent = Agent(CHAT, output_type=OUTPUTS[output], model_settings=HOT)
    called = []

    @agent.tool_plain
    def look_up(word: Word) -> str:
        """Looks a word up."""
        called.append(word)
        return "a stream of water"

    for seed in range(4):
        result = agent.run_sync(QUESTION, model_settings={"seed": seed},
                                usage_limits=UsageLimits(request_limit=30))  # fmt: skip
        assert isinstance(result.output, Entry)
    assert called, "what may be called is called at times"


def test_responses():
    model = OpenAIResponsesModel(MODEL, provider=PROVIDER)
    agent = Agent(model, output_type=ToolOutput(Entry), model_settings=HOT)
    assert isinstance(agent.run_sync(QUESTION).output, Entry)
