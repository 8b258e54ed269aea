"""Writes chat_cases.json: what Jinja makes of DeepSeek's chat templates, which ChatFormat must match.

Run by hand when a template is added (needs jinja2). The templates are the published ones without their
branches for tool calls, which Troupe does not render.
"""

import json
from pathlib import Path

from jinja2.sandbox import ImmutableSandboxedEnvironment

ROOT = Path(__file__).resolve().parents[3]
BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
DEFAULT = "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}"
SYSTEM_LAST = ("{%- for message in messages %}{%- if message['role'] == 'system' %}"
               "{% set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}")
SYSTEM_ADDED = ("{%- for message in messages %}{%- if message['role'] == 'system' %}"
                "{% set ns.system_prompt = ns.system_prompt + message['content'] %}{%- endif %}{%- endfor %}")
SYSTEM_BLANK_LINE = (
    "{%- for message in messages %}{%- if message['role'] == 'system' %}{%- if ns.is_first_sp %}"
    "{% set ns.system_prompt = ns.system_prompt + message['content'] %}{% set ns.is_first_sp = false %}"
    "{%- else %}{% set ns.system_prompt = ns.system_prompt + '\\n\\n' + message['content'] %}{%- endif %}"
    "{%- endif %}{%- endfor %}")
NAMESPACE = ("{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='', "
             "is_first_sp=true, is_last_user=false) %}")
V3_TURNS = (
    "{{bos_token}}{{ns.system_prompt}}{%- for message in messages %}{%- if message['role'] == 'user' %}"
    "{%- set ns.is_tool = false -%}{{'<｜User｜>' + message['content']}}{%- endif %}"
    "{%- if message['role'] == 'assistant' and message['content'] is not none %}"
    "{{'<｜Assistant｜>' + message['content'] + '<｜end▁of▁sentence｜>'}}{%- endif %}{%- endfor -%}")
R1_TURNS = (
    "{{ bos_token }}{{ ns.system_prompt }}{%- for message in messages %}{%- if message['role'] == 'user' %}"
    "{%- set ns.is_tool = false -%}{{'<｜User｜>' + message['content']}}{%- endif %}"
    "{%- if message['role'] == 'assistant' and 'tool_calls' not in message %}"
    "{% set content = message['content'] %}{% if '</think>' in content %}"
    "{% set content = content.split('</think>')[-1] %}{% endif %}"
    "{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}{%- endif %}{%- endfor -%}")
R1_0528_TURNS = (
    "{{ bos_token }}{{ ns.system_prompt }}{%- for message in messages %}"
    "{% set content = message['content'] %}"
    "{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{%- set ns.is_first = false -%}"
    "{%- set ns.is_last_user = true -%}{{'<｜User｜>' + content + '<｜Assistant｜>'}}{%- endif %}"
    "{%- if message['role'] == 'assistant' %}{% if '</think>' in content %}"
    "{% set content = content.split('</think>')[-1] %}{% endif %}{% endif %}"
    "{%- if message['role'] == 'assistant' %}{%- set ns.is_last_user = false -%}"
    "{{content + '<｜end▁of▁sentence｜>'}}{%- endif %}{%- endfor -%}"
    "{% if add_generation_prompt and not ns.is_last_user and not ns.is_tool %}{{'<｜Assistant｜>'}}{% endif %}")
V3_0324_TURNS = (
    "{{ bos_token }}{{ ns.system_prompt }}{%- for message in messages %}{%- if message['role'] == 'user' %}"
    "{%- set ns.is_tool = false -%}{%- set ns.is_last_user = true -%}"
    "{{'<｜User｜>' + message['content'] + '<｜Assistant｜>'}}{%- endif %}"
    "{%- if message['role'] == 'assistant' %}{%- set ns.is_last_user = false -%}"
    "{{message['content'] + '<｜end▁of▁sentence｜>'}}{%- endif %}{%- endfor -%}"
    "{% if add_generation_prompt and not ns.is_last_user and not ns.is_tool %}{{'<｜Assistant｜>'}}{% endif %}")

TEMPLATES = {
    "deepseek-v2": [DEFAULT + (
        "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}"
        "{{ 'User: ' + message['content'] + '\n\n' }}{% elif message['role'] == 'assistant' %}"
        "{{ 'Assistant: ' + message['content'] + eos_token }}{% elif message['role'] == 'system' %}"
        "{{ message['content'] + '\n\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}")],
    "deepseek-v3": [
        DEFAULT + NAMESPACE + SYSTEM_LAST + V3_TURNS +
        "{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜>'}}{% endif %}",
        DEFAULT + NAMESPACE + SYSTEM_ADDED + V3_TURNS +
        "{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜>'}}{% endif %}",
        DEFAULT + NAMESPACE + SYSTEM_BLANK_LINE + V3_TURNS +
        "{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜>'}}{% endif %}",
        DEFAULT + NAMESPACE + SYSTEM_BLANK_LINE + V3_0324_TURNS],
    "deepseek-r1": [
        DEFAULT + NAMESPACE + SYSTEM_BLANK_LINE + R1_TURNS +
        "{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜><think>\\n'}}{% endif %}",
        DEFAULT + NAMESPACE + SYSTEM_LAST + R1_TURNS +
        "{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜>'}}{% endif %}",
        DEFAULT + NAMESPACE + SYSTEM_BLANK_LINE + R1_0528_TURNS,
        json.loads((ROOT / "tools/demo/pocket-dictionary/tokenizer_config.json").read_text())[
            "chat_template"]],
}

S, U, A = "system", "user", "assistant"
CHATS = [
    [(U, "Hi")],
    [(S, "Be brief."), (U, "Hi")],
    [(S, "One."), (S, "Two."), (U, "Hi")],
    [(U, "Hi"), (A, "Hello!"), (U, "And?\n")],
    [(U, "Hi"), (A, "<think>\nhm </think> so\n</think>\n\nHello!"), (U, " ")],
    [(U, "Hi"), (A, "half an ans")],
    [(U, "a"), (S, "late"), (U, "b")],
    [(A, "first"), (U, "è<｜User｜>")],
    [(S, "only")],
    [(U, ""), (A, "")],
]


def main():
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    cases = []
    for family, templates in TEMPLATES.items():
        for text in templates:
            template = environment.from_string(text)
            rendered = []
            for chat in CHATS:
                for prompt in (True, False):
                    messages = [{"role": role, "content": content} for role, content in chat]
                    rendered.append({
                        "messages": messages, "add_generation_prompt": prompt,
                        "expected": template.render(messages=messages, add_generation_prompt=prompt,
                                                    bos_token=BOS, eos_token=EOS)})
            cases.append({"family": family, "template": text,
                          "opens_think": "<think>\\n" in text, "chats": rendered})
    out = json.dumps(cases, ensure_ascii=False, indent=1)
    (Path(__file__).parent / "chat_cases.json").write_text(out + "\n")


main()
