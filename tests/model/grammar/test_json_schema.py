"""Grammars of JSON schemas: jsonschema judges random sentences, known instances are recognised."""

import json
import random
from decimal import Decimal

import pytest
from gbnf import Grammar
from jsonschema import Draft202012Validator
from promises import bound
from schema_cases import CASES, REFUSED
from written import answer, answers, with_deep_stack

SENTENCES = 60


def schema_text(schema):
    return schema if isinstance(schema, str) else json.dumps(schema)


GRAMMARS = answers([{"schema": schema_text(case[0])} for case in CASES])


def spellings(value):
    """Compact, Python's default, and indented."""
    yield json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for indent in (None, 2, 4, "\t"):
        yield json.dumps(value, ensure_ascii=False, indent=indent)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_case(number):
    schema, valid, invalid = CASES[number]
    assert "grammar" in GRAMMARS[number], GRAMMARS[number]
    grammar = Grammar(GRAMMARS[number]["grammar"])
    assert not grammar.endless()
    validator = Draft202012Validator(schema)

    def judge():
        for value in valid:
            for text in spellings(value):
                assert grammar.accepts(text), text
        for value in invalid:
            for text in spellings(value):
                assert not grammar.accepts(text), text
        rng = random.Random(number)
        for _ in range(SENTENCES):
            text = grammar.sentence(rng)
            validator.validate(json.loads(text))
            assert text == text.strip()
            assert grammar.accepts(text)
    with_deep_stack(judge)


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refused(number):
    schema, message = REFUSED[number]
    told = answer(schema=schema_text(schema))
    assert message in told.get("error", ""), told


# --- Hostile schemas ---------------------------------------------------------------------------

def doubling(levels):
    """Each definition needs the next one twice: 2^levels if it were written out."""
    defs = {f"d{i}": {"type": "object", "properties": {"l": {"$ref": f"#/$defs/d{i + 1}"},
                                                       "r": {"$ref": f"#/$defs/d{i + 1}"}}}
            for i in range(levels)}
    defs[f"d{levels}"] = {"type": "null"}
    return {"$ref": "#/$defs/d0", "$defs": defs}


def nested(levels, schema):
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def scattered(count):
    """So many characters of which no two are neighbours."""
    return "".join(chr(0x4E00 + 2 * i) for i in range(count) if not 0xD800 <= 0x4E00 + 2 * i < 0xE000)


def word(number):
    """One of three letters."""
    return "".join(chr(97 + number // 26**place % 26) for place in range(3))


HOSTILE = {
    "doubling": doubling(100),
    "deep": nested(90, {"type": "null"}),
    "enum of many": {"enum": [f"value {i}" for i in range(10_000)]},
    "many required": {"type": "object", "required": [f"r{i}" for i in range(1_000)]},
    "many optional": {"type": "object", "properties": {f"name{i}": {"type": "integer"} for i in range(500)}},
    "many items": {"type": "array", "items": {"type": "integer"}, "minItems": 100_000},
    "long": {"type": "string", "maxLength": 10**9},
    "large": {"type": "number", "maximum": 1e308},
    "a set again and again": {"type": "string", "minLength": 9,
                              "pattern": f"(?:(?:[{scattered(20_000)}]?){{100}}){{280}}"},
    "text of 1 MB": {"const": "x" * 1_000_000},
}


TOO_MUCH = {
    "too long": json.dumps({"const": "x" * (1 << 20)}),
    "too deep": nested(201, {}),
    "pattern": {"type": "string", "pattern": "((a{100}){100}){100}"},
    "pattern of states": {"type": "string", "pattern": "(a|b)*a(a|b){15}", "maxLength": 9_000},
    "alternatives": {"allOf": [{"anyOf": [{"minimum": i}, {"maximum": -i}, {"pattern": f"a{i}"}]}
                               for i in range(1, 15)]},
    "chain": {"$ref": "#/$defs/0", "$defs": {str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(9_000)}},
    "long id": {"$id": "x" * 500_000, "x": [{"$anchor": str(i)} for i in range(20_000)]},
    "long name": {"properties": {"n" * 500_000: {"dependentRequired": {f"a{i}": [] for i in range(2_000)}}}},
    "one of many": {"oneOf": [{"const": i} for i in range(20_000)]},
    "unlike constants": {"const": list(range(100_000)), "uniqueItems": True},
    "unlike items": {"type": "array", "items": {"enum": list(range(100_000))}, "uniqueItems": True},
    "words and patterns": {"properties": {f"p{i}": {"allOf": [{"$ref": "#/$defs/e"}, {"pattern": f"a.*{i}$"}]}
                                          for i in range(100)},
                           "$defs": {"e": {"enum": [f"{i:010}" for i in range(60_000)]}}},
    "many not": {"properties": {f"p{i}": {"type": "string", "maxLength": 6, "allOf": [
        {"not": {"pattern": word(j * 37 + i * 1009)}} for j in range(1990)]} for i in range(17)}},
    "many automata": {"properties": {"x": {}},
                      "patternProperties": {f"^a{{300}}{i}$": {} for i in range(10_000)}},
    "digits that exclude": {"properties": {f"p{i}": {
        "type": "number", "not": {"const": json.loads(f"{i}.5")}, "minimum": 0, "maximum": i + 1 / 3}
        for i in range(8000)}},
    "large sets": {"type": "string", "maxLength": 3990,
                   "pattern": f"^(?:[{scattered(10_000)}][{scattered(10_000)}])*$"},
    "many searches": {"properties": {f"p{i}": {"type": "string", "pattern": "(a|b)*a(a|b){15}"}
                                     for i in range(13_000)}},
    "look-aheads": {"type": "string", "pattern": "^" + "".join(f"(?=.*{c})" for c in "abcdefghijk")
                    + "(?=.*a)" * 9000 + "[a-k]*$"},
    "a long name": {"properties": {"b" * 700_000: {}},
                    "patternProperties": {chr(0x4E00 + i): {} for i in range(20_000)}},
    "steps of ten": {"properties": {f"p{i}": {
        "type": "integer", "minimum": 10**49 + 7, "maximum": 10**49 + 10**48, "multipleOf": 10**50}
        for i in range(4000)}},
    "excluded words": {"$defs": {"e": {"enum": [f"a{i}" for i in range(40_000)]}},
                       "properties": {f"p{i}": {"type": "boolean", "not": {"$ref": "#/$defs/e"}}
                                      for i in range(7000)}},
    "like lists": {"allOf": [{"enum": [[1] * 270 + [i + j] for i in range(550)]} for j in (0, 1000)]},
    "many steps": {"properties": {f"p{i}": {"type": "integer", "multipleOf": 1000 + i} for i in range(400)}},
    "names and patterns": {"properties": {f"n{i}": {} for i in range(20_000)},
                           "patternProperties": {f"p{i}": {} for i in range(20_000)}},
    "many contained": {"allOf": [{"contains": {"title": str(i)}, "minContains": 1000} for i in range(1000)]},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_is_written(name):
    told = answer(schema=schema_text(HOSTILE[name]))
    assert "grammar" in told, told
    assert len(told["grammar"]) < 4 << 20
    bound("written", told["ms"] / 1000, 5)
    if name != "many items":
        text = Grammar(told["grammar"]).sentence(random.Random(1), budget=1)
        Draft202012Validator(HOSTILE[name]).validate(json.loads(text))


@pytest.mark.parametrize("name", TOO_MUCH)
def test_too_much_is_refused(name):
    told = answer(schema=schema_text(TOO_MUCH[name]))
    assert "error" in told, told["grammar"][:200]
    bound("refused", told["ms"] / 1000, 10)


@pytest.mark.parametrize("step", ["0.5", "0.25", "0.75", "0.125", "2.5"])
def test_decimal_steps_are_exact(step):
    """Others are refused, since Python's jsonschema divides doubles and says no to 0.3 by 0.1."""
    for bounds in ("", ', "minimum": -1, "maximum": 2.5'):
        schema = '{"type": "number", "multipleOf": %s%s}' % (step, bounds)
        grammar = Grammar(answer(schema=schema)["grammar"])
        rng = random.Random(step)
        for _ in range(SENTENCES):
            number = grammar.sentence(rng)
            assert Decimal(number) % Decimal(step) == 0
            Draft202012Validator(json.loads(schema)).validate(json.loads(number))
        for times in range(9):
            value = Decimal(times) * Decimal(step)
            assert grammar.accepts(str(value)) == (not bounds or value <= Decimal("2.5")), value


def test_grammar_grows_with_the_schema():
    def size(count):
        schema = {"type": "object", "properties": {f"name{i}": {"type": "integer"} for i in range(count)}}
        return len(answer(schema=json.dumps(schema))["grammar"])
    assert size(400) < 5 * size(100)


def test_known_names_are_not_free_names():
    names = {"a": {"type": "integer"}, "ab": {"type": "integer"}}
    schema = {"type": "object", "properties": names, "additionalProperties": True}
    grammar = Grammar(answer(schema=json.dumps(schema))["grammar"])
    assert grammar.accepts('{"a":1,"abc":null}')
    for text in ('{"a":null}', '{"\\u0061":null}', '{"a":1,"a":2}', '{"ab":1,"a":1}', '{"\\u0061b":null}'):
        assert not grammar.accepts(text), text


def test_no_white_space_without_end():
    grammar = Grammar(answer(value=True)["grammar"])
    assert grammar.accepts('{"a": [1,\n        2]}')
    for text in (" 1", "1 ", "[" + " " * 50 + "1]", "[\n\n1]", "\n[]"):
        assert not grammar.accepts(text), text


def test_strings_hold_no_half_pairs():
    grammar = Grammar(answer(schema='{"type": "string"}')["grammar"])
    for text in (r'"\ud83d\ude00"', r'"\u00e9\/\b"', '"\U0001f600"', r'"\uD7FF\uE000"'):
        assert grammar.accepts(text), text
    for text in (r'"\ud83d"', r'"\ude00"', r'"\ud83d\u0061"', '"\n"', r'"\x"', r'"\u12"', '"', '"a"b"'):
        assert not grammar.accepts(text), text


def test_random_values():
    """json_object and json_value make what Python reads."""
    rng = random.Random(3)
    for order, kind in (({"object": True}, dict), ({"value": True}, object)):
        grammar = Grammar(answer(**order)["grammar"])
        for _ in range(300):
            assert isinstance(json.loads(grammar.sentence(rng)), kind)
