"""Broken checkpoints: `generate` says in one sentence which file and tensor, and never crashes."""

import json
import os
import shutil
import struct
import subprocess

import pytest

from running import TROUPE, V2_LITE, V3, run

SHARD = "model-00002-of-00002.safetensors"


@pytest.fixture
def copy(tmp_path):
    """A checkpoint of two files with an index, to be broken."""
    folder = tmp_path / "model"
    shutil.copytree(V3, folder)
    return folder


def refused(folder, *named):
    done = run("generate", "--model", folder, "--prompt-ids", "0,5", "--max-tokens", 1, "--log-level",
               "warn")  # fmt: skip
    assert done.returncode in (1, 2), (done.returncode, done.stderr)
    lines = done.stderr.strip().splitlines()
    assert lines[-1].startswith("troupe: ") and lines[-1].endswith("."), done.stderr
    assert not done.stdout
    for word in named:
        assert word in lines[-1], lines[-1]


def read_header(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def edit_header(path, change):
    """Writes the file again with a header that `change` has had its way with; tells a tensor's name."""
    header, body = read_header(path)
    name = next(n for n in sorted(header) if n != "__metadata__" and ".layers.3." in n)
    change(header, name)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return name


def edit_config(folder, **values):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for key, value in values.items():
        config[key] = value
        if value is None:
            del config[key]
    path.write_text(json.dumps(config))


def test_the_copy_works(copy):
    assert run("generate", "--model", copy, "--prompt-ids", "0,5", "--max-tokens", 1).returncode == 0


@pytest.mark.parametrize("keep", [0, 4, 8, 100, -1, -4096])
def test_a_truncated_file(copy, keep):
    path = copy / SHARD
    size = path.stat().st_size
    os.truncate(path, keep if keep >= 0 else size + keep)
    refused(copy, SHARD)


@pytest.mark.parametrize("length", [0, 1, 1 << 30, 1 << 62, (1 << 64) - 1])
def test_a_header_length_that_cannot_be(copy, length):
    path = copy / SHARD
    data = bytearray(path.read_bytes())
    data[:8] = struct.pack("<Q", length)
    path.write_bytes(data)
    refused(copy, SHARD)


@pytest.mark.parametrize("text", [b"{", b"[]", b"[" * 100000, b"\xff\xfe", b"null", b"{}"])
def test_a_header_that_is_no_table(copy, text):
    (copy / SHARD).write_bytes(struct.pack("<Q", len(text)) + text)
    refused(copy, SHARD)


def move_offsets(first, last):
    def change(header, name):
        begin, end = header[name]["data_offsets"]
        header[name]["data_offsets"] = [begin + first, end + last]

    return change


def overlap(header, name):
    begin, end = header[name]["data_offsets"]
    other = next(n for n in header if n not in (name, "__metadata__"))
    b, _ = header[other]["data_offsets"]
    header[name]["data_offsets"] = [b, b + end - begin]


@pytest.mark.parametrize(
    "change",
    [
        overlap,
        move_offsets(1 << 40, 1 << 40),
        move_offsets(-(1 << 40), 0),
        move_offsets(0, 2),
        move_offsets(2, 0),
        lambda h, n: h[n].update(data_offsets=[1.5, 2]),
        lambda h, n: h[n].update(data_offsets=[1]),
        lambda h, n: h[n].update(data_offsets="all"),
        lambda h, n: h[n].pop("data_offsets"),
        lambda h, n: h[n].pop("dtype"),
        lambda h, n: h[n].update(dtype="F64"),
        lambda h, n: h[n].update(dtype="I8"),
        lambda h, n: h[n].update(dtype=7),
        lambda h, n: h[n].update(shape=[1, 2, 3]),
        lambda h, n: h[n].update(shape=[-1]),
        lambda h, n: h[n].update(shape=[1 << 62, 1 << 62]),
        lambda h, n: h[n].update(shape="wide"),
        lambda h, n: h.update({n: 5}),
    ],
    ids=[
        "overlap", "beyond", "before", "longer", "shorter", "fraction", "one", "text", "no offsets",
        "no dtype", "F64", "I8", "number", "shape", "negative", "absurd", "no shape", "no table",
    ],
)  # fmt: skip
def test_a_wrong_entry_of_a_tensor(copy, change):
    name = edit_header(copy / SHARD, change)
    refused(copy, SHARD, name)


def test_a_missing_tensor(copy):
    name = edit_header(copy / SHARD, lambda h, name: h.update({"other": h.pop(name)}))
    refused(copy, name)


def put(path, name, at, data):
    """Overwrites bytes of a tensor, the header kept."""
    header, _ = read_header(path)
    with open(path, "r+b") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        file.seek(8 + length + header[name]["data_offsets"][0] + at)
        file.write(data)


@pytest.mark.parametrize("bits", [b"\xc0\x7f", b"\x80\x7f", b"\x80\xff"], ids=["NaN", "inf", "-inf"])
def test_weights_that_are_no_numbers(copy, bits):
    name = "model.layers.3.mlp.experts.5.down_proj.weight"
    header, _ = read_header(copy / SHARD)
    columns = header[name]["shape"][1]
    put(copy / SHARD, name, 2 * (3 * columns + 7), bits)
    refused(copy, SHARD, name, "NaN or an infinity", "[3, 7]")


def test_a_fifo_in_place_of_a_file(copy):
    (copy / SHARD).unlink()
    os.mkfifo(copy / SHARD)
    refused(copy, SHARD, "regular file")


def test_a_file_in_place_of_the_folder(copy):
    refused(copy / "config.json", "GGUF", "the folder of a checkpoint")


def under_strace(folder, *inject):
    """`generate` on storage whose reads of weights go wrong."""
    words = ["strace", "-f", "-o", "/dev/null", "-P", str(folder / SHARD), "-e", "trace=pread64"]
    words += [word for fault in inject for word in ("-e", f"inject=pread64:{fault}")]
    return subprocess.run(
        [*words, str(TROUPE), "generate", "--model", str(folder), "--prompt-ids", "0,5", "--max-tokens", "1",
         "--log-level", "warn"], capture_output=True, text=True, timeout=60)  # fmt: skip


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
@pytest.mark.parametrize("error, text", [("EIO", "Input/output error"), ("ESTALE", "Stale file handle")])
def test_a_block_that_cannot_be_read(copy, error, text):
    done = under_strace(copy, f"error={error}:when=20+")
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1, (done.returncode, done.stderr)
    for word in (SHARD, "tensor model.", "at byte", text):
        assert word in last, done.stderr


def test_a_missing_file(copy):
    (copy / SHARD).unlink()
    refused(copy, SHARD)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"weight_map": 5}', '{"weight_map": {"a": 7}}', "{}"])
def test_a_broken_index(copy, text):
    (copy / "model.safetensors.index.json").write_text(text)
    refused(copy, "model.safetensors.index.json")


@pytest.mark.parametrize("name", ["../model-00002-of-00002.safetensors", "/etc/passwd"])
def test_an_index_that_leads_out_of_the_folder(copy, name):
    path = copy / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"] = {tensor: name for tensor in index["weight_map"]}
    path.write_text(json.dumps(index))
    refused(copy, "model.safetensors.index.json")


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100000, "nul", '{"a": NaN}'])
def test_a_broken_config(copy, text):
    (copy / "config.json").write_text(text)
    refused(copy, "config.json")


@pytest.mark.parametrize(
    "key",
    ["model_type", "hidden_size", "num_hidden_layers", "vocab_size", "kv_lora_rank", "n_routed_experts",
     "num_experts_per_tok", "num_attention_heads", "qk_rope_head_dim", "v_head_dim",
     "moe_intermediate_size"],
)  # fmt: skip
def test_a_missing_key_of_the_config(copy, key):
    edit_config(copy, **{key: None})
    refused(copy, "config.json", key)


@pytest.mark.parametrize(
    "key, value",
    [
        ("hidden_size", -1),
        ("hidden_size", 0),
        ("hidden_size", 1 << 60),
        ("hidden_size", 1.5),
        ("hidden_size", "wide"),
        ("num_hidden_layers", 10**9),
        ("vocab_size", 0),
        ("n_routed_experts", 10**9),
        ("num_experts_per_tok", 0),
        ("num_experts_per_tok", 1000),
        ("n_group", 3),
        ("topk_group", 100),
        ("rms_norm_eps", -1),
        ("rope_theta", 0),
        ("model_type", "llama"),
        ("model_type", 5),
        ("rope_scaling", 5),
        ("hidden_act", "relu"),
        ("kv_lora_rank", [1]),
        ("qk_rope_head_dim", 7),
    ],
)
def test_a_value_of_the_config_that_cannot_be(copy, key, value):
    edit_config(copy, **{key: value})
    refused(copy, "config.json", key)


@pytest.mark.parametrize("key", ["hidden_size", "vocab_size", "num_hidden_layers", "kv_lora_rank"])
def test_a_config_that_does_not_fit_the_tensors(copy, key):
    config = json.loads((copy / "config.json").read_text())
    edit_config(copy, **{key: config[key] * 2})
    refused(copy)


def test_a_symlink_loop(copy):
    for name in (SHARD, "config.json"):
        path = copy / name
        path.unlink()
        path.symlink_to(path)
        refused(copy, name)


def test_things_that_are_no_files(copy):
    path = copy / SHARD
    path.unlink()
    path.mkdir()
    refused(copy, SHARD)
    path.rmdir()
    os.mkfifo(path)
    refused(copy, SHARD)
    path.unlink()
    path.symlink_to("/dev/zero")
    refused(copy, SHARD)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file(copy):
    (copy / SHARD).chmod(0)
    refused(copy, SHARD)


def test_a_folder_without_anything(tmp_path):
    refused(tmp_path, "config.json")
    shutil.copy(V2_LITE / "config.json", tmp_path)
    refused(tmp_path, str(tmp_path))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"model": {"type": "Unigram"}}', "[" * 100000])
def test_a_broken_tokenizer(copy, text):
    (copy / "tokenizer.json").write_text(text)
    refused(copy, "tokenizer.json")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"top_p": NaN}'])
def test_a_broken_generation_config_is_advice_that_is_not_taken(copy, text):
    (copy / "generation_config.json").write_text(text)
    done = run("generate", "--model", copy, "--prompt-ids", "1,2", "--max-tokens", 1)
    assert done.returncode == 0, done.stderr


def test_weights_that_are_not_numbers_give_an_error_and_no_token(copy):
    path = copy / SHARD
    header, body = read_header(path)
    begin, _ = header["model.norm.weight"]["data_offsets"]
    body = bytearray(body)
    body[begin : begin + 2] = struct.pack("<H", 0x7FC0)  # a NaN in bf16
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    refused(copy, "NaN")
