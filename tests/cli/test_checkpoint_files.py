"""Checkpoints as people have them: what their files say twice, say elsewhere or carry along."""

import json
import os
import shutil
import struct

import pytest

from running import DEMO, GOLDEN, V3, generate, run

INDEX = "model.safetensors.index.json"
IDS = "0,5,9,17,33"


def answer(folder, *words):
    return generate(folder, "--prompt-ids", IDS, "--max-tokens", 8, "--temperature", 0, "--ignore-eos",
                    *words)["tokens"]  # fmt: skip


@pytest.fixture
def copy_of(tmp_path):
    def copy(model):
        folder = tmp_path / model.name
        shutil.copytree(model, folder, copy_function=shutil.copyfile)
        return folder

    return copy


def edit(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_the_index_decides_between_two_copies(copy_of):
    folder = copy_of(V3)
    index = json.loads((folder / INDEX).read_text())
    shard = folder / index["weight_map"]["model.norm.weight"]
    data = bytearray(shard.read_bytes())
    (length,) = struct.unpack_from("<Q", data)
    entry = json.loads(data[8 : 8 + length])["model.norm.weight"]
    begin, end = (8 + length + at for at in entry["data_offsets"])
    header = json.dumps({"model.norm.weight": {**entry, "data_offsets": [0, end - begin]}}).encode()
    overlay = struct.pack("<Q", len(header)) + header + data[begin:end]
    (folder / "overlay.safetensors").write_bytes(overlay)
    data[begin:end] = bytes(end - begin)  # the stale copy
    shard.write_bytes(data)
    assert answer(folder) != answer(V3)
    index["weight_map"] |= {"model.norm.weight": "overlay.safetensors", "nobody.needs": "gone.safetensors"}
    (folder / INDEX).write_text(json.dumps(index))
    (folder / "adapter_model.safetensors").write_bytes(b"something else")
    assert answer(folder) == answer(V3)
    done = run("generate", "--model", folder, "--prompt-ids", IDS, "--max-tokens", 1, "--log-level", "info")
    named = f"adapter_model.safetensors, model.norm.weight of {shard.name}, nobody.needs\n"
    assert f"no weight needs it: {named}" in done.stderr


def test_what_is_stored_decides_whether_a_matrix_is_converted(copy_of):
    folder = copy_of(GOLDEN / "v3-fp8")
    before = answer(folder)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"]["modules_to_not_convert"] = ["model.layers.0.mlp.gate", "self_attn"]
    (folder / "config.json").write_text(json.dumps(config))
    assert answer(folder) == before


def test_yarn_lengthens_the_context(copy_of):
    folder = copy_of(GOLDEN / "qwen3")
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
    edit(folder / "config.json", max_position_embeddings=160, rope_scaling=scaling)
    prompt = ["--prompt-ids", ",".join(["7"] * 500), "--temperature", 0, "--ignore-eos"]
    whole = generate(folder, *prompt, "--max-tokens", 12)["tokens"]
    assert len(whole) == 12  # up to position 512
    assert generate(folder, *prompt, "--max-tokens", 12, "--max-model-len", 512)["tokens"] == whole
    done = run("generate", "--model", folder, "--prompt-ids", "1", "--max-model-len", 513)
    assert done.returncode == 2 and "from 1 to 512" in done.stderr


def test_advice_that_cannot_be_taken_is_a_warning(copy_of):
    folder = copy_of(GOLDEN / "qwen3")
    advice = {"top_k": -1, "top_p": 0, "temperature": "hot", "eos_token_id": -1}
    (folder / "generation_config.json").write_text(json.dumps(advice))
    done = run("generate", "--model", folder, "--prompt-ids", IDS, "--max-tokens", 2, "--log-level", "warn")
    assert done.returncode == 0, done.stderr
    for key in ("top_p", "temperature", "eos_token_id"):
        assert f"generation_config.json: {key}" in done.stderr
    assert "top_k" not in done.stderr


def ends(folder):
    done = run("tokenize", "--model", folder, "--ends", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_which_tokens_begin_and_end_is_told(copy_of):
    begin, end = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
    assert ends(DEMO) == {"begin": [0], "chat_begin": 0, "end": [
        {"id": 1, "text": end, "told_by": ["generation_config", "config", "tokenizer", "chat_template"]}]}
    line = run("tokenize", "--model", DEMO, "--ends").stdout
    assert line == f"texts begin with 0 {begin}, chats with 0 {begin}; answers end at 1 {end}\n"
    done = run("generate", "--model", DEMO, "--prompt", "a", "--max-tokens", 1, "--log-level", "info")
    assert line in done.stderr

    # Named by special_tokens_map.json alone, while generation_config.json names another end.
    folder = copy_of(DEMO)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    named = {key: config.pop(key) for key in ("bos_token", "eos_token")}
    del config["add_bos_token"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "special_tokens_map.json").write_text(json.dumps(named))
    edit(folder / "generation_config.json", eos_token_id=[2])
    edit(folder / "config.json", eos_token_id=2)
    told = ends(folder)
    assert told["begin"] == [0] and told["chat_begin"] == 0
    assert {e["id"]: e["told_by"] for e in told["end"]} == {
        2: ["generation_config", "config"], 1: ["tokenizer", "chat_template"]}


def test_a_folder_with_nothing_but_a_tokenizer_tells_its_ends(tmp_path):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(DEMO / name, tmp_path / name)
    assert [e["id"] for e in ends(tmp_path)["end"]] == [1]


def test_a_folder_of_links_as_the_hub_keeps_it(tmp_path):
    snapshot, blobs = tmp_path / "snapshots" / ("0" * 40), tmp_path / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for i, file in enumerate(sorted(V3.iterdir())):
        shutil.copyfile(file, blobs / str(i))
        os.symlink(f"../../blobs/{i}", snapshot / file.name)
    assert answer(snapshot) == answer(V3)
