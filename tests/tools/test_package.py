"""What tools/package makes, unpacked elsewhere."""

import re
import subprocess

import pytest

from running import DEMO, ROOT

# It builds the program for all GPUs, and nobody can run it meanwhile.
pytestmark = [pytest.mark.long, pytest.mark.alone]
RUNTIMES = r"lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so"


def output(*words, **options):
    words = [str(word) for word in words]
    return subprocess.run(words, check=True, capture_output=True, text=True, **options).stdout


@pytest.fixture(scope="module")
def packages():
    """The .deb and the archive."""
    deb, archive = output(ROOT / "tools" / "package").split()
    return deb, archive


def test_the_archive_runs_from_any_folder_with_its_own_libraries(packages, tmp_path):
    output("tar", "xzf", packages[1], "-C", tmp_path)
    (folder,) = tmp_path.iterdir()
    program = folder / "bin" / "troupe"
    found = re.findall(r"(\S+) => (\S+)", output("ldd", program, cwd="/"))
    assert found
    for name, path in found:
        assert re.match(RUNTIMES, name) or "/bin/../lib/troupe/" in path, (name, path)
    # No empty path in it, which would be the current folder.
    assert "[$ORIGIN/../lib/troupe]" in output("readelf", "-d", program)
    told = output(program, "generate", "--model", DEMO, "--chat", "What is brandy?", "--temperature", 0,
                  cwd="/")
    assert "distilled from wine" in told


def test_the_deb_names_its_libraries_and_has_the_units(packages, tmp_path):
    depends = output("dpkg-deb", "--field", packages[0], "Depends")
    for name in ("libc6", "libcaf-core0.17", "libcapnp-0.9.2", "libfabric1", "libssl3"):
        assert re.search(rf"(^|, ){re.escape(name)}\b", depends), depends
    output("dpkg-deb", "--extract", packages[0], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["usr"]
    assert {path.name for path in (tmp_path / "usr/lib/systemd/system").iterdir()} == {
        "troupe-head.service", "troupe-worker.service"}
    docs = tmp_path / "usr/share/doc/troupe"
    for linked in ("ARCHITECTURE.md", "actors/gateway/API.md", "configs/README.md",
                   "configs/serve-a-real-model.md"):  # fmt: skip
        assert f"]({linked}" in (docs / "README.md").read_text() and (docs / linked).is_file()
    assert "PATH" not in output("readelf", "-d", tmp_path / "usr/bin/troupe")
    assert output(tmp_path / "usr/bin/troupe", "--version").strip() in packages[0]
