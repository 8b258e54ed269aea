"""Who may use a head, through the flags: names, other sites' pages, media types, keys."""

import http.client
import json
import socket

import pytest

from running import DEMO, Cluster, run, wait_until

JSON = {"Content-Type": "application/json"}
BODY = {"prompt": "brandy", "max_tokens": 3, "temperature": 0}


def ask(cluster, method, path, headers, body=None):
    """Status, header fields and text of an answer; `headers` may name another Host."""
    connection = http.client.HTTPConnection("127.0.0.1", cluster.http_port, timeout=60)
    connection.request(method, path, body and json.dumps(body), headers)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, response.headers, text


@pytest.fixture(scope="module")
def plain(troupe):
    with Cluster() as cluster:
        cluster.up(DEMO, workers=1)
        yield cluster


def test_a_web_page_cannot_use_a_head_without_keys(plain):
    """A form's text/plain needs no preflight; a name that points here later reads the answers."""
    completions = "/v1/completions"
    evil = {"Host": "evil", "Origin": "http://evil", "Content-Type": "text/plain"}
    assert ask(plain, "POST", completions, evil, BODY)[0] == 403
    assert ask(plain, "POST", completions, {"Content-Type": "text/plain"}, BODY)[0] == 415
    status, _, text = ask(plain, "GET", "/cluster/status", {"Host": f"evil:{plain.http_port}"})
    assert status == 403 and "--allowed-host" in text
    status, _, text = ask(plain, "POST", completions, {**JSON, "Origin": "http://evil"}, BODY)
    assert status == 403 and "--allowed-origin" in text
    own = {**JSON, "Origin": plain.base_url}
    assert ask(plain, "POST", completions, own, BODY)[0] == 200
    for name in ("localhost", socket.gethostname(), "[::1]:80"):
        assert ask(plain, "POST", completions, {**JSON, "Host": name}, BODY)[0] == 200


def test_the_flags_let_in_whom_they_name(troupe, tmp_path):
    config = tmp_path / "up.toml"
    config.write_text(
        'allowed-host = ["llm.example", "other.example"]\nallowed-origin = ["https://chat.example"]\n'
        'api-key = ["secret"]\nmetrics-without-key = true\n'
    )
    key = {"Authorization": "Bearer secret"}
    with Cluster() as cluster:
        cluster.up(DEMO, "--config", config, workers=1, ready=False)
        wait_until(lambda: cluster_health(cluster) == 200, "health")
        for host in ("llm.example", "other.example:8443"):
            assert ask(cluster, "GET", "/v1/models", {**key, "Host": host})[0] == 200
        page = {**key, **JSON, "Origin": "https://chat.example", "Host": "llm.example"}
        status, fields, _ = ask(cluster, "POST", "/v1/completions", page, {**BODY, "stream": True})
        assert status == 200 and fields["Access-Control-Allow-Origin"] == "https://chat.example"
        assert ask(cluster, "GET", "/v1/models", {**key, "Origin": "https://a.example"})[0] == 403
        assert ask(cluster, "GET", "/metrics", {})[0] == 200
        assert ask(cluster, "GET", "/cluster/status", {})[0] == 401


def cluster_health(cluster):
    try:
        return ask(cluster, "GET", "/health", {})[0]
    except OSError:
        return None


@pytest.mark.parametrize("words", [["--allowed-host", "http://a"], ["--allowed-origin", "a.example"]])
def test_what_no_name_is_is_wrong_usage(troupe, tmp_path, words):
    done = run("head", "--model", DEMO, "--port", 0, "--listen", "127.0.0.1:0", "--state-dir", tmp_path,
               *words)  # fmt: skip
    assert done.returncode == 2 and words[0] in done.stderr


@pytest.mark.parametrize("keys", [[], ["--api-key", "secret"]], ids=["open", "keys"])
def test_nobody_hears_how_to_join(troupe, keys):
    """Without the key: the state. Those who ask for answers: the same."""
    with Cluster() as cluster:
        cluster.head(DEMO, *keys)
        wait_until(lambda: cluster_health(cluster), "the head listens")
        secrets = [str(cluster.state_dir), str(cluster.control_port), "--join", "troupe worker"]
        head = {**JSON, "Authorization": "Bearer secret"}
        answers = [ask(cluster, "GET", "/health", {}), ask(cluster, "POST", "/v1/completions", head, BODY)]
        for status, fields, text in answers:
            assert status == 503 and fields["Retry-After"]
            assert "forming" in text
            assert not [secret for secret in secrets if secret in text], text
        assert json.loads(answers[0][2])["error"]["message"] == "The cluster is forming."
        assert ask(cluster, "GET", "/metrics", {})[0] == (401 if keys else 200)
