"""`troupe completion`: the scripts do in each shell what they are for."""

import re
import shutil
import subprocess

import pytest

from running import run

COMPLETE = r"""
source "$1"; shift
complete -p troupe >/dev/null || exit 3
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_troupe
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(troupe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("completion")

    def make(shell):
        done = run("completion", shell)
        assert done.returncode == 0 and not done.stderr
        (folder / shell).write_text(done.stdout)
        return folder / shell

    return make


def bash(script, *words, cwd=None):
    done = subprocess.run(["bash", "--norc", "-c", COMPLETE, "bash", script("bash"), *words],
                          capture_output=True, text=True, timeout=60, cwd=cwd)  # fmt: skip
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.split()


def flags_of(*command):
    return set(re.findall(r"^\s+(?:-\w,)?(--[a-z][a-z0-9-]*)", run(*command, "--help").stdout, re.MULTILINE))


def commands_of(*command):
    text = run(*command, "--help").stdout.split("Subcommands:\n")[1]
    return set(re.findall(r"^  (\w[\w-]*)", text.split("\n\n")[0], re.MULTILINE))


def test_bash_knows_the_values_of_flags_that_have_few(script):
    assert bash(script, "troupe", "up", "--numerics", "b") == ["bf16"]
    assert bash(script, "troupe", "head", "--fabric", "=", "t") == ["tcp"]
    assert "auto fp8" in " ".join(bash(script, "troupe", "plan", "--kv-cache-dtype", "")).replace("bf16 ", "")


def test_bash_knows_every_command_and_every_flag(troupe, script):
    top = commands_of()
    assert {"up", "chat", "plan", "completion"} <= top
    assert {word for word in bash(script, "troupe", "") if word[0] != "-"} == top | {"help"}
    for command in sorted(top):
        assert set(bash(script, "troupe", command, "--")) == flags_of(command), command
    for command in ("plan", "bench"):
        for below in commands_of(command):
            assert below in bash(script, "troupe", command, "")
            assert set(bash(script, "troupe", command, below, "--")) == flags_of(command, below)


def test_bash_completes_what_was_begun(script, tmp_path):
    assert bash(script, "troupe", "comp") == ["completion"]
    assert bash(script, "troupe", "help", "tokeni") == ["tokenize"]
    assert bash(script, "troupe", "generate", "--chat", "stop", "--max-tok") == ["--max-tokens"]
    assert bash(script, "troupe", "nonsense", "ge") == ["generate"]
    # After a flag with a value come files, after one without flags again.
    (tmp_path / "a model").mkdir()
    (tmp_path / "a.toml").touch()
    assert bash(script, "troupe", "up", "--config", "a.", cwd=tmp_path) == ["a.toml"]
    assert " ".join(bash(script, "troupe", "up", "--model", "a ", cwd=tmp_path)) == "a model"
    assert bash(script, "troupe", "up", "--config", "=", "a.", cwd=tmp_path) == ["a.toml"]
    assert bash(script, "troupe", "status", "--json", "--wait") == ["--wait-ready"]


def test_no_word_of_a_description_is_obeyed(script, tmp_path):
    """Quotes, dollars and backticks of the help are text in every shell."""
    for shell in ("bash", "zsh", "fish"):
        text = script(shell).read_text()
        assert "`" not in re.sub(r"'(?:[^'\\]|\\.)*'", "", text.replace("'\\''", "")), shell


@pytest.mark.parametrize("shell, words", [("bash", ["-n"]), ("zsh", ["-n"]), ("fish", ["--no-execute"])])
def test_the_script_is_one_of_its_shell(script, shell, words):
    if shutil.which(shell) is None:
        text = script(shell).read_text()
        assert text.count("{") == text.count("}") and "troupe" in text
        return
    done = subprocess.run([shell, *words, script(shell)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
def test_fish_completes(script):
    def complete(line):
        words = ["fish", "--no-config", "-c", f'source {script("fish")}; complete -C "{line}"']
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and not done.stderr, done.stderr
        return {line.split("\t")[0] for line in done.stdout.splitlines()}

    assert complete("troupe pl") == {"plan"}
    assert "eplb" in complete("troupe plan ") and "--nodes" in complete("troupe plan --")
    assert "--nodes" not in complete("troupe plan eplb --")


def test_another_shell_is_refused(troupe):
    done = run("completion", "tcsh")
    assert done.returncode == 2 and "'tcsh' is none of bash, zsh and fish" in done.stderr
    assert run("completion").returncode == 2
