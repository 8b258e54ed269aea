"""`troupe bench`."""

import os
import resource
import subprocess

import pytest

from running import ROOT, TROUPE, V3, generate, run


SMALL = ROOT / "configs" / "bench" / "small-layers.json"


def make(folder, *words, config=V3 / "config.json"):
    return run("bench", "make-model", "--config", config, "--out", folder, *words)


@pytest.mark.parametrize("form", ["bf16", "fp8", "int4"])
def test_a_made_model_answers(tmp_path, form):
    done = make(tmp_path / "model", "--format", form, "--seed", 7, config=SMALL)
    assert done.returncode == 0, done.stderr
    assert "in 1 file" in done.stdout and "100 %" in done.stderr
    answer = generate(tmp_path / "model", "--prompt-ids", "1,2,3", "--max-tokens", 4, "--ignore-eos")
    assert len(answer["tokens"]) == 4
    assert None not in answer["token_logprobs"]


def test_a_made_model_is_not_written_over(tmp_path):
    assert make(tmp_path).returncode == 0
    before = (tmp_path / "model.safetensors").read_bytes()
    done = make(tmp_path, "--seed", 1)
    assert done.returncode == 2
    assert "holds something already" in done.stderr
    assert (tmp_path / "model.safetensors").read_bytes() == before


def test_a_disk_that_is_full_is_told_and_leaves_nothing(tmp_path):
    words = [TROUPE, "bench", "make-model", "--config", V3 / "config.json", "--out", tmp_path / "model"]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "cannot have its" in done.stderr and "model.safetensors" in done.stderr
    assert not os.listdir(tmp_path / "model")


def test_wrong_words_are_told(tmp_path):
    done = make(tmp_path / "model", "--format", "int3")
    assert done.returncode == 2 and "bf16, fp8 or int4, not 'int3'" in done.stderr
    done = make(tmp_path / "model", "--format", "int4")
    assert done.returncode == 2 and "48 columns, which groups of 32 do not divide" in done.stderr
    done = run("bench", "make-model", "--out", tmp_path / "model")
    assert done.returncode == 2 and "--config FILE" in done.stderr
    assert not (tmp_path / "model").exists()
