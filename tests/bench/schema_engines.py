"""Peers of our grammar engine behind the lines of schema_bench.cpp; schema_peers.py starts them.

    schema_engines.py ENGINE MODEL      ENGINE: xgrammar or llguidance
"""

import json
import sys
import time

import tokenizers


def us():
    return time.process_time_ns() / 1e3


class XGrammar:
    """With its own defaults: any white space, no members but those that the schema names."""

    def __init__(self, _, tokenizer, end):
        import xgrammar
        self.xgrammar, self.end = xgrammar, end
        size = tokenizer.get_vocab_size()
        info = xgrammar.TokenizerInfo([tokenizer.id_to_token(i) or "" for i in range(size)],
                                      vocab_type=xgrammar.VocabType.BYTE_LEVEL, vocab_size=size,
                                      stop_token_ids=[end])  # fmt: skip
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.mask = xgrammar.allocate_token_bitmask(1, size)

    def compile(self, schema):
        self.grammar = self.compiler.compile_json_schema(schema)

    def begin(self):
        self.matcher = self.xgrammar.GrammarMatcher(self.grammar)

    def step(self, token):
        self.matcher.fill_next_token_bitmask(self.mask)
        return self.matcher.accept_token(token)

    def complete(self):
        return self.matcher.accept_token(self.end)


class LLGuidance:
    def __init__(self, path, _, end):
        import llguidance
        import llguidance.numpy
        self.of, self.fill = llguidance.LLMatcher, llguidance.numpy.fill_next_token_bitmask
        self.tokenizer = llguidance.LLTokenizer(path, eos_token=end)
        self.mask = llguidance.numpy.allocate_token_bitmask(1, self.tokenizer.vocab_size)

    def compile(self, schema):
        self.first = self.of(self.tokenizer, self.of.grammar_from_json_schema(schema))
        if self.first.is_error():
            raise ValueError(self.first.get_error())

    def begin(self):
        self.matcher = self.first.deep_copy()

    def step(self, token):
        self.fill(self.matcher, self.mask, 0)
        if not self.mask[0, token // 32] >> token % 32 & 1:
            return False
        return self.matcher.consume_token(token)

    def complete(self):
        return self.matcher.is_accepting()


def follow(engine, ids):
    engine.begin()
    times = []
    for token in ids:
        start = us()
        accepted = engine.step(token)
        times.append(us() - start)
        if not accepted:
            return {"accepted": False, "mask_us": times}
    return {"accepted": engine.complete(), "mask_us": times}


def answer(engine, order):
    start = us()
    try:
        engine.compile(order["schema"])
    except Exception as error:
        return {"compile_us": us() - start, "error": str(error)}
    took = us() - start
    return {"compile_us": took, "tests": [follow(engine, ids) for ids in order["tests"]]}


def main():
    name, path = sys.argv[1], sys.argv[2] + "/tokenizer.json"
    tokenizer = tokenizers.Tokenizer.from_file(path)
    end = tokenizer.token_to_id("<｜end▁of▁sentence｜>")
    engine = {"llguidance": LLGuidance, "xgrammar": XGrammar}[name](path, tokenizer, end)
    for line in sys.stdin:
        print(json.dumps(answer(engine, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
