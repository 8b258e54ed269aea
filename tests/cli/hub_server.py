"""A hub of models on this machine, that does what a test says: cuts, lies, hangs, redirects."""

import hashlib
import http.server
import json
import re
import threading
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git_blob(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub:
    """`files` of one repository, org/model, by path. Names in `lfs` are listed with SHA-256."""

    def __init__(self, files, lfs=(), token=None):
        self.files = files
        self.lfs = set(lfs)
        self.token = token
        self.listing = None  # instead of the true one
        self.page = None  # files of one page of the listing
        self.served = {}  # what is sent in place of a file's bytes
        self.cut_after = []  # bytes after which the next answers with files are cut off
        self.redirect = None  # a base address to which files are redirected
        self.hang = threading.Event()
        self.hangs = False
        self.ranges = True
        self.status = {}  # by the beginning of a path
        self.requests = []
        self.bytes = 0
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                hub.requests.append((self.path, dict(self.headers)))
                try:
                    hub.answer(self)
                except OSError:
                    self.close_connection = True

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.hang.set()
        self.server.shutdown()
        self.server.server_close()

    def true_listing(self):
        entries = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": "folder"}]
        for path, data in self.files.items():
            entry = {"type": "file", "oid": git_blob(data), "size": len(data), "path": path}
            if path in self.lfs:
                entry["oid"] = git_blob(b"a pointer")
                entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data),
                                "pointerSize": 134}
            entries.append(entry)
        return entries

    def reply(self, http_request, status, body=b"", **fields):
        http_request.send_response(status)
        for name, value in fields.items():
            http_request.send_header(name.replace("_", "-"), value)
        http_request.send_header("Content-Length", len(body))
        http_request.end_headers()
        cut = self.cut_after.pop(0) if self.cut_after and "/resolve/" in http_request.path else None
        http_request.wfile.write(body[:cut])
        if cut is not None and cut < len(body):
            http_request.wfile.flush()
            http_request.connection.shutdown(2)
            raise OSError("cut")

    def answer(self, r):
        path, _, query = r.path.partition("?")
        for beginning, status in self.status.items():
            if path.startswith(beginning):
                return self.reply(r, status)
        if self.hangs:
            self.hang.wait(600)
            return None
        if self.token and r.headers.get("Authorization") != f"Bearer {self.token}":
            return self.reply(r, 401)
        if re.fullmatch(r"/api/models/org/model/revision/([\w.]+|refs%2Fpr%2F1)", path):
            return self.reply(r, 200, json.dumps({"sha": COMMIT}).encode())
        if path == f"/api/models/org/model/tree/{COMMIT}":
            return self.list(r, query)
        name = path.removeprefix(f"/org/model/resolve/{COMMIT}/")
        if name == path:
            return self.reply(r, 404)
        if self.redirect:
            return self.reply(r, 302, Location=self.redirect + path)
        return self.send(r, urllib.parse.unquote(name))

    def list(self, r, query):
        entries = self.true_listing() if self.listing is None else self.listing
        if isinstance(entries, bytes):
            return self.reply(r, 200, entries)
        first = int(dict(urllib.parse.parse_qsl(query)).get("cursor", 0))
        last = first + (self.page or len(entries))
        link = f'<{self.url}{r.path.split("?")[0]}?recursive=1&cursor={last}>; rel="next"'
        fields = {"Link": link} if last < len(entries) else {}
        return self.reply(r, 200, json.dumps(entries[first:last]).encode(), **fields)

    def send(self, r, name):
        data = self.served.get(name, self.files.get(name))
        if data is None:
            return self.reply(r, 404)
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", r.headers.get("Range", ""))
        status = 200
        if match and self.ranges:
            first, last = map(int, match.groups())
            data, status = data[first:last + 1], 206
        self.bytes += len(data)
        return self.reply(r, status, data)
