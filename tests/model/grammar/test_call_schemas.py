"""Calls of tools in each format: what is read of random answers satisfies the tool's schema."""

import json
import random

import pytest
from gbnf import Grammar
from jsonschema import Draft202012Validator
from schema_cases import CASES
from written import answer, answers, with_deep_stack

# Numbers of ToolStyle (model/chat/tool_style.h) but the first, which calls in no way.
STYLES = range(1, 9)
GLM = 5
SENTENCES = 12


def taking(schema, **beside):
    return {"type": "object", "properties": {"w": schema}, "required": ["w"], "additionalProperties": False,
            **beside}


NEAR_TAGS = ["<", "</arg_value", "x</div>", "null", "12", " [1]", "\"q\"", "", "true "]
OBJECTS = [case[0] for case in CASES if isinstance(case[0], dict) and case[0].get("type") == "object"]
SCHEMAS = [taking(case[0]) for case in CASES if "$ref" not in json.dumps(case[0])] + OBJECTS + [
    taking({"type": "string", "minLength": 200}),
    taking({"type": "string", "maxLength": 5000}),
    taking({"type": "string", "pattern": "^[</a]{3,9}$"}),
    taking({"type": "string", "pattern": "<"}),
    taking({"type": "string", "pattern": "^.{3,2000}$"}),
    taking({"type": "string", "not": {"const": "a"}}),
    taking({"type": "string", "enum": NEAR_TAGS}),
    taking({"enum": [*NEAR_TAGS, None, 12, {"a": "</arg_value>"}]}),
    taking({"type": ["string", "null"], "maxLength": 4}),
    taking({"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "boolean"}]}),
    taking({"anyOf": [{"type": "string", "pattern": "^null *$"}, {"type": "null"}]}),
    taking({"$ref": "#/$defs/e"}, **{"$defs": {"e": {"type": "string", "enum": ["1", "b"]}}}),
    taking({"allOf": [{"type": "string"}, {"pattern": "^[0-9]+$"}]}),
    {"type": "object", "$ref": "#/$defs/a", "$defs": {"a": taking({"type": "string", "const": "abc"})}},
    {"type": "object", "allOf": [{"required": ["x"]}, {"properties": {"x": {"type": "string"}}}]},
    {"type": "object", "anyOf": [taking({"const": 1}), taking({"const": "1"})]},
    {"type": "object", "additionalProperties": {"type": "string", "maxLength": 3}, "minProperties": 1},
    {"type": "object", "additionalProperties": {"type": "integer"}, "properties": {"a": {"type": "string"}}},
    {"type": "object", "const": {"a": "x", "b": [1, "</arg_value>"]}},
    {"type": "object", "properties": {"<k>": {"type": "string"}, " k": {}, "a</arg_key>": {}}},
    {"type": "object", "properties": {"next": {"$ref": "#"}, "v": {"type": "string", "maxLength": 2}},
     "required": ["v"]},
    {"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "integer"}}, "maxProperties": 1},
]


@pytest.mark.parametrize("style", STYLES)
def test_calls_satisfy_their_schema(style):
    orders = [{"style": style, "parameters": json.dumps(schema)} for schema in SCHEMAS]

    def judge():
        rng = random.Random(style)
        for order, written in zip(orders, answers(orders), strict=True):
            assert "grammar" in written, (order, written)
            grammar = Grammar(written["grammar"])
            assert not grammar.endless()
            order["read"] = [grammar.sentence(rng) for _ in range(SENTENCES)]
    with_deep_stack(judge)
    for schema, order, told in zip(SCHEMAS, orders, answers(orders), strict=True):
        validator = Draft202012Validator(schema)
        for text, read in zip(order["read"], told["calls"], strict=True):
            assert read["content"] == "" and len(read["arguments"]) == 1, (text, read)
            validator.validate(json.loads(read["arguments"][0]))


def glm_text(value, **beside):
    """Whether a call may have this between the tags of its value."""
    grammar = Grammar(answer(style=GLM, parameters=json.dumps(taking(beside)))["grammar"])
    return grammar.accepts("<tool_call>f\n<arg_key>w</arg_key>\n<arg_value>" + value +
                           "</arg_value>\n</tool_call>")


@pytest.mark.parametrize("text", ["a", "", "null", "a < b </div>\n<br>", "x<y", "\"a\" \\n", " b "])
def test_glm_writes_texts_as_they_are(text):
    assert glm_text(text, type="string")
    assert glm_text(text, type="string", maxLength=100)
    assert glm_text(text, type="string", minLength=0, pattern="")
    assert not glm_text(text, type="integer")
    assert not glm_text(text + "</arg_value>", type="string")
    assert not glm_text(text + "</arg_value>", type="string", maxLength=100)


@pytest.mark.parametrize("text, either", [
    ("abc", True), ("\"abc\"", True), ("null", False), ("nullable", True), ("12", False), ("true ", False),
    ("truth", True), ("[a", False), (" a", False), ("null\0", True)])
def test_glm_leaves_no_doubt_what_is_a_text(text, either):
    assert glm_text(text, anyOf=[{"type": "string"}, {"type": "object"}]) == either


def test_glm_names_what_it_cannot_write():
    for schema, message in (
            ({"type": "object", "required": ["a</arg_key>"]}, "#: \"required\": the name \"a</arg_key>\""),
            (taking({"type": "string", "const": "a</arg_value>"}), "#/properties/w/const: this value cannot"),
            (taking({"type": "string", "pattern": "^(a|b|<)*a.{14}$"}), "#/properties/w: ")):
        told = answer(style=GLM, parameters=json.dumps(schema))
        assert told.get("error", "").startswith("tools: f: " + message), told
