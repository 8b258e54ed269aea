"""`troupe pull` from hubs that cut, lie, hang, redirect and name what no folder may hold."""

import hashlib
import os
import random
import resource
import shutil
import signal
import subprocess
import time

import pytest

from hub_server import COMMIT, Hub, git_blob
from promises import bound
from running import DEMO, PATIENCE_S, TROUPE, V3, run, wait_until
from test_first_impressions import one_sentence

CHUNK = 16 << 20
SMALL = random.Random(1).randbytes(70_000)


def small_files():
    return {"config.json": b'{"a": 1}\n', "empty": b"", "folder/a b%c.bin": SMALL,
            "model.safetensors": SMALL[::-1]}


def pull(cache, *hubs, model="org/model", words=(), env=None, **options):
    places = [word for hub in hubs for word in ("--endpoint", getattr(hub, "url", hub))]
    env = {"HF_TOKEN": "", "HF_ENDPOINT": "", **(env or {})}
    return run("pull", model, "--cache", cache, *places, *words, env=env, **options)


def repository(cache):
    return cache / "models--org--model"


def snapshot(cache):
    return repository(cache) / "snapshots" / COMMIT


def blob_name(data, is_lfs):
    return hashlib.sha256(data).hexdigest() if is_lfs else git_blob(data)


def holds(done, cache, files, revision="main"):
    """As huggingface_hub lays it out: its _create_symlink and _cache_commit_hash_for_specific_revision."""
    assert done.returncode == 0, done.stderr
    folder = snapshot(cache)
    assert done.stdout == f"{folder}\n"
    links = [p for p in folder.rglob("*") if not p.is_dir()]
    assert {str(p.relative_to(folder)): p.read_bytes() for p in links} == files
    for link in links:
        target = os.readlink(link)
        up = "../" * (len(link.relative_to(folder).parts) + 1)
        assert target in (f"{up}blobs/{blob_name(link.read_bytes(), lfs)}" for lfs in (False, True))
    assert (repository(cache) / "refs" / revision).read_text() == COMMIT
    assert not list((repository(cache) / ".troupe" / "parts").iterdir())
    assert {p.name for p in (repository(cache) / ".troupe").iterdir()} == {"lock", "parts"}


def failed(done, cache, *said):
    assert done.returncode == 1, done.stderr
    line = one_sentence(done.stderr)
    assert all(text in line for text in said), line
    assert not snapshot(cache).exists() and not list(repository(cache).glob("refs/*"))
    return line


@pytest.fixture
def hub():
    with Hub(small_files(), lfs=["model.safetensors", "folder/a b%c.bin"]) as made:
        yield made


def test_a_model_comes_whole_and_once(hub, tmp_path):
    hub.page = 2
    holds(pull(tmp_path, hub), tmp_path, hub.files)
    before = hub.bytes
    holds(pull(tmp_path, hub), tmp_path, hub.files)
    assert hub.bytes == before
    for revision in "v1.0", "refs/pr/1":
        holds(pull(tmp_path, hub, model=f"org/model@{revision}"), tmp_path, hub.files, revision)
    assert pull(tmp_path, hub, model=f"org/model@{COMMIT}").stdout == f"{snapshot(tmp_path)}\n"
    refs = [str(p.relative_to(repository(tmp_path))) for p in repository(tmp_path).glob("refs/**/*")]
    assert sorted(refs) == ["refs/main", "refs/refs", "refs/refs/pr", "refs/refs/pr/1", "refs/v1.0"]
    assert hub.bytes == before


def test_chosen_files_and_later_the_rest(hub, tmp_path):
    some = {k: v for k, v in hub.files.items() if k in ("config.json", "empty")}
    holds(pull(tmp_path, hub, words=["--exclude", "folder/*", "--exclude", "*.safetensors"]), tmp_path, some)
    before = hub.bytes
    holds(pull(tmp_path, hub), tmp_path, hub.files)
    assert hub.bytes == before + 2 * len(SMALL)
    none = pull(tmp_path / "other", hub, words=["--include", "*.gguf"])
    failed(none, tmp_path / "other", "--include")


def test_answers_that_are_cut_at_any_byte(hub, tmp_path):
    """In the head of nothing, in the first byte, in the last: what came counts."""
    hub.cut_after = [0, 1, 2, 69_999, 12_345, 0, 1, 40_000, 5, 0, 0, 69_998, 1]
    holds(pull(tmp_path, hub, words=["--connections", "1"]), tmp_path, hub.files)
    assert hub.cut_after == []
    assert hub.bytes < 20 * len(SMALL)


def test_a_run_that_is_killed_goes_on(tmp_path):
    """Chunks that are here are not asked for again, wherever the rest was cut."""
    data = random.Random(2).randbytes(3 * CHUNK + 12_345)
    with Hub({"big": data}, lfs=["big"]) as hub:
        env = {**os.environ, "HF_TOKEN": ""}
        words = [TROUPE, "pull", "org/model", "--cache", tmp_path, "--endpoint", hub.url,
                 "--connections", "1"]
        hub.cut_after = [CHUNK, CHUNK - 7]
        real, hub.send = hub.send, lambda *a: hub.hang.wait(600) if len(hub.requests) > 4 else real(*a)
        first = subprocess.Popen([str(w) for w in words], env=env)
        wait_until(lambda: len(hub.requests) > 4, "the third request for bytes")
        first.send_signal(signal.SIGKILL)
        first.wait(PATIENCE_S)
        assert not snapshot(tmp_path).exists() and not list((repository(tmp_path) / "blobs").iterdir())
        hub.send, before, hub.cut_after = real, len(hub.requests), []
        holds(pull(tmp_path, hub), tmp_path, {"big": data})
        asked = {fields.get("Range") for path, fields in hub.requests[before:] if "/resolve/" in path}
        assert f"bytes=0-{CHUNK - 1}" not in asked
        assert len(asked) == 3


def test_what_a_killed_run_left_may_be_damaged(hub, tmp_path):
    """After a power cut a file may have the length and not the bytes."""
    hub.served = {"model.safetensors": b"x" * len(SMALL)}
    failed(pull(tmp_path, hub, words=["--connections", "1"]), tmp_path, "model.safetensors", "checksum")
    hub.served = {}
    parts = list(tmp_path.rglob("parts/*"))
    assert parts
    for part in parts:
        part.write_bytes(b"1" if part.suffix else b"y" * len(SMALL))
    before = hub.bytes
    holds(pull(tmp_path, hub), tmp_path, hub.files)
    assert hub.bytes == before + len(SMALL)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_bytes_that_are_not_the_listings(hub, tmp_path, name):
    """Of one bit; of git's files as of large ones. A mirror that is honest saves the day."""
    wrong = bytearray(hub.files[name])
    wrong[-1] ^= 1
    hub.served = {name: bytes(wrong)}
    failed(pull(tmp_path, hub), tmp_path, name, "checksum", "--endpoint")
    with Hub(hub.files) as mirror:
        holds(pull(tmp_path, hub, mirror), tmp_path, hub.files)
    assert {path.split("/")[-1] for path, _ in mirror.requests} == {name}


@pytest.mark.parametrize(
    "path",
    ["../evil", "/etc/evil", "a/../../evil", "a//b", "", ".", "a/.", "a\\b", "a\nb", "a/", "\x1b[2J",
     "x" * 300, "../" * 30 + "tmp/evil", "a\0b"],
)
def test_names_that_no_folder_may_hold(hub, tmp_path, path):
    entry = {"type": "file", "oid": git_blob(b"evil"), "size": 4, "path": path}
    hub.listing = [*hub.true_listing(), entry]
    failed(pull(tmp_path / "cache", hub), tmp_path / "cache", "names a file")
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


@pytest.mark.parametrize(
    "listing",
    [b"", b"{", b"[1]", b"{}", b"[" * 100_000, b'[{"type": "file", "path": "a", "size": -1}]',
     b'[{"type": "file", "path": "a", "size": 1e300, "oid": "%s"}]' % (b"0" * 40),
     b'[{"type": "file", "path": "a", "size": 99999999999999999, "oid": "%s"}]' % (b"0" * 40),
     b'[{"type": "file", "path": "a", "size": 1, "oid": "x"}]',
     b"[" + b",".join([b'{"type": "file", "path": "a", "size": 1, "oid": "%s"}' % (b"0" * 40)] * 2) + b"]"],
)
def test_listings_that_are_none(hub, tmp_path, listing):
    hub.listing = listing
    failed(pull(tmp_path, hub), tmp_path, "listing")


def test_a_listing_without_an_end(hub, tmp_path):
    hub.page = 0
    hub.list = lambda r, query: hub.reply(
        r, 200, b"[]", Link=f'<{hub.url}{r.path}>; rel="next"')
    failed(pull(tmp_path, hub), tmp_path, "no end")


def test_refusals(hub, tmp_path):
    hub.token = "secret"
    failed(pull(tmp_path, hub), tmp_path, "401", "HF_TOKEN")
    holds(pull(tmp_path, hub, env={"HF_TOKEN": "secret"}), tmp_path, hub.files)
    other = tmp_path / "other"
    unknown = pull(other, hub, model="org/model@x/y", env={"HF_TOKEN": "secret"})
    failed(unknown, other, "404", "behind its @")
    assert pull(other, hub, model="org/model@../x").returncode == 2
    assert run("pull", "no-name").returncode == 2
    assert pull(other, "ftp://x").returncode == 2


def test_the_token_stays_with_its_endpoint(hub, tmp_path):
    """Neither a redirection nor a mirror is told it, and both serve."""
    hub.token = "secret"
    with Hub(hub.files) as store:
        hub.redirect = store.url
        holds(pull(tmp_path, hub, env={"HF_TOKEN": "secret"}), tmp_path, hub.files)
        assert store.requests and all("Authorization" not in fields for _, fields in store.requests)
        hub.redirect = None
        hub.status = {"/org": 404}
        holds(pull(tmp_path / "b", hub, store, env={"HF_TOKEN": "secret"}), tmp_path / "b", hub.files)
        assert all("Authorization" not in fields for _, fields in store.requests)


def test_redirections_in_circles_and_to_nowhere(hub, tmp_path):
    hub.redirect = hub.url
    failed(pull(tmp_path, hub), tmp_path, "circles")
    hub.redirect = "gopher://x"
    failed(pull(tmp_path, hub), tmp_path, "redirects")


def test_mirrors_that_are_gone_or_hang(hub, tmp_path):
    with Hub({}) as hanging:
        hanging.hangs = True
        started = time.monotonic()
        holds(pull(tmp_path, "http://127.0.0.1:9", hanging, hub, words=["--timeout", "2"]), tmp_path,
              hub.files)
        bound("pulled", time.monotonic() - started, 20)
    hub.status = {"/": 503}
    failed(pull(tmp_path / "b", hub), tmp_path / "b", "503", "later")


def test_a_server_without_ranges(tmp_path):
    data = random.Random(3).randbytes(CHUNK + 1)
    with Hub({"big": data}, lfs=["big"]) as hub:
        hub.ranges = False
        failed(pull(tmp_path, hub), tmp_path, "only whole")


def limited(cache, hub, limit, most):
    words = [str(w) for w in (TROUPE, "pull", "org/model", "--cache", cache, "--endpoint", hub.url)]
    return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S,
                          env={**os.environ, "HF_TOKEN": ""},
                          preexec_fn=lambda: resource.setrlimit(limit, (most, most)))


def test_a_full_disk(hub, tmp_path):
    failed(limited(tmp_path, hub, resource.RLIMIT_FSIZE, 50_000), tmp_path, "room", "--cache")
    holds(pull(tmp_path, hub), tmp_path, hub.files)
    entry = {"type": "file", "oid": "0" * 64, "size": 1 << 44, "path": "huge"}
    hub.listing = [{**entry, "lfs": {"oid": "0" * 64}}]
    failed(pull(tmp_path / "b", hub), tmp_path / "b", "needs 17592186044416 bytes", "free")


def test_files_are_open_only_while_they_come(tmp_path):
    with Hub({f"part-{i}": b"%d" % i for i in range(120)}) as hub:
        holds(limited(tmp_path, hub, resource.RLIMIT_NOFILE, 64), tmp_path, hub.files)


def test_a_mirror_that_trickles_is_left_for_the_next(hub, tmp_path):
    with Hub(hub.files, lfs=hub.lfs) as slow:
        quick = slow.reply

        def trickle(r, status, body=b"", **fields):
            if "/resolve/" not in r.path:
                return quick(r, status, body, **fields)
            r.send_response(status)
            r.send_header("Content-Length", len(body))
            r.end_headers()
            for i in range(len(body)):
                r.wfile.write(body[i:i + 1])
                slow.hang.wait(0.05)

        slow.reply = trickle
        started = time.monotonic()
        holds(pull(tmp_path, slow, hub, words=["--timeout", "2"]), tmp_path, hub.files)
        bound("pulled", time.monotonic() - started, 20)


def hand_made(cache, files, revision="main", commit=COMMIT):
    """What another program of the hub has fetched: of large files a blob named by SHA-256."""
    root = repository(cache)
    for path, data in files.items():
        blob = root / "blobs" / blob_name(data, path.endswith((".safetensors", ".bin")))
        link = root / "snapshots" / commit / path
        for file in blob, link, root / "refs" / revision:
            file.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
        link.symlink_to(os.path.relpath(blob, link.parent))
    (root / "refs" / revision).write_text(commit)


def test_what_another_program_fetched_is_taken(hub, tmp_path):
    """And what lacks is added to its snapshot, which is not taken away meanwhile."""
    some = {k: v for k, v in hub.files.items() if k != "config.json"}
    hand_made(tmp_path, some)
    inode = snapshot(tmp_path).stat().st_ino
    holds(pull(tmp_path, hub), tmp_path, hub.files)
    assert hub.bytes == len(hub.files["config.json"]) and snapshot(tmp_path).stat().st_ino == inode
    # A blob that is too short comes again, and a link that leads elsewhere is set right.
    blob = repository(tmp_path) / "blobs" / blob_name(SMALL, True)
    blob.write_bytes(SMALL[:-1])
    (snapshot(tmp_path) / "config.json").unlink()
    (snapshot(tmp_path) / "config.json").symlink_to("/dev/null")
    holds(pull(tmp_path, hub), tmp_path, hub.files)


@pytest.mark.parametrize("kind", ["fresh", "partial"])
def test_a_cut_leaves_no_snapshot_that_looks_whole(hub, tmp_path, kind):
    """Killed at each link that is made: what is there by then lacks the weights, and no ref leads to it."""
    first = tmp_path / "first"
    holds(pull(first, hub), first, hub.files)
    library, code = tmp_path / "cut.so", tmp_path / "cut.c"
    code.write_text("#include <stdlib.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n"
                    "int symlink(const char* to, const char* at) { static int made;\n"
                    "  if (made++ == atoi(getenv(\"CUT_AFTER\"))) _exit(9);\n"
                    "  return (int)syscall(SYS_symlinkat, to, -100, at); }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, code], check=True)
    env = {"LD_PRELOAD": str(library), "ASAN_OPTIONS": "verify_asan_link_order=0"}
    hub.listing, count = hub.true_listing()[::-1], len(hub.files)
    for cut in range(count):
        cache = tmp_path / str(cut)
        if kind == "partial":
            cache.mkdir()
            hand_made(cache, {"other.json": b"{}"}, revision="other")
        assert pull(cache, hub, env={**env, "CUT_AFTER": str(cut)}).returncode == 9
        assert not (repository(cache) / "refs" / "main").exists()
        assert snapshot(cache).exists() == (kind == "partial")
        assert not (snapshot(cache) / "model.safetensors").exists()
        before = hub.bytes
        assert pull(cache, hub).returncode == 0 and hub.bytes == before
        assert (snapshot(cache) / "model.safetensors").read_bytes() == hub.files["model.safetensors"]


def test_the_same_bytes_under_two_names_come_once(tmp_path):
    with Hub({"a": SMALL, "b/c": SMALL, "empty": b"", "also-empty": b""}) as hub:
        holds(pull(tmp_path, hub), tmp_path, hub.files)
        assert hub.bytes == len(SMALL)
        hub.listing = hub.true_listing()
        hub.listing[-1]["size"] = 1
        failed(pull(tmp_path / "b", hub), tmp_path / "b", "two sizes")


def test_the_hubs_own_library_finds_what_was_pulled_and_fetches_what_we_find(hub, tmp_path):
    import huggingface_hub  # which tokenizers brings
    from huggingface_hub.errors import LocalEntryNotFoundError

    pulled = tmp_path / "pulled"
    with pytest.raises(LocalEntryNotFoundError):
        huggingface_hub.snapshot_download("org/model", cache_dir=pulled, local_files_only=True)
    hub.served = {"model.safetensors": b"x" * len(SMALL)}
    failed(pull(pulled, hub), pulled)  # what is on its way is no trouble
    assert not huggingface_hub.scan_cache_dir(pulled).warnings
    hub.served = {}
    for revision in "main", "refs/pr/1":
        holds(pull(pulled, hub, model=f"org/model@{revision}"), pulled, hub.files, revision)
        found = huggingface_hub.snapshot_download("org/model", revision=revision, cache_dir=pulled,
                                                  local_files_only=True)
        assert found == str(snapshot(pulled))
    scanned = huggingface_hub.scan_cache_dir(pulled)
    assert not scanned.warnings
    (repo,), size = scanned.repos, sum(map(len, hub.files.values()))
    assert repo.repo_id == "org/model" and repo.refs.keys() == {"main", "refs/pr/1"}
    assert scanned.size_on_disk == size
    scanned.delete_revisions(COMMIT).execute()
    assert not repository(pulled).exists()


def test_where_the_cache_is(tmp_path):
    """By what is asked first; each is where a model is found by its name."""
    places = {
        "TROUPE_CACHE": "a", "HF_HUB_CACHE": "b", "HF_HOME": "c/hub", "XDG_CACHE_HOME": "d/huggingface/hub",
        "HOME": "e/.cache/huggingface/hub",
    }
    env = {name: str(tmp_path / place.split("/")[0]) for name, place in places.items()}
    files = {p.name: p.read_bytes() for p in DEMO.iterdir() if p.is_file()}
    with Hub(files) as hub:
        for name, place in places.items():
            done = run("pull", "org/model", env={**env, "HF_ENDPOINT": hub.url, "HF_TOKEN": ""})
            assert done.stdout == f"{snapshot(tmp_path / place)}\n", name
            found = run("tokenize", "--model", "org/model", stdin="brandy\n", env=env)
            assert found.returncode == 0, found.stderr
            env[name] = ""
        done = run("pull", "org/model", env={**env, "HOME": str(tmp_path), "HF_HOME": "~/f",
                                             "HF_ENDPOINT": hub.url, "HF_TOKEN": ""})
        assert done.stdout == f"{snapshot(tmp_path / 'f' / 'hub')}\n"


@pytest.mark.parametrize("model", ["org/model", "org/model@v1.0", f"org/model@{COMMIT}"])
def test_a_pulled_model_answers_by_its_name(model, tmp_path, monkeypatch):
    files = {p.name: p.read_bytes() for p in DEMO.iterdir() if p.is_file()}
    with Hub(files, lfs=["model.safetensors"]) as hub:
        env = {"TROUPE_CACHE": str(tmp_path), "HF_ENDPOINT": hub.url, "HF_TOKEN": ""}
        assert run("pull", model, env=env).returncode == 0
    done = run("tokenize", "--model", model, stdin="brandy\n", env=env)
    assert done.returncode == 0 and done.stdout == run("tokenize", "--model", DEMO, stdin="brandy\n").stdout
    (tmp_path / "here" / "org").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")  # a folder of that name changes nothing
    again = run("tokenize", "--model", model, stdin="brandy\n", env=env)
    assert again.stdout == done.stdout, again.stderr
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(repository(tmp_path))
    gone = run("tokenize", "--model", model, stdin="brandy\n", env=env)
    assert gone.returncode == 1 and f"troupe pull {model}" in one_sentence(gone.stderr)


def test_a_model_that_is_here_in_part_says_what_lacks_and_how_to_get_it(tmp_path):
    """As another program that was cut off leaves it."""
    files = {p.name: p.read_bytes() for p in V3.iterdir() if p.is_file()}
    shards = sorted(name for name in files if name.endswith(".safetensors"))
    assert len(shards) > 1
    hand_made(tmp_path, files)
    env = {"TROUPE_CACHE": str(tmp_path)}
    asked = ["generate", "--model", "org/model", "--prompt-ids", "1,2,3", "--max-tokens", "1"]
    assert run(*asked, env=env).returncode == 0
    for name in shards[-1], "config.json":
        link = snapshot(tmp_path) / name
        target = os.readlink(link)
        link.unlink()
        said = one_sentence(run(*asked, env=env).stderr)
        assert name in said and f"`troupe pull org/model@{COMMIT}` brings the rest" in said, said
        link.symlink_to(target)


def test_two_at_once(hub, tmp_path):
    words = [str(w) for w in (TROUPE, "pull", "org/model", "--cache", tmp_path, "--endpoint", hub.url)]
    real, hub.send = hub.send, lambda *a: hub.hang.wait(600)
    first = subprocess.Popen(words)
    wait_until(lambda: any("/resolve/" in path for path, _ in hub.requests), "bytes are asked for")
    hub.send = real
    failed(pull(tmp_path, hub), tmp_path, "Another `troupe pull`")
    first.kill()
    first.wait(PATIENCE_S)
    holds(pull(tmp_path, hub), tmp_path, hub.files)
