"""The prompts and functions of the Berkeley function calling leaderboard, as its own package has them."""

import json
import random
import re

import packages

# Sets of single turns; "irrelevance" has functions that do not fit what is asked.
SETS = ["simple_python", "simple_java", "simple_javascript", "multiple", "parallel", "parallel_multiple",
        "live_simple", "live_multiple", "live_parallel", "live_parallel_multiple", "irrelevance"]  # fmt: skip
# Asks for a list that is one of some texts: no arguments are right.
IMPOSSIBLE = {"live_simple_71-35-0"}
# What its functions call a type, as the package's own table has it; anything else is a text.
TYPES = {"integer": "integer", "number": "number", "float": "number", "string": "string",
         "boolean": "boolean", "bool": "boolean", "array": "array", "list": "array", "dict": "object",
         "object": "object", "tuple": "array", "any": "string", "byte": "integer", "short": "integer",
         "long": "integer", "double": "number", "char": "string", "ArrayList": "array", "Array": "array",
         "HashMap": "object", "Hashtable": "object", "Queue": "array", "Stack": "array", "Any": "string",
         "String": "string", "Bigint": "integer"}  # fmt: skip


def as_json_schema(schema):
    """A part of a function's parameters, with JSON schema's names for types."""
    made = dict(schema)
    made["type"] = TYPES.get(made.get("type"), "string")
    if "properties" in made:
        made["properties"] = {name: as_json_schema(part) for name, part in made["properties"].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(made.get(name), dict):
            made[name] = as_json_schema(made[name])
    return made


def as_tool(function):
    # OpenAI's names of functions have no dots.
    made = {"name": re.sub(r"\.", "_", function["name"]), "description": function["description"],
            "parameters": as_json_schema({**function["parameters"], "type": "dict"})}  # fmt: skip
    return {"type": "function", "function": made}


def read_set(name):
    """(id, messages, tools) of each prompt."""
    path = packages.folder("bfcl_eval") / "data" / f"BFCL_v4_{name}.json"
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        yield entry["id"], entry["question"][0], [as_tool(function) for function in entry["function"]]


def prompts():
    return [prompt for name in SETS for prompt in read_set(name) if prompt[0] not in IMPOSSIBLE]


def sample(count, seed):
    return random.Random(seed).sample(prompts(), count)
