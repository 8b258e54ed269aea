"""`troupe pull --for head`: what a head gets serves with workers that have the whole, and nowhere else."""

import json

import pytest

from hub_server import COMMIT, Hub
from running import V3, run
from test_first_impressions import one_sentence
from test_pull import blob_name, pull, repository

FILES = {p.name: p.read_bytes() for p in V3.iterdir() if p.is_file()}
SHARDS = [name for name in FILES if name.endswith(".safetensors")]


def header_of(data):
    return data[:8 + int.from_bytes(data[:8], "little")]


def head_folder(cache):
    return repository(cache) / "head" / "snapshots" / COMMIT


def for_head(cache, *hubs, **options):
    return pull(cache, *hubs, words=["--for", "head"], **options)


def failed(done, cache, *said):
    assert done.returncode == 1, done.stderr
    line = one_sentence(done.stderr)
    assert all(text in line for text in said), line
    assert not head_folder(cache).exists() and not (repository(cache) / "head" / "refs" / "main").exists()


@pytest.fixture
def hub():
    """Weights in other formats are there, too, which no head needs."""
    others = {"original/consolidated.pth": b"x" * 1000, "pytorch_model.bin": b"y" * 1000}
    with Hub({**FILES, **others}, lfs=[*SHARDS, *others]) as made:
        yield made


@pytest.fixture
def cache(hub, tmp_path):
    done = for_head(tmp_path / "cache", hub)
    assert done.returncode == 0 and done.stdout == f"{head_folder(tmp_path / 'cache')}\n", done.stderr
    return tmp_path / "cache"


def test_headers_come_alone_and_where_nobody_takes_them_for_the_whole(hub, cache):
    found = {str(p.relative_to(head_folder(cache))): p.read_bytes() for p in head_folder(cache).rglob("*")}
    assert found == {name: header_of(data) if name in SHARDS else data for name, data in FILES.items()}
    asked = {path.split("/")[-1] for path, fields in hub.requests if "/resolve/" in path}
    assert asked == set(FILES)
    assert {p.name for p in (repository(cache) / "blobs").iterdir()} == {
        blob_name(data, False) for name, data in FILES.items() if name not in SHARDS}
    assert not list((repository(cache) / "snapshots").iterdir())
    assert not (repository(cache) / "refs").exists()
    before = hub.bytes
    for_head(cache, hub)
    assert hub.bytes == before
    # A header that is damaged comes again; the whole, once it is there, takes its place.
    header = repository(cache) / "head" / "headers" / blob_name(FILES[SHARDS[0]], True)
    header.write_bytes(b"")
    assert for_head(cache, hub).returncode == 0 and header.read_bytes() == header_of(FILES[SHARDS[0]])
    assert pull(cache, hub).returncode == 0
    assert for_head(cache, hub).returncode == 0
    assert all((head_folder(cache) / name).read_bytes() == FILES[name] for name in SHARDS)

    import huggingface_hub  # which tokenizers brings

    assert not huggingface_hub.scan_cache_dir(cache).warnings
    assert huggingface_hub.snapshot_download("org/model", cache_dir=cache, local_files_only=True)


def test_the_hubs_own_library_is_not_upset_by_a_head_alone(cache):
    import huggingface_hub

    assert not huggingface_hub.scan_cache_dir(cache).warnings
    with pytest.raises(huggingface_hub.utils.LocalEntryNotFoundError):
        huggingface_hub.snapshot_download("org/model", cache_dir=cache, local_files_only=True)


def test_a_header_longer_than_what_is_asked_for_first(tmp_path):
    tensors = {f"{'x' * 1000}{i}": {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]}
               for i in range(1000)}
    text = json.dumps(tensors).encode()
    data = len(text).to_bytes(8, "little") + text + bytes(1000)
    with Hub({"model.safetensors": data, "config.json": b"{}"}, lfs=["model.safetensors"]) as hub:
        assert for_head(tmp_path, hub).returncode == 0
        assert (head_folder(tmp_path) / "model.safetensors").read_bytes() == header_of(data)
        assert hub.bytes == len(header_of(data)) + 2


@pytest.mark.parametrize("served", [
    pytest.param(lambda data: b"\xff" * len(data), id="an absurd length"),
    pytest.param(lambda data: data[:8] + b"[" + data[9:], id="no header"),
    pytest.param(lambda data: data.replace(b'"F32"', b'"F16"', 1), id="tensors that do not fill the file"),
])
def test_headers_that_are_none(hub, tmp_path, served):
    hub.served = {SHARDS[0]: served(FILES[SHARDS[0]])}
    failed(for_head(tmp_path, hub), tmp_path, SHARDS[0], "--endpoint")
    with Hub(hub.files) as mirror:
        assert for_head(tmp_path, hub, mirror).returncode == 0
    assert (head_folder(tmp_path) / SHARDS[0]).read_bytes() == header_of(FILES[SHARDS[0]])


def test_a_repository_that_no_head_can_do_with(tmp_path):
    with Hub({"model.gguf": b"GGUF", "README.md": b"x"}) as hub:
        failed(for_head(tmp_path, hub), tmp_path, "no *.safetensors", "without --for head")
        assert not hub.bytes
        assert run("pull", "org/model", "--for", "worker").returncode == 2


def test_a_head_with_headers_alone_serves_and_nobody_computes_with_them(hub, cache, cluster):
    """A worker that has no more is refused by name; with one that has all it answers as the golden says."""
    env = {"TROUPE_CACHE": str(cache)}
    hint = f"`troupe pull org/model@{COMMIT}`"
    refusals = [run("up", "--model", "org/model", env=env)]
    for command in ("up",), ("generate", "--prompt-ids", "1,2"):
        refusals.append(run(*command, "--model", head_folder(cache), env=env))
    assert "run `troupe pull org/model` first" in one_sentence(refusals[0].stderr)
    for refused in refusals[1:]:
        said = one_sentence(refused.stderr)
        assert "holds the header only" in said and hint in said, said

    # A snapshot that `troupe plan` needed does not stand in its way.
    assert pull(cache, hub, words=["--include", "config.json"]).returncode == 0
    cluster.head("org/model", "--min-devices", 1, "--numerics", "reference", env=env)
    cluster.wait_joinable()
    cluster.wait_answers()
    poor = cluster.worker("--model", head_folder(cache))
    poor.wait_log("holds the header only")
    poor.wait_log(hint)
    assert cluster.state() != "ready"
    cluster.worker("--model", V3)
    cluster.wait_ready()
    status = cluster.status()
    assert status["cluster"]["model"] == "model" and len(cluster.ready_nodes()) == 1
    golden = json.loads(FILES["golden.json"])["prompts"][0]
    sure = next((i for i, m in enumerate(golden["margin"]) if m <= 0.02), len(golden["greedy"]))
    assert sure > 0
    answer = cluster.complete(golden["prompt"], max_tokens=len(golden["greedy"]), temperature=0,
                              ignore_eos=True, return_token_ids=True)
    assert answer["choices"][0]["token_ids"][:sure] == golden["greedy"][:sure]
    assert not [e for e in cluster.status()["events"] if e["kind"] == "proofs"]
    proofs = cluster.status()["proofs"]
    assert proofs["unconfirmed"] == proofs["known"] > 0


def test_a_lying_header_is_found_when_a_worker_joins(hub, tmp_path, cluster):
    """One that fits its file: no checksum could find it."""
    data = FILES[SHARDS[0]]
    text = header_of(data)[8:]
    one, other = (b"layers.%d.mlp.gate.e_score_correction_bias" % layer for layer in (1, 2))
    text = text.replace(one, b"\0").replace(other, one).replace(b"\0", other)
    assert text != header_of(data)[8:]
    hub.served = {SHARDS[0]: data[:8] + text + data[8 + len(text):]}
    assert for_head(tmp_path / "cache", hub).returncode == 0
    cluster.head("org/model", "--min-devices", 1, env={"TROUPE_CACHE": str(tmp_path / "cache")})
    cluster.wait_joinable()
    cluster.wait_answers()
    worker = cluster.worker("--model", V3)
    assert worker.exit_code() != 0 and "is another one than the head's" in worker.log()
    assert not cluster.joined_nodes()
