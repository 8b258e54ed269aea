"""The web page at `/`: its headers, and what a browser makes of it.

The browser is a Chromium without a window, where one is installed; those tests are skipped where
none is. What the page is shown comes from a stub of the head, so that hostile text, a wrong key and a
moving expert can be had at will; the page itself and its policy come from the program."""

import base64
import hashlib
import http.server
import json
import re
import shutil
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request

import pytest

from running import DEMO, Cluster

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium here (apt-get install chromium)")

HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>&lt;'


@pytest.fixture(scope="module")
def page(server):
    """(html, headers) as the program serves them."""
    with urllib.request.urlopen(server.base_url + "/", timeout=30) as response:
        return response.read().decode(), dict(response.headers)


def dump_dom(url, seconds=6):
    """The document after the page has run for so long (in the browser's time)."""
    with tempfile.TemporaryDirectory(prefix="troupe-browser-") as profile:
        done = subprocess.run(
            [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             f"--user-data-dir={profile}", "--window-size=1400,1000",
             f"--virtual-time-budget={1000 * seconds}", "--dump-dom", url],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def text_of(dom, name):
    """The text of the element with this id; none of its own kind may be inside."""
    inside = re.search(rf'<(\w+)[^>]*\bid="{name}"[^>]*>(.*?)</\1>', dom, re.DOTALL)
    assert inside, f"no element {name}"
    return re.sub(r"<[^>]*>", " ", inside[2]).strip()


class Stub:
    """A head that serves the real page and answers what it is told to. `driver` is a script that
    plays the user."""

    def __init__(self, page, status, key=None, driver="", chat=()):
        html, headers = page
        policy = headers["Content-Security-Policy"]
        if driver:
            digest = base64.b64encode(hashlib.sha256(driver.encode()).digest()).decode()
            policy = policy.replace("script-src ", f"script-src 'sha256-{digest}' ")
            html = html.replace("</body>", f"<script>{driver}</script></body>")
        self.asked, self.chats = 0, []
        stub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self, code, kind, body, **more):
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                for name, value in more.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(body)

            def refused(self):
                if key is None or self.headers.get("Authorization") == f"Bearer {key}":
                    return False
                self.answer(401, "application/json", b'{"error": {"message": "The API key is wrong."}}')
                return True

            def do_GET(self):
                if self.path == "/":
                    return self.answer(200, headers["Content-Type"], html.encode(),
                                       Content_Security_Policy=policy)
                if self.path != "/cluster/status":
                    return self.answer(404, "text/plain", b"")
                if self.refused():
                    return None
                stub.asked += 1
                body = json.dumps(status(stub.asked)).encode()
                return self.answer(200, "application/json", body)

            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.refused():
                    return
                stub.chats.append(request)
                lines = [f"data: {json.dumps(piece)}\n\n" for piece in chat] + ["data: [DONE]\n\n"]
                self.answer(200, "text/event-stream", "".join(lines).encode())

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def status_of(text="text", device="node-1/0"):
    return {
        "cluster": {"state": "ready", "model": text, "numerics": "avx2", "version": "0.1.0",
                    "uptime_s": 61, "message": text, "placement_version": 3,
                    "survives": {"at_once": ["node-1", "node-2"], "with_reload": [], "not": []}},
        "nodes": [{"id": text, "host": text, "pid": 7, "state": "ready", "last_seen_ms": 100,
                   "devices": [{"id": device, "kind": text, "memory_total": 2048, "memory_used": 1024,
                                "utilization": 0.5}]},
                  {"id": "node-9", "host": "h", "pid": 8, "state": "lost", "lost_reason": text,
                   "devices": []}],
        "replicas": [{"id": 0, "state": "ready", "running": 1, "waiting": 0, "kv_blocks_total": 10,
                      "kv_blocks_used": 5, "shards": [{"layers": [0, 4], "device": text}]}],
        "experts": {"layers": 1, "experts": 2, "copies": 2, "imbalance": 1.5, "moves_pending": 0,
                    "last_rebalance_s": None,
                    "placement": [{"layer": 1, "slots": [{"expert": 0, "device": "node-1/0"},
                                                         {"expert": 1, "device": device}]}],
                    "load": [{"layer": 1, "tokens": [10, 20]}]},
        "requests": {"running": 1, "waiting": 0, "finished": 2, "failed": 3, "replayed": 4,
                     "rates": {"prompt_tokens_per_s": 5, "generation_tokens_per_s": 600,
                               "ttft_ms": {"p50": 7, "p99": 8}, "inter_token_ms": None},
                     "list": [{"id": 51, "state": "running", "replica": 0, "prompt_tokens": 11,
                               "tokens": 12, "age_s": 1.5, "replays": 1}]},
        "events": [{"time": 1e9, "kind": text, "text": text}],
    }  # fmt: skip


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
        cluster.up(DEMO, "--api-key", "secret", ready=False).wait_log("serves the OpenAI API", 30)

        def ask(path, key=None, method="GET"):
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            request = urllib.request.Request(cluster.base_url + path, headers=headers, method=method)
            try:
                with urllib.request.urlopen(request, timeout=30) as response:
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
    typed = '$("key").value = "secret"; $("key-form").requestSubmit();'
    with Stub(page, lambda asked: status_of(), key="secret", driver=typed) as stub:
        dom = dump_dom(stub.url, 3)
        assert text_of(dom, "link") == "" and "<b>600</b>" in dom
        assert re.search(r'<section id="door" hidden', dom)


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
    assert '<p class="thought">a noun</p>' in dom
    assert '<p class="answer">A large &lt;img' in dom
    assert re.search(r'<button id="stop"[^>]* hidden', dom)
