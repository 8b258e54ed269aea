"""How each request went stands in the head's log; what was asked and answered does not."""

import json
import re
import urllib.error
import urllib.request

import pytest

from running import PATIENCE_S, get, post, wait_until


def ask(server, path, body, **headers):
    request = urllib.request.Request(server.base_url + path, json.dumps(body).encode(),
                                     {"Content-Type": "application/json", **headers})  # fmt: skip
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        return response.headers["X-Request-Id"], response.read().decode()


def line_of(server, *words):
    """The last line that has these words."""
    log = server.cluster.processes[0]

    def find():
        return [line for line in log.log().splitlines() if all(word in line for word in words)]

    return wait_until(find, f"a line with {words}")[-1]


def test_each_request_that_generates_has_a_line(server):
    wish = {"prompt": "a secret wish", "max_tokens": 3, "temperature": 0, "ignore_eos": True}
    name, answer = ask(server, "/v1/completions", wish)
    used = json.loads(answer)["usage"]
    line = line_of(server, name)
    assert re.search(r"POST /v1/completions 200 after \d+\.\d{3} s, "
                     rf"{used['prompt_tokens']} tokens in, 3 out, {name}$", line), line  # fmt: skip
    name, _ = ask(server, "/v1/completions", wish | {"stream": True}, **{"Idempotency-Key": "a secret key"})
    assert "3 out" in line_of(server, name)
    own, _ = ask(server, "/v1/completions", wish, **{"X-Request-Id": "trace-17"})
    assert own == "trace-17" and ", cmpl-" in line_of(server, "X-Request-Id trace-17")
    get(server.base_url, f"/v1/requests/{name}?from=3")
    line_of(server, f"GET /v1/requests/{name} 200")
    assert "secret" not in server.cluster.processes[0].log()


def test_what_is_refused_has_a_line_and_probes_have_none(server):
    assert post(server.base_url, "/v1/completions", {"prompt": "x", "n": -1})[0] == 400
    line_of(server, "POST /v1/completions 400 after")
    with pytest.raises(urllib.error.HTTPError):
        get(server.base_url, "/no/such%0Aplace")
    line_of(server, "GET /no/such?place 404 after")
    for path in ("/health", "/metrics", "/cluster/status"):
        get(server.base_url, path)
    get(server.base_url, "/v1/models")
    line_of(server, "GET /v1/models 200 after")
    assert not re.search("GET /(health|metrics|cluster)", server.cluster.processes[0].log())
