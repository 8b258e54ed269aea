"""`troupe chat`: a conversation in a terminal and through pipes, with a cluster and in this process."""

import json
import os
import re
import shutil
import signal
import subprocess
import urllib.request

import pytest

from running import DEMO, PATIENCE_S, V3, Cluster, get, run, wait_until
from screen import Screen

ENDLESS = ["--ignore-eos", "--max-tokens", "3900"]


@pytest.fixture(scope="module")
def served(troupe):
    with Cluster() as cluster:
        cluster.up(DEMO)
        yield cluster


def chat(troupe, env, *words, columns=80, **more):
    env = {**env, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **more}
    return Screen([troupe, "chat", "--temperature", "0", *words], env, columns, 24)


def prompted(screen):
    screen.wait_match(r"(?m)^>$")


def test_a_conversation_at_a_terminal(troupe, served):
    with chat(troupe, served.env) as screen:
        screen.wait("Talking to pocket-dictionary.")
        prompted(screen)
        screen.press("What is brandy?\n")
        screen.wait_match(r"brandy: a noun.*\n\nbrandy \(noun\): distilled from wine(.|\n)*\n>")
        # What it thought is faint, what it says is not, and no tag is shown.
        answer = screen.raw.split(b"What is brandy?\r\n", 1)[1]
        thought, said = answer.split(b"\r\n\r\n", 1)
        assert re.fullmatch(rb"(\x1b\[2m[^\x1b]*\x1b\[0m)+", thought)
        assert re.sub(rb"\x1b\[\d?m", b"", thought) == b"brandy: a noun, a kind of liquor."
        assert b"\x1b" not in said and b"think>" not in screen.raw
        screen.press("/help\n")
        screen.wait("/reset begins a new conversation")
        screen.press("/nonsense\n")
        screen.wait("troupe: There is no /nonsense;")
        screen.press("/reset now\n")
        screen.wait("troupe: There is no /reset now;")
        screen.press("/reset\n")
        screen.wait("A new conversation.")
        screen.press('"""\nWhat is a river?\n"""\n')
        screen.wait_match(r"river \(noun\): a large natural stream")
        screen.press("\x04")  # Ctrl-D
        assert screen.exit_code() == 0
        screen.assert_left_as_found()


TEMPLATE = """{%- for m in messages %}
  {%- if m.reasoning_content %}{{ raise_exception('It thought: ' + m.reasoning_content) }}{% endif %}
  {{- '<｜User｜>' if m.role == 'user' else '<｜Assistant｜>' }}{{ m.content }}
{%- endfor %}
{{- '<｜Assistant｜>' + ('</think>' if '/no_think' in messages[-1].content else '<think>\\n') }}
"""


def test_thoughts_are_told_by_the_question_and_go_with_the_conversation(troupe, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(DEMO, model)
    (model / "chat_template.jinja").write_text(TEMPLATE)
    words = ["chat", "--model", model, "--temperature", 0, "--max-tokens", 40]
    silent = run(*words, stdin="What is brandy? /no_think\nWhat is brandy? /no_think\n")
    assert silent.returncode == 0 and len(silent.stdout.strip()) > 20, silent
    asked = run(*words, stdin="What is brandy?\nAnd a river?\n")
    assert "It thought: brandy: a noun, a kind of liquor." in asked.stderr, asked


def cancelled(cluster):
    lines = get(cluster.base_url, "/metrics").splitlines()
    return sum(float(line.split()[-1]) for line in lines
               if line.startswith("troupe:request_success_total{") and 'reason="abort"' in line)  # fmt: skip


def test_ctrl_c_ends_an_answer_and_twice_the_conversation(troupe, served):
    before = cancelled(served)
    with chat(troupe, served.env, *ENDLESS) as screen:
        prompted(screen)
        screen.press("What is brandy?\n")
        screen.wait_written("distilled")
        screen.press("\x03")
        screen.wait("Stopped; the conversation goes on with what there is.")
        wait_until(lambda: cancelled(served) == before + 1, "it is cancelled")
        assert screen.popen.poll() is None
        screen.press("And a river?\n")
        screen.wait_written("river (noun)")
        screen.press("\x03")
        screen.wait_match(r"Stopped;(.|\n)*\n>\s*$")
        screen.press("\x03")
        assert screen.exit_code() == 0
        screen.assert_left_as_found()


def test_one_ctrl_c_at_the_prompt_is_asked_about(troupe, served):
    with chat(troupe, served.env) as screen:
        prompted(screen)
        screen.press("half a line\x03")
        screen.wait("Ctrl-C once more, or Ctrl-D, ends the conversation.")
        screen.press("/quit\n")
        assert screen.exit_code() == 0


def test_lines_are_edited_and_found_again(troupe, served):
    # Without a locale, too, what is typed is UTF-8.
    with chat(troupe, served.env, LC_ALL="", LANG="") as screen:
        prompted(screen)
        screen.press("/system Sé bref!\x7f.\n")  # backspace
        screen.wait("The model is told that from the next question on.")
        screen.press("/no\x1b[D\x1b[D\x1b[3~\x1b[FX\n")  # left, left, delete, end
        screen.wait("troupe: There is no /oX;")
        screen.press("\x1b[A\x1b[A")  # up, up
        screen.wait_match(r"> /system Sé bref\.\s*$")
        screen.press("\x15\n")  # Ctrl-U: nothing is left of it
        screen.press("\x12oX")  # Ctrl-R
        screen.wait_match(r"> /oX\s*bck:oX\s*$")
        screen.press("\x03")
        screen.wait("Ctrl-C once more, or Ctrl-D, ends the conversation.")
        prompted(screen)
        screen.press("/quit\n")
        assert screen.exit_code() == 0
        screen.assert_left_as_found()


def test_what_is_typed_while_it_answers_counts(troupe, served):
    with chat(troupe, served.env, "--ignore-eos", "--max-tokens", "1000") as screen:
        prompted(screen)
        screen.press("What is brandy?\n")
        screen.wait_written("distilled")
        screen.press("/nonsense\nand half")
        screen.wait("troupe: There is no /nonsense;")
        screen.wait_match(r"> and half\s*$")
        screen.press(" of it\x03")
        screen.press('"""\nWhat is a river?\n"""\n')
        screen.wait_written("river (noun)")
        screen.press("\x04")
        assert screen.exit_code() == 0
        screen.assert_left_as_found()


def test_a_terminal_that_cannot_move_its_cursor_will_do(troupe, served):
    with chat(troupe, served.env, TERM="dumb") as screen:
        prompted(screen)
        screen.press("/nonsense\n")
        screen.wait("troupe: There is no /nonsense;")
        screen.press("/quit\n")
        assert screen.exit_code() == 0
        assert b"\x1b" not in screen.raw


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_answers(troupe, served, number):
    with chat(troupe, served.env, *ENDLESS) as screen:
        prompted(screen)
        screen.press("What is brandy?\n")
        screen.wait_written("distilled")
        screen.popen.send_signal(number)
        if number == signal.SIGINT:
            screen.wait("Stopped;")
            screen.press("/quit\n")
        assert screen.exit_code() == 0
        screen.assert_left_as_found()


@pytest.mark.parametrize("more", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["no-color", "dumb"])
def test_without_colours_the_thought_has_bars(troupe, served, more):
    with chat(troupe, served.env, columns=30, **more) as screen:
        prompted(screen)
        screen.press("What is brandy?\n")
        screen.wait("| brandy: a noun", "distilled")
        screen.press("\x04")
        assert screen.exit_code() == 0
        assert b"\x1b" not in screen.raw


def asked(env, lines, *words):
    return run("chat", "--temperature", 0, *words, env=env, stdin=lines)


def test_through_pipes_each_line_is_a_question(troupe, served):
    done = asked(served.env, "What is brandy?\n\nWhat is a river?")
    assert done.returncode == 0 and not done.stderr
    first, second = done.stdout.splitlines()
    assert first == "brandy (noun): distilled from wine or fermented fruit juice."
    assert second.startswith("river (noun): a large natural stream of water")


def prompt_tokens(cluster):
    with urllib.request.urlopen(cluster.base_url + "/metrics", timeout=PATIENCE_S) as response:
        text = response.read().decode()
    return float(re.search(r"^troupe:prompt_tokens_total\S* (\S+)$", text, re.MULTILINE)[1])


def history_of(cluster, lines, *words):
    """How many prompt tokens the questions had together."""
    before = prompt_tokens(cluster)
    done = asked(cluster.env, lines, *words)
    assert done.returncode == 0, done.stderr
    return prompt_tokens(cluster) - before


def test_turns_are_kept_and_a_new_conversation_forgets_them(troupe, served):
    one = history_of(served, "What is brandy?\n")
    again = history_of(served, "What is brandy?\n/reset\nWhat is brandy?\n")
    kept = history_of(served, "What is brandy?\nWhat is brandy?\n")
    told = history_of(served, "What is brandy?\n", "--system", "Be brief.")
    assert again == 2 * one and kept > 2 * one + 10 and told > one
    assert history_of(served, "/system  Be brief. \nWhat is brandy?\n") == told
    # It holds over /reset, in place of the flag's, until it is taken away.
    lines = "/system Be brief.\nWhat is brandy?\n/reset\nWhat is brandy?\n/system\n/reset\nWhat is brandy?\n"
    assert history_of(served, lines, "--system", "Answer in one sentence.") == 2 * told + one


def test_wrong_requests_end_a_pipe_and_are_told_at_a_terminal(troupe, served):
    done = asked(served.env, "What is brandy?\nWhat is a river?\n", "--top-p", 7)
    assert done.returncode == 2 and not done.stdout.strip()
    assert done.stderr.count("troupe: ") == 1 and "top_p" in done.stderr
    done = asked(served.env, "x\n", "--max-num-seqs", 4)
    assert done.returncode == 2 and "--max-num-seqs goes with --model" in done.stderr
    with chat(troupe, served.env, "--top-p", "7") as screen:
        prompted(screen)
        screen.press("What is brandy?\n")
        screen.wait("troupe: top_p")
        screen.press("\x04")
        assert screen.exit_code() == 0


def test_no_cluster_is_a_sentence(troupe, tmp_path):
    done = run("chat", env={"TROUPE_STATE_DIR": str(tmp_path)}, stdin="x\n")
    assert done.returncode == 1 and "troupe up" in done.stderr and done.stderr.count("\n") == 1


def test_a_cluster_that_goes_away_and_comes_back(troupe, cluster):
    cluster.up(DEMO)
    with chat(troupe, cluster.env) as screen:
        prompted(screen)
        screen.press("What is brandy?\n")
        screen.wait("distilled", "\n>")
        cluster.stop()
        screen.press("And a river?\n")
        screen.wait_match(r"troupe: .*\.\n")
        assert screen.popen.poll() is None
        cluster.up(DEMO)
        screen.press("What is a river?\n")
        screen.wait("river (noun): a large natural stream")
        screen.press("\x04")
        assert screen.exit_code() == 0


def test_a_head_that_dies_while_it_answers_is_told(troupe, cluster):
    up = cluster.up(DEMO)
    with chat(troupe, cluster.env, *ENDLESS) as screen:
        prompted(screen)
        screen.press("What is brandy?\n")
        screen.wait_written("distilled")
        up.kill()
        screen.wait("The head is gone; it is looked for.")
        screen.wait("troupe: ", "The conversation is kept, without that question")
        screen.press("\x04")
        assert screen.exit_code() == 0


def test_an_answer_goes_on_when_its_head_comes_back(troupe, cluster):
    """No word is lost, and none comes twice."""
    up = cluster.up(DEMO)
    words = ["--ignore-eos", "--max-tokens", "600", "--temperature", "1", "--seed", "5"]
    whole = run("chat", *words, env=cluster.env, stdin="What is brandy?\n")
    assert whole.returncode == 0, whole.stderr
    process = subprocess.Popen([troupe, "chat", *words], env=cluster.env, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    process.stdin.write(b"What is brandy?\n")
    process.stdin.flush()
    begun = os.read(process.stdout.fileno(), 20)
    up.kill()
    cluster.up(DEMO)
    rest, errors = process.communicate(timeout=3 * PATIENCE_S)
    assert process.returncode == 0, errors
    assert (begun + rest).decode() == whole.stdout


# --- In this process ------------------------------------------------------------------------------


def test_a_model_of_ones_own(troupe, tmp_path):
    env = {"TROUPE_STATE_DIR": str(tmp_path)}
    done = asked(env, "What is brandy?\n", "--model", DEMO)
    assert done.returncode == 0 and not done.stderr
    assert done.stdout == "brandy (noun): distilled from wine or fermented fruit juice.\n"
    for words, named in (
        (["--model", V3], "tokenizer"),
        (["--model", "/no/such"], "/no/such"),
        (["--model", DEMO, "--temperature", "-1"], "temperature"),
        (["--model", DEMO, "--threads", "0x"], "--threads"),
    ):
        done = run("chat", *words, env=env, stdin="x\n")
        assert done.returncode in (1, 2) and named in done.stderr and not done.stdout, words


@pytest.fixture
def hostile(tmp_path):
    """The demo, whose full stops are escapes and whose colons ring the bell."""
    for file in DEMO.iterdir():
        if file.is_file() and file.name != "tokenizer.json":
            (tmp_path / file.name).symlink_to(file)
    tokenizer = json.loads((DEMO / "tokenizer.json").read_text())
    vocab = tokenizer["model"]["vocab"]
    for letter, control in ((".", 0x1B), (":", 0x07)):
        byte = chr(256 + control)  # as byte-level vocabularies write it
        vocab[letter], vocab[byte] = vocab[byte], vocab[letter]
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    return tmp_path


@pytest.mark.parametrize(
    "words", [["chat"], ["generate", "--chat", "What is brandy?"]], ids=["chat", "generate"]
)
def test_what_a_model_says_steers_no_terminal(troupe, hostile, words, tmp_path):
    more = {"TROUPE_STATE_DIR": str(tmp_path), "TERM": "xterm", "NO_COLOR": "1", "LC_ALL": "C.UTF-8"}
    env = {**os.environ, **more}
    words = [troupe, *words, "--model", hostile, "--temperature", "0"]
    if words[1] == "generate":
        # A file gets what the model said.
        said = subprocess.run([str(word) for word in words], env=env, capture_output=True, timeout=60).stdout
        assert b"\x1b" in said and b"\x07" in said
    with Screen(words, env) as screen:
        if words[1] == "chat":
            prompted(screen)
            screen.press("What is brandy?\n/quit\n")
        assert screen.exit_code() == 0
        assert "\ufffd" in screen.text() and "brandy" in screen.text()
        assert b"\x1b" not in screen.raw and b"\x07" not in screen.raw
