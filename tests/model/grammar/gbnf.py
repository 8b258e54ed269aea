"""A reader of the grammar notation that is slow and simple: it makes random sentences, and recognises them.

What model/grammar/ writes is judged by it, so it shares nothing with what is judged.
"""

import re

UNBOUNDED = 1 << 60
LAST = 0x10FFFF
SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"'}


class Reader:
    """Text to {rule: node}; a node is (kind, ...), its alternatives and parts in lists."""

    TOKEN = re.compile(r"\s*(?:#[^\n]*\n\s*)*")

    def __init__(self, text):
        self.text, self.at = text, 0

    def space(self):
        self.at = self.TOKEN.match(self.text, self.at).end()

    def rules(self):
        out = {}
        self.space()
        while self.at < len(self.text):
            name = self.name()
            assert name not in out, f"{name} is there twice"
            self.space()
            assert self.text.startswith("::=", self.at), self.text[self.at:self.at + 40]
            self.at += 3
            out[name] = self.alternatives()
        return out

    def name(self):
        found = re.compile(r"[A-Za-z][A-Za-z0-9-]*").match(self.text, self.at)
        assert found, self.text[self.at:self.at + 40]
        self.at = found.end()
        return found[0]

    def alternatives(self):
        out = [self.sequence()]
        while self.text[self.at:self.at + 1] == "|":
            self.at += 1
            out.append(self.sequence())
        return out[0] if len(out) == 1 else ("or", out)

    def sequence(self):
        parts = []
        while True:
            self.space()
            c = self.text[self.at:self.at + 1]
            if c in ("", "|", ")"):
                break
            if c.isalpha() and re.compile(r"[A-Za-z0-9-]+\s*::=").match(self.text, self.at):
                break
            parts.append(self.repeated(self.atom(c)))
        return parts[0] if len(parts) == 1 else ("and", parts)

    def atom(self, c):
        if c == '"':
            return ("text", self.literal())
        if c == "[":
            return ("set", self.char_class())
        if c == ".":
            self.at += 1
            return ("set", [(0, LAST)])
        if c == "(":
            self.at += 1
            inside = self.alternatives()
            assert self.text[self.at] == ")", self.text[self.at:self.at + 40]
            self.at += 1
            return inside
        return ("rule", self.name())

    def repeated(self, node):
        found = re.compile(r"[?*+]|\{(\d+)(,?)(\d*)\}").match(self.text, self.at)
        if not found:
            return node
        self.at = found.end()
        low, high = {"?": (0, 1), "*": (0, UNBOUNDED), "+": (1, UNBOUNDED)}.get(found[0], (None, None))
        if low is None:
            low = int(found[1])
            high = low if not found[2] else int(found[3]) if found[3] else UNBOUNDED
        assert low <= high
        return ("repeat", node, low, high)

    def character(self):
        c = self.text[self.at]
        self.at += 1
        if c != "\\":
            return c
        c = self.text[self.at]
        self.at += 1
        if c in SIMPLE:
            return SIMPLE[c]
        digits = {"x": 2, "u": 4, "U": 8}[c]
        self.at += digits
        return chr(int(self.text[self.at - digits:self.at], 16))

    def literal(self):
        self.at += 1
        out = ""
        while self.text[self.at] != '"':
            out += self.character()
        self.at += 1
        return out

    def char_class(self):
        self.at += 1
        negated = self.text[self.at] == "^"
        self.at += negated
        out = []
        while self.text[self.at] != "]":
            first = last = self.character()
            if self.text[self.at] == "-" and self.text[self.at + 1] != "]":
                self.at += 1
                last = self.character()
            assert first <= last
            out.append((ord(first), ord(last)))
        self.at += 1
        assert out or negated
        return inverse(out) if negated else out


def inverse(ranges):
    out, after = [], 0
    for first, last in sorted(ranges):
        if first > after:
            out.append((after, first - 1))
        after = max(after, last + 1)
    if after <= LAST:
        out.append((after, LAST))
    return out


class Grammar:
    def __init__(self, text):
        self.rules = Reader(text).rules()
        self.cost = {name: UNBOUNDED for name in self.rules}
        self.find_costs()

    def find_costs(self):
        """How many characters the shortest sentence of each rule has; all have one, or text never ends."""
        users = {name: set() for name in self.rules}
        for name, node in self.rules.items():
            for used in names_in(node):
                users[used].add(name)
        waiting = dict.fromkeys(self.rules)
        while waiting:
            name, _ = waiting.popitem()
            cost = self.cost_of(self.rules[name])
            if cost < self.cost[name]:
                self.cost[name] = cost
                waiting |= dict.fromkeys(users[name])

    def cost_of(self, node):
        kind = node[0]
        if kind == "text":
            return len(node[1])
        if kind == "set":
            return 1
        if kind == "rule":
            return self.cost[node[1]]
        if kind == "or":
            return min(map(self.cost_of, node[1]))
        if kind == "and":
            return min(UNBOUNDED, sum(map(self.cost_of, node[1])))
        return min(UNBOUNDED, self.cost_of(node[1]) * node[2]) if node[2] else 0

    def endless(self):
        return [name for name, cost in self.cost.items() if cost >= UNBOUNDED]

    def sentence(self, rng, budget=60):
        """A random sentence: anything while fewer than `budget` choices were made, then the shortest way."""
        out, open_nodes, choices = [], [("rule", "root")], 0
        while open_nodes:
            node = open_nodes.pop()
            kind = node[0]
            if kind == "text":
                out.append(node[1])
            elif kind == "set":
                out.append(chr(random_code(rng, node[1])))
            elif kind == "rule":
                open_nodes.append(self.rules[node[1]])
            elif kind == "and":
                open_nodes.extend(reversed(node[1]))
            elif kind == "or":
                choices += 1
                ways = [way for way in node[1] if self.cost_of(way) < UNBOUNDED]
                open_nodes.append(rng.choice(ways) if choices < budget else min(ways, key=self.cost_of))
            else:
                _, inner, low, high = node
                choices += 1
                count = low
                if choices < budget:
                    while count < high and count < low + 12 and rng.random() < 0.6:
                        count += 1
                    if rng.random() < 0.03 and high < low + 300:
                        count = high
                open_nodes.extend([inner] * count)
        return "".join(out)

    def accepts(self, text):
        return len(text) in Recogniser(self.rules, text).ends(("rule", "root"), 0)


def random_code(rng, ranges):
    """Bounds are the likely mistakes; whole planes of rare characters are not."""
    first, last = rng.choice(ranges)
    if rng.random() < 0.2:
        code = rng.choice((first, last))
    else:
        code = rng.randint(first, min(last, first + 100) if rng.random() < 0.8 else last)
    return code if not 0xD800 <= code <= 0xDFFF else 0xE000 if last >= 0xE000 else first


def names_in(node):
    if node[0] == "rule":
        yield node[1]
    elif node[0] in ("or", "and"):
        for part in node[1]:
            yield from names_in(part)
    elif node[0] == "repeat":
        yield from names_in(node[1])


class Recogniser:
    """Where a node may end that begins at a place, found by trying; rules are kept by place."""

    def __init__(self, rules, text):
        self.rules, self.text, self.known = rules, text, {}

    def ends(self, node, at):
        kind = node[0]
        if kind == "text":
            return {at + len(node[1])} if self.text.startswith(node[1], at) else set()
        if kind == "set":
            if at >= len(self.text):
                return set()
            code = ord(self.text[at])
            return {at + 1} if any(first <= code <= last for first, last in node[1]) else set()
        if kind == "rule":
            key = node[1], at
            if key not in self.known:
                self.known[key] = set()  # no rule begins with itself
                self.known[key] = self.ends(self.rules[node[1]], at)
            return self.known[key]
        if kind == "or":
            return set().union(*(self.ends(way, at) for way in node[1]))
        if kind == "and":
            places = {at}
            for part in node[1]:
                places = set().union(*(self.ends(part, place) for place in places))
                if not places:
                    break
            return places
        return self.ends_repeated(node, at)

    def ends_repeated(self, node, at):
        _, inner, low, high = node
        places, found, count = {at}, {at} if low == 0 else set(), 0
        seen = set()
        while places and count < high:
            places = set().union(*(self.ends(inner, place) for place in places))
            count += 1
            if count >= low:
                places -= found if count > low else set()
                found |= places
            elif frozenset(places) in seen and places == {at}:
                return {at}  # empty, however often
            seen.add(frozenset(places))
        return found
