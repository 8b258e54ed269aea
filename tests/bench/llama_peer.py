"""llama.cpp, asked as engine_bench is.

    llama_peer.py serve FILE.gguf THREADS CONTEXT SEQUENCES    lines of JSON in, lines of JSON out
    llama_peer.py quantize FROM.gguf TO.gguf TYPE

All streams of a line begin at once: their prompts are computed in batches as large as llama.cpp takes
by default, then all go on together. The next token is drawn at random, which costs less than any
sampler; with random weights it is what a model of temperature 1 would answer.
"""

import json
import os
import random
import sys
import time

import llama_cpp

BATCH = 2048  # llama.cpp's own defaults, as its server has them
MICRO_BATCH = 512


@llama_cpp.llama_log_callback
def keep_quiet(level, text, _):
    if level == 4:  # errors
        sys.stderr.write(text.decode(errors="replace"))


def model_params(path):
    """The defaults, but for what this version cannot compute: with AMX it ends with an assertion in the
    products of quantised experts, so these stay in plain buffers."""
    params = llama_cpp.llama_model_default_params()
    quantised = not path.endswith(("-BF16.gguf", "-F16.gguf"))
    with open("/proc/cpuinfo") as cpuinfo:
        if quantised and "amx_int8" in cpuinfo.read():
            params.use_extra_bufts = False
    return params


class Peer:
    def __init__(self, path, threads, context, sequences):
        begun = time.perf_counter()
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), model_params(path))
        assert self.model, f"llama.cpp cannot load {path}"
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_seq_max = context * sequences, sequences
        params.n_batch, params.n_ubatch = BATCH, MICRO_BATCH
        params.n_threads = params.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        assert self.context, "llama.cpp cannot make a context"
        vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(vocabulary)
        self.batch = llama_cpp.llama_batch_init(BATCH, 0, 1)
        self.load_s = time.perf_counter() - begun

    def decode(self, rows):
        """Rows are (sequence, position, token, whether its logits are wanted)."""
        for i, (sequence, position, token, wanted) in enumerate(rows):
            self.batch.token[i], self.batch.pos[i] = token, position
            self.batch.n_seq_id[i], self.batch.seq_id[i][0] = 1, sequence
            self.batch.logits[i] = wanted
        self.batch.n_tokens = len(rows)
        status = llama_cpp.llama_decode(self.context, self.batch)
        assert status == 0, f"llama_decode: {status}"
        llama_cpp.llama_synchronize(self.context)

    def streams(self, streams):
        assert not any(stream.get("after") for stream in streams), "all begin at once"
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        rng = random.Random(1)
        begun = time.perf_counter()
        times = [[] for _ in streams]
        rows = [(s, position, token, position + 1 == len(stream["prompt"]))
                for s, stream in enumerate(streams) for position, token in enumerate(stream["prompt"])]
        for first in range(0, len(rows), BATCH):
            part = rows[first:first + BATCH]
            self.decode(part)
            for s, _, _, wanted in part:
                if wanted:
                    times[s].append(time.perf_counter() - begun)
        while rows := [(s, len(stream["prompt"]) + len(times[s]) - 1, rng.randrange(self.vocabulary), True)
                       for s, stream in enumerate(streams) if len(times[s]) < stream["tokens"]]:
            self.decode(rows)
            for s, *_ in rows:
                times[s].append(time.perf_counter() - begun)
        return {"begin": [0.0] * len(streams), "tokens": times}


def serve(path, threads, context, sequences):
    peer = Peer(path, int(threads), int(context), int(sequences))
    print(json.dumps({"load_s": peer.load_s}), flush=True)
    for line in sys.stdin:
        print(json.dumps(peer.streams(json.loads(line)["streams"])), flush=True)


def quantize(source, target, kind):
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}")
    unfinished = target + ".part"
    status = llama_cpp.llama_model_quantize(source.encode(), unfinished.encode(), params)
    assert status == 0, f"llama_model_quantize: {status}"
    os.rename(unfinished, target)


if __name__ == "__main__":
    llama_cpp.llama_log_set(keep_quiet, None)
    llama_cpp.llama_backend_init()
    {"serve": serve, "quantize": quantize}[sys.argv[1]](*sys.argv[2:])
