"""The web page at `/`: its headers, and what a browser makes of it.

The browser is a Chromium without a window, where one is installed; those tests are skipped where
none is."""

import base64
import hashlib
import json
import re
import urllib.error
import urllib.request
from html import unescape

import pytest

from browser import Stub, dump_dom, needs_browser, status_of, text_of
from promises import bound
from running import DEMO, Cluster

HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>&lt;'


def test_the_page_brings_a_policy_and_no_outside_assets(page):
    html, headers = page
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["X-Content-Type-Options"] == "nosniff"
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'" and policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert "unsafe" not in headers["Content-Security-Policy"]
    for tag, name in (("script", "script-src"), ("style", "style-src")):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert policy[name] == f"'sha256-{digest}'"
    assert not re.search(r"https?://|@import|\bsrc=|\son\w+=|innerHTML|insertAdjacentHTML|\beval\b", html)


def test_the_page_is_open_and_the_status_is_not(troupe):
    with Cluster() as cluster:
        cluster.up(DEMO, "--api-key", "secret", ready=False).wait_log("serves the OpenAI API")

        def ask(path, key=None, method="GET"):
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            request = urllib.request.Request(cluster.base_url + path, headers=headers, method=method)
            try:
                with urllib.request.urlopen(request, timeout=60) as response:
                    return response.status
            except urllib.error.HTTPError as error:
                return error.code

        assert ask("/") == ask("/", method="HEAD") == 200
        assert ask("/", method="POST") == 405
        assert ask("/cluster/status") == ask("/cluster/status", "wrong") == 401
        assert ask("/cluster/status", "secret") == 200


@needs_browser
def test_a_browser_shows_the_cluster(server):
    dom = dump_dom(server.base_url + "/")
    assert text_of(dom, "link") == ""  # it was answered, and its policy let the script run
    assert text_of(dom, "model") == DEMO.name and text_of(dom, "state") == "ready"
    assert "node-1" in text_of(dom, "nodes") and "node-2" in text_of(dom, "nodes")
    assert "0-4 on node-1/0" in text_of(dom, "replicas")
    assert "4 layers of 32" in text_of(dom, "experts")
    assert "Serving" in text_of(dom, "events-table")
    assert re.search(r'<canvas id="map"[^>]* width="\d{3,}"', dom)


@needs_browser
def test_what_the_cluster_says_is_text(page):
    with Stub(page, lambda asked: status_of(HOSTILE)) as stub:
        dom = dump_dom(stub.url)
    escaped = HOSTILE.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert dom.count(escaped) >= 8 and "<img" not in dom
    assert f"<title>Troupe: ready, {escaped}</title>" in dom


@needs_browser
def test_figures_moves_and_a_head_of_another_version(page):
    def status(asked):
        # The expert moves between the second and the third answer; then fields go missing.
        return status_of(device="node-1/0" if asked < 3 else "node-2/0")

    with Stub(page, status) as stub:
        dom = dump_dom(stub.url)
        assert stub.asked >= 4
    assert "<b>600</b>" in dom and "<b>7 / 8 ms</b>" in dom
    assert "1 moved just now" in text_of(dom, "experts") and "imbalance 1.50" in text_of(dom, "experts")
    assert "survives the loss of any one node at once" in dom
    assert "<b>312 of 312</b>" in dom and "parts proven, oldest 41 s ago" in dom
    assert "taken out</span>" not in dom
    proofs = {"parts": 9, "proven": 8, "oldest_s": 700, "refused": 2, "round_s": 720}
    with Stub(page, lambda asked: status_of() | {"proofs": proofs}) as stub:
        dom = dump_dom(stub.url, 2)
    assert "parts proven, oldest 11 min 40 s ago, a round takes 12 min 0 s</span>" in dom
    assert '<b class="warning">2</b><span class="faint">copies taken out</span>' in dom
    ranks = [{"layers": [0, 4], "tp_rank": rank, "device": f"node-{rank + 1}/0"} for rank in (0, 1)]
    with Stub(page, lambda asked: status_of() | {"replicas": [{"id": 0, "shards": ranks}]}) as stub:
        dom = dump_dom(stub.url, 2)
    assert "0-4 rank 0 of 2 on node-1/0, 0-4 rank 1 of 2 on node-2/0" in text_of(dom, "replicas")
    for odd in ({}, {"nodes": None, "experts": {"placement": [{}]}, "requests": 3, "events": [None]}):
        with Stub(page, lambda asked, odd=odd: odd) as stub:
            dump_dom(stub.url, 3)
            assert stub.asked >= 2  # it goes on asking


@needs_browser
def test_a_cluster_with_a_key_asks_for_it(page):
    with Stub(page, lambda asked: status_of(), key="secret") as stub:
        dom = dump_dom(stub.url, 3)
        assert text_of(dom, "link") == "An API key is needed."
        assert not re.search(r'<section id="door" hidden', dom)
        assert re.search(r'<div id="panels" hidden', dom)  # there is nothing to show in them
    typed = '$("key").value = "secret"; $("key-form").requestSubmit();'
    with Stub(page, lambda asked: status_of(), key="secret", driver=typed) as stub:
        dom = dump_dom(stub.url, 3)
        assert text_of(dom, "link") == "" and "<b>600</b>" in dom
        assert re.search(r'<section id="door" hidden', dom)
        assert not re.search(r'<div id="panels" hidden', dom)


@needs_browser
def test_the_chat_streams(page):
    pieces = [{"choices": [{"delta": {"role": "assistant", "content": ""}}]},
              {"choices": [{"delta": {"reasoning_content": "a noun"}}]},
              {"choices": [{"delta": {"content": "\n\nA large "}}]},
              {"choices": [{"delta": {"content": HOSTILE}, "finish_reason": "stop"}]}]  # fmt: skip
    typed = '$("question").value = "What is a river?"; $("ask").requestSubmit();'
    with Stub(page, lambda asked: status_of(), driver=typed, chat=pieces) as stub:
        dom = dump_dom(stub.url, 4)
    assert stub.chats == [{"messages": [{"role": "user", "content": "What is a river?"}], "stream": True}]
    assert '<p class="user">What is a river?</p>' in dom
    # The thought is folded as soon as the answer begins.
    thought = r'<details class="thought"><summary>Thought for \d+\.\d s</summary><p>a noun</p></details>'
    assert re.search(thought, dom)
    assert '<div class="answer"><p>A large &lt;img' in dom
    assert re.search(r'<button id="stop"[^>]* hidden', dom)


MARKDOWN = """# A **title**
Text with `a * b`, *emphasis*, **strong *both***, snake_case_name and 2*3*4,
on two lines, <b>no markup</b> and [no link](javascript:alert(1)).

1. one
2. two
   - below

> said
> > twice

| a | b |
|---|---|
| 1 | **2** |

```python
if x < 3: **not strong**

    <script>
```
***
* open `code and **strong
"""
SHOWN = (
    "<h3>A <strong>title</strong></h3>"
    "<p>Text with <code>a * b</code>, <em>emphasis</em>, <strong>strong <em>both</em></strong>, "
    "snake_case_name and 2*3*4,\non two lines, &lt;b&gt;no markup&lt;/b&gt; and "
    "[no link](javascript:alert(1)).</p>"
    '<ol start="1"><li><p>one</p></li><li><p>two</p><ul><li><p>below</p></li></ul></li></ol>'
    "<blockquote><p>said</p><blockquote><p>twice</p></blockquote></blockquote>"
    "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td><strong>2</strong></td></tr></table>"
    "<pre><code>if x &lt; 3: **not strong**\n\n    &lt;script&gt;</code></pre>"
    "<hr><ul><li><p>open `code and **strong</p></li></ul>"
)


@needs_browser
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_an_answer_is_markdown_however_it_comes_in_pieces(page, size):
    cut = [MARKDOWN[i : i + size] for i in range(0, len(MARKDOWN), size)]
    pieces = [{"choices": [{"delta": {"content": text}}]} for text in cut]
    typed = '$("question").value = "x"; $("ask").requestSubmit();'
    with Stub(page, lambda asked: status_of(), driver=typed, chat=pieces) as stub:
        dom = dump_dom(stub.url, 4)
    assert f'<div class="answer">{SHOWN}</div>' in dom.replace("<tbody>", "").replace("</tbody>", "")


@needs_browser
def test_hostile_markdown_ends_soon_and_is_text(page):
    """Marks and quotes without end, in each other and by the thousand."""
    texts = ["*" * 20_000, "`" * 20_001 + "a", "> " * 5000 + "x", "- " * 5000, "**a " * 5000, "_a_ " * 5000,
             "|" * 5000 + "\n" + "|-" * 5000, "1. " * 3000, "#" * 9000 + " x", "~~~" * 3000]  # fmt: skip
    typed = """(async () => {
      const began = performance.now();
      for (const text of %s) growing(document.createElement("div")).add(text);
      document.body.dataset.took = Math.round(performance.now() - began);
      document.body.dataset.deep = (() => {
        const box = document.createElement("div");
        growing(box).add("> ".repeat(50) + "x");
        return box.querySelectorAll("blockquote").length;
      })();
    })()""" % json.dumps(texts)
    with Stub(page, lambda asked: status_of(), driver=typed) as stub:
        dom = dump_dom(stub.url, 2)
    bound("typed", int(re.search(r'data-took="(\d+)"', dom)[1]) / 1000, 3)
    assert int(re.search(r'data-deep="(\d+)"', dom)[1]) == 4


HISTORY = """const slot = Math.floor(Date.now() / SLOT_MS), body = document.body.dataset;
samples = [];
for (let i = 5000; i >= 0; --i)
  noteSample({ requests: { running: i, rates: { ttft_ms: i %% 2 ? null : { p50: 7, p99: "x" } } } },
             (slot - i) * SLOT_MS);
body.kept = samples.length;
body.oldest = sampleValue(samples[0], "running");
body.nothing = JSON.stringify(["first50", "first99", "in"].map((name) => sampleValue(samples[0], name)));
noteSample({ requests: { running: 3 } }, slot * SLOT_MS + 1000);
noteSample({ requests: 3 }, slot * SLOT_MS + 2000);
body.mean = sampleValue(samples[samples.length - 1], "running");
$("panels").hidden = false;
drawHistory();
body.span = document.querySelector(".since").textContent;
body.top = $("top-queue").textContent;
body.ink = new Set($("graph-queue").getContext("2d").getImageData(0, 0, 300, 60).data).size;
samples = samples.slice(-30);
drawHistory();
const kept = samples;
samples = [];
takeHistory({ slot_s: 5, running: Array.from({ length: 900 }, (_, i) => i), waiting: 7,
              prompt_tokens_per_s: Array(900).fill(2), ttft_ms: { p50: Array(900).fill(null) } },
            slot * SLOT_MS);
body.taken = JSON.stringify([samples.length, slot - samples[0].at, samples[0].sums,
                             slot - samples[718].at, samples[718].sums.running]);
takeHistory({ slot_s: 1, prompt_tokens_per_s: [1] }, slot * SLOT_MS);
takeHistory({}, slot * SLOT_MS);
body.other = samples.length;
samples = kept;
body.short = document.querySelector(".since").textContent;
samples = [];"""


@needs_browser
def test_graphs_keep_an_hour_and_no_more(page):
    with Stub(page, lambda asked: status_of(), driver=HISTORY.replace("%%", "%")) as stub:
        dom = dump_dom(stub.url, 2)
    found = dict(re.findall(r'data-(\w+)="([^"]*)"', re.search(r"<body[^>]*>", dom)[0]))
    assert found["kept"] == "720" and found["oldest"] == "719"
    assert found["nothing"] == "[null,null,null]"
    assert found["mean"] == "1.5"  # of 0 and 3, a second apart
    taken = json.loads(unescape(found["taken"]))
    assert taken == [719, 719, {"in": 2, "running": 181}, 1, 899] and found["other"] == "719"
    assert found["span"] == "60 min ago" and found["short"] == "5 min ago"
    assert found["top"] == "1000" and int(found["ink"]) > 5
    # And what the cluster really said.
    assert '<span id="now-tokens-1">600</span>' in dom and '<span id="now-ttft-0">7</span>' in dom


MARKS = """const slot = Math.floor(Date.now() / SLOT_MS), body = document.body.dataset;
const pixels = (name) => {
  const canvas = $("graph-" + name), found = new Set();
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour("--bad").slice(i, i + 2), 16));
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  for (let i = 0; i < data.length; i += 4)
    if (data[i] === r && data[i + 1] === g && data[i + 2] === b) found.add((i / 4) % canvas.width);
  return [...found].map((x) => Math.round((20 * x) / canvas.width));  // where, of 20 parts
};
const devices = Array.from({ length: 3 }, (_, i) => ({ id: "node-" + (9 + i) + "/0", utilization: i / 2 }));
samples = [];
for (let i = 59; i >= 0; --i)
  noteSample({ nodes: [{ devices }, { state: "lost", devices: [{ id: "node-1/0", utilization: 1 }] }] },
             (slot - i) * SLOT_MS);
noteMarks({ cluster: { time: Date.now() / 1000 - 500 },  // its clock is a hundred slots behind
            events: [{ time: ((slot - 145) * SLOT_MS) / 1000, kind: "node_joined", text: "a" },
                     { time: ((slot - 115) * SLOT_MS) / 1000, kind: "node_lost", text: "its end" }] },
          Date.now());
$("panels").hidden = false;
drawHistory();
body.marks = JSON.stringify([...new Set(pixels("queue"))]);
body.rows = JSON.stringify(span.rows);
body.loads = JSON.stringify(span.rows.map((name) => sampleValue(span.shown[5], name)));
body.strip = JSON.stringify(pixels("loads").length > 0);
const queue = $("graph-queue"), at = { clientX: 0, clientY: 0, bubbles: true };
at.clientX = queue.getBoundingClientRect().left + (queue.clientWidth * 44) / 59;
queue.dispatchEvent(new PointerEvent("pointermove", at));
body.then = $("then").textContent;
queue.dispatchEvent(new PointerEvent("pointerleave"));
body.point = $("then").textContent;
samples = [];"""


@needs_browser
def test_graphs_mark_losses_and_show_the_load_of_each_device(page):
    with Stub(page, lambda asked: status_of(), driver=MARKS) as stub:
        dom = dump_dom(stub.url, 2)
    body = re.search(r"<body[^>]*>", dom)[0]
    found = {name: unescape(value) for name, value in re.findall(r'data-(\w+)="([^"]*)"', body)}
    assert json.loads(found["marks"]) == [15]  # a loss; who joins is not marked so
    assert json.loads(found["rows"]) == [f"load of node-{i}/0" for i in (9, 10, 11)]
    assert json.loads(found["loads"]) == [0, 0.5, 1] and found["strip"] == "true"
    assert found["then"].endswith("node_lost: its end") and "Point at a graph" in found["point"]


@needs_browser
def test_a_second_turn_sends_the_first_and_a_new_chat_does_not(page):
    pieces = [{"choices": [{"delta": delta}]}
              for delta in ({"reasoning_content": "a noun"}, {"content": "\n\nA large stream."})]  # fmt: skip
    typed = """(async () => {
      for (const text of ["What is a river?", "And a creek?", null, "What is a house?"]) {
        if (!text) { $("new-chat").click(); continue; }
        $("question").value = text;
        $("ask").requestSubmit();
        while (speaking) await new Promise((next) => setTimeout(next, 20));
      }
    })()"""
    with Stub(page, lambda asked: status_of(), driver=typed, chat=pieces) as stub:
        dom = dump_dom(stub.url, 4)
    first, second, third = ({"role": "user", "content": text}
                            for text in ("What is a river?", "And a creek?", "What is a house?"))  # fmt: skip
    answer = {"role": "assistant", "content": "A large stream."}  # without what was thought
    assert [chat["messages"] for chat in stub.chats] == [[first], [first, answer, second], [third]]
    assert "What is a house?</p>" in dom and "And a creek?</p>" not in dom


@needs_browser
def test_a_turn_without_an_answer_is_said_and_forgotten(page):
    pieces = [{"choices": [{"delta": {"reasoning_content": "a noun"}, "finish_reason": "length"}]}]
    typed = """(async () => {
      for (const text of ["What is a river?", "And a creek?"]) {
        $("question").value = text;
        $("ask").requestSubmit();
        while (speaking) await new Promise((next) => setTimeout(next, 20));
      }
    })()"""
    with Stub(page, lambda asked: status_of(), driver=typed, chat=pieces) as stub:
        dom = dump_dom(stub.url, 4)
    assert [len(chat["messages"]) for chat in stub.chats] == [1, 1]
    assert dom.count("The model gave no answer; this turn is forgotten.</p>") == 2
