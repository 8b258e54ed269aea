"""An OpenAI server that does what a test says, down to the byte: slow, wrong, hostile."""

import json
import socket
import threading
import time


class Request:
    def __init__(self, line, fields, body):
        self.method, self.path = line.split()[:2]
        self.fields = fields
        self.body = json.loads(body) if body else None
        self.at = time.monotonic()


class ScriptedServer:
    """Calls `answer(send, request, number)` for each POST of a completion; `send` takes bytes, and an
    answer that returns False closes the connection."""

    def __init__(self, answer, words=None, status=None, tls=None, models=None):
        """`words`: what /tokenize makes of anything; None: there is no /tokenize. `status`: a function
        that gives what /cluster/status tells. `tls`: an ssl.SSLContext. `models`: the bytes that
        /v1/models answers with."""
        self.answer = answer
        self.words = words
        self.status = status
        self.tls = tls
        self.models = models or plain(200, {"data": [{"id": "scripted"}]})
        self.requests = []
        self.connections = 0
        self.lock = threading.Lock()
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        scheme = "https" if tls else "http"
        self.base_url = f"{scheme}://127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.shutdown(socket.SHUT_RDWR)  # wakes who waits for a connection
        self.socket.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self.tls:
                connection = self.tls.wrap_socket(connection, server_side=True)
        except OSError:
            connection.close()
            return
        with connection, connection.makefile("rb") as stream:
            try:
                while (request := self._read(stream)) is not None:
                    if self._reply(connection.sendall, request) is False:
                        return
            except OSError:
                pass

    def _read(self, stream):
        line = stream.readline().decode()
        if not line:
            return None
        fields = {}
        while (field := stream.readline().decode().strip()):
            name, value = field.split(":", 1)
            fields[name.lower()] = value.strip()
        return Request(line, fields, stream.read(int(fields.get("content-length", 0))))

    def _reply(self, send, request):
        if request.path == "/v1/models":
            return send(self.models)
        if request.path == "/tokenize" and self.words is not None:
            return send(plain(200, {"tokens": self.words, "count": len(self.words)}))
        if request.path == "/cluster/status" and self.status:
            return send(plain(200, self.status()))
        if not request.path.endswith("completions"):
            return send(plain(404, {"error": {"message": "no such path"}}))
        with self.lock:
            number = len(self.requests)
            self.requests.append(request)
        return self.answer(send, request, number)


def plain(status, body, *fields):
    text = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} Whatever\r\nContent-Type: application/json\r\n"
    head += "".join(f"{field}\r\n" for field in fields) + f"Content-Length: {len(text)}\r\n\r\n"
    return head.encode() + text


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


def chunk(text):
    data = text.encode() if isinstance(text, str) else text
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(body):
    return f"data: {body if isinstance(body, str) else json.dumps(body)}\n\n"


def token(text, finish=None):
    return event({"choices": [{"index": 0, "text": text, "finish_reason": finish}]})


def delta(text, finish=None):
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]})


def usage(prompt, completion):
    return event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}})


DONE = event("[DONE]")


def steady(first_s, gap_s, tokens, piece=token):
    """Answers with that many tokens, the first after `first_s` and the others `gap_s` apart, measured
    from when the request was read, so that delays do not add up."""

    def answer(send, request, _number):
        send(HEAD)
        for i in range(tokens):
            time.sleep(max(0, request.at + first_s + i * gap_s - time.monotonic()))
            send(chunk(piece("x ", "length" if i + 1 == tokens else None)))
        prompt = request.body.get("prompt", "")
        send(chunk(usage(len(prompt), tokens)) + chunk(DONE) + LAST_CHUNK)

    return answer
