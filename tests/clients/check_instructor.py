"""instructor: each of its modes for servers like this one."""

import json

import instructor
import openai
import pytest
from instructor.core import IncompleteOutputException, InstructorRetryException
from words import CHAT, HOT, MODEL, URL, Entry, Rhymes

ASKED = {"model": MODEL, "messages": CHAT, "seed": 2, "max_retries": 0, **HOT}
FORCED = ["TOOLS", "TOOLS_STRICT", "JSON_SCHEMA"]


def client_of(mode):
    client = openai.OpenAI(base_url=URL, api_key="none", max_retries=0, timeout=120)
    return instructor.from_openai(client, mode=instructor.Mode[mode])


@pytest.mark.parametrize("mode", FORCED)
def test_an_answer_has_its_type(mode):
    assert isinstance(client_of(mode).create(response_model=Entry, **ASKED), Entry)


@pytest.mark.parametrize("mode", FORCED)
def test_a_stream_fills_its_type(mode):
    parts = list(client_of(mode).create_partial(response_model=Entry, **ASKED))
    assert len(parts) > 2
    Entry.model_validate(parts[-1].model_dump())


def test_a_list_of_answers():
    """As tools its schema lets the list out."""
    answers = client_of("JSON_SCHEMA").create_iterable(response_model=Rhymes, **ASKED)
    assert isinstance(next(iter(answers)), Rhymes)


def test_json_mode_gives_json():
    """What is in it depends on what the model has learnt, and how long it is, too."""
    ended = 0
    for seed in range(8):
        with pytest.raises((InstructorRetryException, IncompleteOutputException)) as failed:
            client_of("JSON").create(response_model=Entry, **{**ASKED, "seed": seed})
        choice = failed.value.last_completion.choices[0]
        assert choice.message.content.startswith("{")
        if choice.finish_reason == "stop":
            assert isinstance(json.loads(choice.message.content), dict)
            ended += 1
    assert ended > 0
