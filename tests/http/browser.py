"""A browser without a window, and a head that it can be shown: hostile text, a wrong key and a moving
expert can be had at will; the page itself and its policy come from the program."""

import base64
import hashlib
import http.server
import json
import re
import shutil
import subprocess
import tempfile
import threading

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium here (apt-get install chromium)")

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
    plays the user. With a `width` the page is in a frame as wide as that: no window is narrow."""

    def __init__(self, page, status, key=None, driver="", chat=(), width=None):
        html, headers = page
        policy = headers["Content-Security-Policy"]
        policy = policy.replace("frame-ancestors 'none'", "frame-ancestors 'self'")
        frame = f'<iframe src="/page" style="width: {width}px; height: 800px; border: 0">'
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
                if self.path == "/" and width:
                    return self.answer(200, "text/html", frame.encode())
                if self.path in ("/", "/page"):
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
        "cluster": {"state": "ready", "model": text, "numerics": "bf16", "version": "0.1.0",
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
        "proofs": {"parts": 312, "proven": 312, "oldest_s": 41.5, "refused": 0},
        "events": [{"time": 1e9, "kind": text, "text": text}],
    }  # fmt: skip
