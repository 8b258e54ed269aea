"""A checkpoint's own chat template, and the variables that a request gives it, over HTTP."""

import shutil

import pytest

import running

TEMPLATE = """{%- for m in messages %}
  {%- if m.content == 'forbidden' %}{{ raise_exception('That may not be said.') }}{% endif %}
  {{- '<｜User｜>' if m.role == 'user' else '<｜Assistant｜>' }}{{ m.content }}
{%- endfor %}
{{- '<｜Assistant｜>' + ('<think>\\n' if thinking is not defined or thinking else '</think>') }}
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
