"""The pair of files that the API's HTTPS is served with is replaced while it serves."""

import http.client
import json
import os
import ssl
import subprocess

import pytest

from running import DEMO, Cluster, wait_until


def pair(folder, name):
    """A certificate for localhost, as PEM text, and its key."""
    cert, key = folder / f"{name}.crt", folder / f"{name}.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-days", "40", "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost", "-out", cert,
         "-keyout", key], check=True, capture_output=True,
    )  # fmt: skip
    return cert.read_text(), key.read_text()


def replace(path, text):
    """As certbot does: another file under the same name."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    os.replace(fresh, path)


class Client:
    """A connection that stays, of a client that trusts one certificate alone."""

    def __init__(self, cluster, trusted):
        context = ssl.create_default_context(cadata=trusted)
        self.connection = http.client.HTTPSConnection(
            "localhost", cluster.http_port, timeout=60, context=context)  # fmt: skip

    def complete(self):
        body = json.dumps({"prompt": "brandy", "max_tokens": 4})
        self.connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        assert answer.status == 200
        return json.load(answer)["choices"][0]["text"]


@pytest.fixture
def served(troupe, tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    for path, text in zip((cert, key), pair(tmp_path, "first"), strict=True):
        path.write_text(text)
    with Cluster() as cluster:
        head = cluster.up(DEMO, "--tls-cert", cert, "--tls-key", key, workers=1, ready=False)
        head.wait_log("Ready after")
        yield cluster, head, cert, key


def shown(cluster):
    return ssl.get_server_certificate(("127.0.0.1", cluster.http_port), timeout=60)


def same(one, other):
    return one.split() == other.split()


def test_another_pair_is_taken_for_new_connections(served, tmp_path):
    cluster, head, cert, key = served
    first = cert.read_text()
    assert same(shown(cluster), first)
    early = Client(cluster, first)
    said = early.complete()
    stream = Client(cluster, first).connection
    body = {"prompt": "river", "max_tokens": 2000, "ignore_eos": True, "stream": True}
    stream.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    running = stream.getresponse()
    assert running.readline()
    second, second_key = pair(tmp_path, "second")

    # Half of it: one sentence, and what was there goes on.
    replace(key, second_key)
    head.wait_log("is not that of the certificate")
    assert Client(cluster, first).complete() == said
    replace(cert, second)
    wait_until(lambda: same(shown(cluster), second), f"the new one is shown:\n{head.log()}")
    head.wait_log("The API's certificate is the new one of")
    assert head.log().count("is not used") == 1, head.log()
    assert Client(cluster, second).complete() == said
    with pytest.raises(ssl.SSLCertVerificationError):
        Client(cluster, first).complete()

    assert early.complete() == said
    assert b"[DONE]" in running.read()


def test_what_cannot_be_used_is_left(served, tmp_path):
    cluster, head, cert, key = served
    first = cert.read_text()
    second, second_key = pair(tmp_path, "second")
    for count, (path, text, why) in enumerate([
        (cert, second[: len(second) // 2], "no whole certificate"),
        (cert, first + second[: len(second) // 2], "no whole certificate"),
        (key, "", "no private key"),
    ], 1):  # fmt: skip
        good = path.read_text()
        replace(path, text)
        head.wait_log(why)
        wait_until(lambda n=count: head.log().count("stays as it") == n, head.log())
        assert same(shown(cluster), first)
        replace(path, good)
        assert Client(cluster, first).complete()
    key.unlink()
    head.wait_log("key.pem does not exist")
    assert same(shown(cluster), first)
    # A chain: what leads to the CA is shown too, so the first of them counts.
    replace(cert, second + first)
    replace(key, second_key)
    wait_until(lambda: same(shown(cluster), second), f"the new one is shown:\n{head.log()}")
