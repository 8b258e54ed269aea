"""Grammars of regular expressions: random sentences are judged by Python's re, known texts are recognised."""

import random
import re

import pytest
from gbnf import Grammar
from promises import bound
from written import answer, answers, with_deep_stack

# (expression, texts that it matches as a whole, texts that it does not)
CASES = [
    ("", [""], ["a"]),
    ("abc", ["abc"], ["ab", "abcd", ""]),
    ("^abc$", ["abc"], ["abcd"]),
    ("a|bc|", ["a", "bc", ""], ["b", "abc"]),
    ("a*b+c?", ["b", "aabbc", "bc"], ["a", "c"]),
    ("(ab){2,3}", ["abab", "ababab"], ["ab", "abababab"]),
    ("a{2}b{1,}", ["aab", "aabbb"], ["ab", "aa"]),
    ("x*?y+?z??", ["y", "xxyyz"], ["x"]),
    ("a{b", ["a{b"], ["ab"]),
    ("[a-c_]+", ["abc_"], ["d", ""]),
    ("[^a-c\\s]", ["d", "-", "é"], ["a", " ", "\n"]),
    ("[\\w.-]+@[\\w-]+\\.com", ["a.b-c@d.com"], ["@d.com", "a@dcom"]),
    ("[a\\-z]", ["a", "-", "z"], ["b"]),
    ("[]-a]|x", None, None),
    ("\\d{3}-\\d{4}", ["123-4567"], ["123-456", "abc-defg", "١٢٣-4567"]),
    ("\\D\\W\\S", ["a b", "é.x"], ["1.x", "aax", "a. "]),
    ("(?:a|b)(?P<x>c)(d)", ["acd", "bcd"], ["cd"]),
    (".", ["a", "é", "\U0001f600", "\""], ["\n", "\r", ""]),
    ("\\x41\\u00e9\\t\\.\\/\\\\", ["Aé\t./\\"], ["A"]),
    ("\\U0001f600", None, None),
    ("[\\x00-\\x1f]", ["\x01", "\n"], [" "]),
    ("(a|b)*abb", ["abb", "aababb"], ["ab", "abba"]),
    ("^a|b$", ["a", "b"], ["ab"]),
    ("(^a|b)c", ["ac", "bc"], ["c"]),
    ("(a$|b)c|d$", ["bc", "d"], ["ac", "a"]),
    ("a{0}", [""], ["a"]),
    ("(a?){3}", ["", "a", "aaa"], ["aaaa"]),
    ("\"\\\\", ["\"\\"], ["\""]),
    ("[^\\d\\D]|a", ["a"], ["b"]),
    ("(?i)ab[c-e]\\d", ["abc1", "ABC1", "aBe2"], ["ab1", "éb1", "abf1"]),
    ("(?i)[^a]", ["b", "1"], ["a", "A"]),
    ("a(?i:b)c", ["abc", "aBc"], ["ABC", "abC"]),
    ("^(?=.*[a-z])(?=.*\\d)[A-Za-z\\d]{3,}$", ["ab1", "1Ab"], ["abc", "A12", "a1", "ab1-"]),
    ("^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$", ["1.5", "-.5", "+0"], ["", "-", ".", "+-"]),
    ("^(?!\\.)(?!.*\\.\\.)([a-z.]*)[a-z]@(x\\.)+[a-z]{2,}$", ["a.b@x.de", "a@x.x.de"],
     [".a@x.de", "a..b@x.de", "a.@x.de"]),
]
REFUSED = {
    "(?=a)": "look-ahead", "(?!a)": "look-ahead", "(?<=a)": "look-behind", "(?<!a)": "look-behind",
    "(a)\\1": "back-reference", "(?P<n>a)(?P=n)": "back-reference", "\\k<n>": "back-reference",
    "\\ba": "word boundary", "a(?i)b": "inline flags", "(?s).": "inline flags",
    "(?>a)": "atomic", "a*+": "possessive", "a++": "possessive",
    "a{,3}": "{0,n}", "\\p{Han}": "general categories", "\\p{L": "general categories",
    "(?=a)b|c": "look-ahead", "^(?=a)b|c": "look-ahead in one of several",
    "a**": "repetition", "*a": "nothing to repeat",
    "(a": "does not end",
    "a)": "without", "[a": "does not end", "[z-a]": "wrong way", "a{3,2}": "wrong way", "\\": "at the end",
    "a{20000}": "more than 10000", "(a{200}){200}": "more than 10000", "[[:alpha:]]": "named class",
    "\\ud83d": "no character", "\\xg1": "hexadecimal", "(" * 150 + ")" * 150: "groups",
    "a" * 70_000: "bytes", "[]a]": "first in a class", "\\q": "\\q is not",
}
# What takes long to read, or much memory.
TOO_MUCH = {"categories": "\\pL" * 16_000, "classes": "[" + "\\pL" * 16_000 + "]", "digits": "\\d" * 30_000}
TABLE = [case for case in CASES if case[1] is not None]
GRAMMARS = answers([{"regex": case[0]} for case in TABLE])


@pytest.mark.parametrize("number", range(len(TABLE)))
def test_case(number):
    expression, matching, others = TABLE[number]
    assert "grammar" in GRAMMARS[number], GRAMMARS[number]
    grammar = Grammar(GRAMMARS[number]["grammar"])
    assert not grammar.endless()
    judge = re.compile(expression)

    def run():
        for text in matching:
            assert grammar.accepts(text) and judge.fullmatch(text), text
        for text in others:
            assert not grammar.accepts(text), text
        rng = random.Random(number)
        for _ in range(60):
            text = grammar.sentence(rng)
            assert judge.fullmatch(text), text
    with_deep_stack(run)


def test_categories():
    """Python's re has none."""
    grammar = Grammar(answer(regex="\\p{Lu}\\pL*[\\p{Nd}_]\\P{L}?")["grammar"])
    for text in ("A1", "\u00c9t\u00e9_", "\u042f7-"):
        assert grammar.accepts(text), text
    for text in ("a1", "A", "A1x", "\u4e2d1"):
        assert not grammar.accepts(text), text


@pytest.mark.parametrize("expression", REFUSED)
def test_refused(expression):
    told = answer(regex=expression)
    assert REFUSED[expression] in told.get("error", ""), told


@pytest.mark.parametrize("name", TOO_MUCH)
def test_too_much_is_refused(name):
    told = answer(regex=TOO_MUCH[name])
    assert "so many classes of characters" in told.get("error", ""), told
    bound("refused", told["ms"] / 1000, 5)


def test_long_ones_are_read_at_once():
    signs = "".join(map(chr, range(0x4E00, 0x4E00 + 21_000)))
    told = answer(regex="^" * 65_000), answer(regex=f"[{signs}]")
    assert "grammar" in told[1], told[1]
    for one in told:
        bound("read", one["ms"] / 1000, 5)


ATOMS = ["a", "b", "c", "[ab]", "[^a]", ".", "\\d", "\\w", "\\S", "\\.", "é", "^", "$"]


def random_expression(rng, depth):
    kind = rng.random()
    if depth == 0 or kind < 0.3:
        return rng.choice(ATOMS)
    if kind < 0.55:
        return "".join(random_expression(rng, depth - 1) for _ in range(rng.randint(1, 3)))
    if kind < 0.75:
        return "(" + "|".join(random_expression(rng, depth - 1) for _ in range(rng.randint(1, 3))) + ")"
    inside = random_expression(rng, depth - 1)
    return f"(?:{inside})" + rng.choice(["*", "+", "?", "{2}", "{1,2}", "*?"])


def test_random_expressions():
    """Whole texts, and found in strings as "pattern" has it, against Python for all short texts."""
    rng = random.Random(11)
    expressions = list(dict.fromkeys(random_expression(rng, 3) for _ in range(400)))
    texts = [""]
    for text in texts:
        if len(text) < 4:
            texts.extend(text + c for c in "ab1")
    told = answers([{"regex": expression} for expression in expressions])
    found = answers([{"schema": '{"type": "string", "pattern": %s}' % _quoted(expression)}
                     for expression in expressions])

    def run():
        compared = 0
        for expression, whole, search in zip(expressions, told, found, strict=True):
            judge = re.compile(expression)
            if "grammar" in whole:
                grammar = Grammar(whole["grammar"])
                for text in texts:
                    assert grammar.accepts(text) == bool(judge.fullmatch(text)), (expression, text)
                    compared += 1
            if "grammar" in search:
                grammar = Grammar(search["grammar"])
                for text in texts[::3]:
                    assert grammar.accepts(f'"{text}"') == bool(judge.search(text)), (expression, text)
            elif "no value" in search["error"]:
                assert not any(judge.search(text) for text in texts), expression
        assert compared > 10_000
    with_deep_stack(run)


def _quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def test_choice():
    texts = ["yes", "no", 'a "quoted" \\ line\n', "é", "yesterday"]
    grammar = Grammar(answer(choice=texts)["grammar"])
    rng = random.Random(5)
    assert {grammar.sentence(rng) for _ in range(200)} == set(texts)
    assert all(map(grammar.accepts, texts)) and not grammar.accepts("ye")
