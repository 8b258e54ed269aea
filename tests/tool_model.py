"""Models with a chat template that knows tools: none has ever learnt them."""

import json
import shutil

import running

# As Qwen's template has it, over the demo's tokens.
TEMPLATE = """{%- if tools %}
  {{- '# Tools\\n\\nYou are provided with function signatures within <tools></tools> XML tags:\\n<tools>' }}
  {%- for tool in tools %}{{ '\\n' + (tool | tojson) }}{% endfor %}
  {{- '\\n</tools>\\n\\nFor each function call, return a json object with function name and arguments within '
      '<tool_call></tool_call> XML tags:\\n<tool_call>\\n{"name": <function-name>, "arguments": '
      '<args-json-object>}\\n</tool_call>\\n' }}
{%- endif %}
{%- for m in messages %}
  {%- if m.role == 'user' %}{{ '<｜User｜>' + m.content }}
  {%- elif m.role == 'tool' %}{{ '<｜User｜><tool_response>\\n' + m.content + '\\n</tool_response>' }}
  {%- elif m.role == 'assistant' %}
    {{- '<｜Assistant｜>' + (m.content or '') }}
    {%- for call in m.tool_calls or [] %}
      {{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": '
          + (call.function.arguments | tojson) + '}\\n</tool_call>' }}
    {%- endfor %}
  {%- endif %}
{%- endfor %}
{{- '<｜Assistant｜>' }}
"""


# What a template is told by that has another form of calls.
FORMS = {"hermes": "<tool_call>", "deepseek": "<｜tool▁calls▁begin｜>", "glm": "<arg_key>",
         "harmony": "<|channel|>"}  # fmt: skip


def template_of(form):
    return "{#- " + FORMS[form] + " #}" + TEMPLATE


def with_tools(folder, form="hermes"):
    """The demo model's folder, below this one."""
    model = folder / "with-tools"
    shutil.copytree(running.DEMO, model)
    (model / "chat_template.jinja").write_text(template_of(form))
    return model


# Tokens of their own in GLM's tokenizer.
GLM_TAGS = ["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"]


def of_random_weights(folder, form="hermes"):
    """A model of the demo's kind and tokens that says anything, with room for long prompts."""
    model = folder / "random"
    config = json.loads((running.DEMO / "config.json").read_text())
    tags = GLM_TAGS if form == "glm" else []
    first = config["vocab_size"]
    config.update(num_hidden_layers=2, max_position_embeddings=32768, num_nextn_predict_layers=0,
                  vocab_size=first + len(tags))  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    made = running.run("bench", "make-model", "--config", folder / "config.json", "--seed", 7, "--out", model)
    assert made.returncode == 0, made.stderr
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(running.DEMO / name, model / name)
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    for id, tag in enumerate(tags, first):
        like = tokenizer["added_tokens"][-1]
        tokenizer["added_tokens"].append({**like, "id": id, "content": tag, "special": False})
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    (model / "chat_template.jinja").write_text(template_of(form))
    return model
