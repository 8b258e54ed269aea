"""A checkpoint's own chat template, and what a request gives it, over HTTP."""

import json
import shutil

import openai
import pytest

import running

TEMPLATE = """{%- set here = namespace(thinks=thinking is not defined or thinking) %}
{%- for m in messages %}
  {%- if m.content == 'forbidden' %}{{ raise_exception('That may not be said.') }}{% endif %}
  {%- if '/no_think' in m.content %}{% set here.thinks = false %}{% endif %}
  {{- {'user': '<｜User｜>', 'assistant': '<｜Assistant｜>'}.get(m.role, m.role + ':') }}
  {{- '(' + m.name + ')' if m.name }}{{ '{' + m.reasoning_content + '}' if m.reasoning_content }}
  {{- m.plan | tojson if m.plan }}
  {%- if m.content is string %}{{ m.content }}{% else %}
    {%- for part in m.content %}[{{ part.text }}]{% endfor %}
  {%- endif %}
{%- endfor %}
{{- '<｜Assistant｜>' + ('<think>\\n' if here.thinks else '</think>') }}
"""


@pytest.fixture(scope="module")
def cluster(troupe, tmp_path_factory):
    model = tmp_path_factory.mktemp("model") / "own-template"
    shutil.copytree(running.DEMO, model)
    (model / "chat_template.jinja").write_text(TEMPLATE)
    with running.Cluster() as made:
        made.up(model)
        yield made


def ask(cluster, text, **more):
    return cluster.post("/v1/chat/completions", {
        "messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 8, **more})


def test_a_variable_changes_the_prompt_and_where_the_answer_begins(cluster):
    status, thinks = ask(cluster, "river")
    assert status == 200, thinks
    message = thinks["choices"][0]["message"]
    assert message["reasoning_content"] and not message["content"]

    status, answers = ask(cluster, "river", chat_template_kwargs={"thinking": False})
    assert status == 200, answers
    message = answers["choices"][0]["message"]
    assert message["content"] and not message["reasoning_content"]


@pytest.mark.parametrize("turns, thinks", [(["river"], True), (["/no_think", "river"], False)])
def test_a_message_changes_where_the_answer_begins(cluster, turns, thinks):
    client = openai.OpenAI(base_url=cluster.base_url + "/v1", api_key="none", max_retries=0, timeout=120)
    args = dict(model=client.models.list().data[0].id, temperature=0, max_tokens=8,
                messages=[{"role": "user", "content": turn} for turn in turns])
    answer = client.chat.completions.create(**args)
    whole = answer.choices[0].message.to_dict()
    said, silent = ("reasoning_content", "content") if thinks else ("content", "reasoning_content")
    assert whole[said] and not whole[silent]
    found = json.loads(running.get(cluster.base_url, f"/v1/requests/{answer.id}"))
    assert found["choices"][0]["message"] == whole
    chunks = client.chat.completions.create(**args, stream=True)
    deltas = [chunk.choices[0].delta.to_dict() for chunk in chunks]
    assert "".join(delta.get(said) or "" for delta in deltas) == whole[said]
    assert not any(delta.get(silent) for delta in deltas)


MESSAGES = [
    ({"role": "user", "name": "ann", "content": "a"}, "<｜User｜>(ann)a"),
    ({"role": "assistant", "content": "a", "reasoning_content": "so"}, "<｜Assistant｜>{so}a"),
    ({"role": "assistant", "content": None, "reasoning_content": "so"}, "<｜Assistant｜>{so}"),
    ({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
     "<｜User｜>[a][b]"),
    ({"role": "assistant", "content": "a", "plan": {"z": 1, "b": [None]}, "x": None},
     '<｜Assistant｜>{"z": 1, "b": [null]}a'),
    ({"role": "developer", "content": "a"}, "developer:a"),
]


def test_what_a_message_has_reaches_the_template(cluster):
    status, answer = cluster.post("/v1/chat/completions", {
        "messages": [message for message, _ in MESSAGES], "max_tokens": 1, "return_token_ids": True})
    assert status == 200, answer
    _, prompt = cluster.post("/detokenize", {"tokens": answer["prompt_token_ids"]})
    assert prompt["prompt"] == "".join(shown for _, shown in MESSAGES) + "<｜Assistant｜><think>\n"


@pytest.mark.parametrize("field", ["name", "reasoning_content", "tool_call_id"])
def test_what_cannot_reach_it_is_named(cluster, field):
    status, answer = cluster.post("/v1/chat/completions", {
        "messages": [{"role": "assistant", "content": "a"}, {"role": "user", "content": "a", field: 5}]})
    assert status == 400
    assert answer["error"]["message"] == f"messages[1].{field} must be a string."


def test_what_the_template_refuses_is_the_clients_error(cluster):
    status, answer = ask(cluster, "forbidden")
    assert status == 400
    assert answer["error"]["param"] == "messages"
    assert "That may not be said." in answer["error"]["message"]


@pytest.mark.parametrize("kwargs", [[1], {"messages": []}])
def test_bad_variables_are_named(cluster, kwargs):
    status, answer = ask(cluster, "river", chat_template_kwargs=kwargs)
    assert status == 400
    assert answer["error"]["param"] == "chat_template_kwargs"
