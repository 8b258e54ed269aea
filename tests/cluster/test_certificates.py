"""Certificates are renewed while the cluster runs: nobody leaves, no request ends, nothing is restarted."""

import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from promises import bound
from recovery import SMALL
from running import DEMO, PATIENCE_S, Cluster, at_once, run, wait_until

LIFE_S = 24
SHORT = [*SMALL, "--certificate-lifetime", f"{LIFE_S}s"]


@pytest.fixture
def cluster(troupe):
    with Cluster() as cluster:
        yield cluster


def start_head(cluster, *flags):
    head = cluster.head(DEMO, *flags)
    cluster.wait_joinable()
    cluster.wait_answers()
    return head


def token_of(cluster, *flags):
    return run("token", "create", *flags, env=cluster.env).stdout.strip()


def own_join(cluster):
    """Where a worker has its own certificate, beside no head's."""
    folder = cluster.folder / "worker"
    folder.mkdir(exist_ok=True)
    return folder / "join"


def ends(cluster, path, name="worker"):
    """When the certificate there ends, in Unix seconds."""
    listed = run("certificate", "list", "--json", "--join", path, env=cluster.env)
    assert listed.returncode == 0, listed.stderr
    return {row["name"]: row["ends"] for row in json.loads(listed.stdout)}[name]


def block(text, key):
    """A PEM block of a file of the cluster's."""
    return re.search(rf"^{key}\n(-----BEGIN .*?-----END [A-Z ]+-----\n)", text, re.MULTILINE | re.DOTALL)[1]


def shown_by(port):
    """The certificate that the head shows to whoever comes."""
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=PATIENCE_S)


def openssl(*words, **more):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, **more)


def by_hand(cluster, usage, days=30):
    """A key and a certificate of the cluster's CA, as an operator makes them: RSA, by openssl."""
    if not shutil.which("openssl"):
        pytest.skip("there is no openssl")
    folder = cluster.folder / f"by-hand-{usage}-{days}"
    folder.mkdir(exist_ok=True)
    kept = (cluster.state_dir / "credentials.pem").read_text()
    (folder / "ca").write_text(block(kept, "ca-certificate"))
    (folder / "ca-key").write_text(block(kept, "ca-key"))
    (folder / "usage").write_text(f"extendedKeyUsage={usage}\nbasicConstraints=CA:FALSE\n")
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", folder / "key", "-out", folder / "request",
            "-subj", "/CN=by hand")  # fmt: skip
    openssl("x509", "-req", "-in", folder / "request", "-CA", folder / "ca", "-CAkey", folder / "ca-key",
            "-set_serial", "77", "-days", days, "-extfile", folder / "usage",
            "-out", folder / "made")  # fmt: skip
    return (folder / "made").read_text(), (folder / "key").read_text()


def put(path, certificate, key, who):
    """In place of what is there, as an editor would."""
    text = path.read_text()
    for name, new in ((f"{who}-certificate", certificate), (f"{who}-key", key)):
        text = text.replace(block(text, name), new)
    path.write_text(text)


def test_a_worker_is_cut_off_by_its_certificate_and_stays_out(cluster):
    """Also with what its certificate was renewed by meanwhile, which whoever has its key can have done."""
    head = start_head(cluster, *SMALL)
    join = own_join(cluster)
    worker = cluster.worker("--join", join, "--token", token_of(cluster, "--once"))
    other = cluster.worker()  # with the join file
    wait_until(lambda: len(cluster.ready_nodes()) == 2, "both are ready")
    cluster.wait_ready()
    by_name = {n["pid"]: (n["id"], n["certificate"]) for n in cluster.ready_nodes()}
    node, name = by_name[worker.popen.pid]
    shared = by_name[other.popen.pid]
    stolen = cluster.folder / "stolen"
    shutil.copy(join, stolen)
    renewed = run("certificate", "renew", "--join", stolen, env=cluster.env)
    assert renewed.returncode == 0 and name in renewed.stdout, renewed.stderr
    assert block(stolen.read_text(), "worker-key") != block(join.read_text(), "worker-key")

    refused = run("certificate", "revoke", shared[0], env=cluster.env)
    assert refused.returncode == 1 and shared[1] in refused.stderr and "shares" in refused.stderr
    for wrong in ("node-77", "xyz", name[:15]):
        assert run("certificate", "revoke", wrong, env=cluster.env).returncode != 0

    def ask(_):
        return cluster.complete("brandy", max_tokens=3500, ignore_eos=True, temperature=0)

    revoked = run("certificate", "revoke", "00ab34c2d5e6f718", env=cluster.env)  # nobody's
    assert revoked.returncode == 0
    with ThreadPoolExecutor(2) as pool:
        answers = pool.map(ask, range(2))
        revoked = run("certificate", "revoke", node, env=cluster.env)
        assert revoked.returncode == 0 and name in revoked.stderr, revoked.stderr
        assert worker.popen.wait(PATIENCE_S) != 0
        wait_until(lambda: cluster.status()["requests"]["replayed"] > 0, "one went on elsewhere")
        assert len({answer["choices"][0]["text"] for answer in answers}) == 1
    assert "certificate was revoked" in worker.log() and f"certificate {name} was revoked" in head.log()
    wait_until(lambda: [n["id"] for n in cluster.ready_nodes()] == [shared[0]], "one is left")
    assert name in run("certificate", "list", env=cluster.env).stdout
    # Neither with what was renewed, nor for a renewal; with a token it comes in again.
    thief = cluster.worker("--join", stolen)
    assert thief.popen.wait(PATIENCE_S) != 0 and "certificate was revoked" in thief.log()
    assert run("certificate", "renew", "--join", stolen, env=cluster.env).returncode == 1
    head.popen.kill()
    start_head(cluster, *SMALL)
    assert cluster.worker("--join", join).popen.wait(PATIENCE_S) != 0
    join.unlink()
    cluster.worker("--join", join, "--token", token_of(cluster))
    wait_until(lambda: len(cluster.ready_nodes()) == 2, "it is back")


def test_a_worker_and_its_head_renew_in_time(cluster):
    """Each of them, under requests; then the head dies, and only what is new counts."""
    head = start_head(cluster, *SHORT)
    join = own_join(cluster)
    worker = cluster.worker("--join", join, "--token", token_of(cluster, "--once"))
    cluster.wait_ready()
    node = cluster.ready_nodes()[0]["id"]
    first, shown, first_end = join.read_text(), shown_by(cluster.control_port), ends(cluster, join)
    answers = []

    def renewed():
        answers.append(cluster.complete("brandy", max_tokens=300, ignore_eos=True, temperature=0))
        return ("was renewed" in worker.log() and "The head's certificate was renewed" in head.log()
                and time.time() > first_end + LIFE_S / 10 + 1)  # fmt: skip

    began = time.monotonic()
    wait_until(renewed, "each is renewed", 3 * PATIENCE_S)
    bound("each is renewed", time.monotonic() - began, 1.5 * LIFE_S)
    assert len({answer["choices"][0]["text"] for answer in answers}) == 1
    assert join.read_text() != first and join.stat().st_mode & 0o777 == 0o600
    assert block(join.read_text(), "worker-key") != block(first, "worker-key")
    assert shown_by(cluster.control_port) != shown
    assert [n["id"] for n in cluster.ready_nodes()] == [node]
    kinds = {event["kind"] for event in cluster.status()["events"]}
    assert "node_lost" not in kinds and "certificate" in kinds, kinds
    assert worker.log().count("Joined the cluster") == 1
    # By what it began with it would be refused: see the next test.
    assert time.time() > first_end + LIFE_S / 10
    head.kill()
    head.exit_code()
    start_head(cluster, *SHORT)
    cluster.wait_ready()
    cluster.complete("brandy", max_tokens=4)
    assert worker.popen.poll() is None


@pytest.mark.long
def test_without_renewal_a_worker_is_refused_when_it_comes_back(cluster):
    """The CA's key is gone: it says so in time, works on as a member, and is not let in any more."""
    head = start_head(cluster, *SHORT)
    join = own_join(cluster)
    token = token_of(cluster)
    worker = cluster.worker("--join", join, "--token", token)
    cluster.wait_ready()
    kept = cluster.state_dir / "credentials.pem"
    whole = kept.read_text()
    head.kill()
    head.exit_code()
    kept.write_text(whole.replace("ca-key\n" + block(whole, "ca-key"), ""))
    head = start_head(cluster, *SHORT)
    cluster.wait_ready()
    wait_until(lambda: "cannot be renewed" in worker.log(), f"it says so:\n{worker.log()}")
    assert "no key of the cluster's CA" in worker.log(), worker.log()
    wait_until(lambda: "cannot be renewed here; put another one into" in head.log(), head.log())
    time.sleep(max(0.0, ends(cluster, join) + LIFE_S / 10 + 2 - time.time()))
    cluster.complete("brandy", max_tokens=4)  # who is in stays in
    head.kill()
    head.exit_code()
    kept.write_text(whole)
    head = start_head(cluster, *SHORT)
    assert worker.exit_code() == 1
    said = worker.log().strip().splitlines()[-1]
    assert "certificate has ended" in said and "--token" in said, said
    assert "has ended" in head.log()
    again = cluster.worker("--join", join)
    assert again.exit_code() == 1 and "certificate has ended" in again.log()
    # A token that still works gives the next one; the one that has ended is in nobody's way.
    again = cluster.worker("--join", join, "--token", token)
    cluster.wait_ready()
    assert ends(cluster, join) > time.time()


@pytest.mark.long
def test_what_an_operator_puts_there_is_taken_or_refused(cluster):
    head = start_head(cluster, *SMALL)
    join = own_join(cluster)
    worker = cluster.worker("--join", join, "--token", token_of(cluster))
    cluster.wait_ready()
    node = cluster.ready_nodes()[0]["id"]

    put(join, *by_hand(cluster, "clientAuth"), "worker")
    worker.wait_log("is the new one of")
    kept = cluster.state_dir / "credentials.pem"
    made = by_hand(cluster, "serverAuth")
    put(kept, *made, "head")
    head.wait_log("is the new one of")
    assert shown_by(cluster.control_port).split() == made[0].split()

    # Each of these is refused, once, and what was there goes on.
    good = join.read_text()
    with Cluster() as other:
        start_head(other, *SMALL)
        foreign = (other.state_dir / "join").read_text()
    for count, bad in enumerate([good[: len(good) // 2], foreign, "", "\0" * 100, "x" * 100_000], 1):
        join.write_text(bad)
        wait_until(lambda n=count: len(re.findall("is not used|stays as it is", worker.log())) >= n,
                   f"it refuses the file:\n{worker.log()[-2000:]}")  # fmt: skip
    assert "of another cluster" in worker.log()
    put(kept, *by_hand(cluster, "clientAuth", 31), "head")
    head.wait_log("it is not for a server")
    assert shown_by(cluster.control_port).split() == made[0].split()
    assert [n["id"] for n in cluster.ready_nodes()] == [node]
    join.write_text(good)
    put(kept, *made, "head")

    # The command does the same by the CA's key, and a worker's asks the head.
    taken = head.log().count("is the new one of")
    assert run("certificate", "renew", env=cluster.env).returncode == 0
    wait_until(lambda: head.log().count("is the new one of") > taken, f"it is taken:\n{head.log()}")
    assert shown_by(cluster.control_port).split() != made[0].split()
    taken = worker.log().count("is the new one of")
    done = run("certificate", "renew", "--join", join, env=cluster.env)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: worker.log().count("is the new one of") > taken, f"it is taken:\n{worker.log()}")
    cluster.complete("brandy", max_tokens=4)
    head.kill()
    head.exit_code()
    start_head(cluster, *SMALL)
    cluster.wait_ready()
    assert worker.popen.poll() is None


def test_the_desk_takes_what_is_put_there_for_the_ca(cluster):
    """Its key, which was away, and another certificate for it: new workers get theirs by these."""
    if not shutil.which("openssl"):
        pytest.skip("there is no openssl")
    head = start_head(cluster, *SMALL)
    early = token_of(cluster)
    head.kill()
    head.exit_code()
    kept = cluster.state_dir / "credentials.pem"
    whole = kept.read_text()
    ca, key, again = (cluster.folder / name for name in ("ca", "ca-key", "ca-again"))
    ca.write_text(block(whole, "ca-certificate"))
    key.write_text(block(whole, "ca-key"))
    kept.write_text(whole.replace("ca-key\n" + key.read_text(), ""))
    head = start_head(cluster, *SMALL)
    join = own_join(cluster)
    refused = cluster.worker("--join", join, "--token", early)
    assert refused.exit_code() == 1 and "was given no certificate" in head.log()
    openssl("x509", "-in", ca, "-signkey", key, "-days", "4000", "-set_serial", "77", "-out", again)
    kept.write_text(whole.replace(ca.read_text(), again.read_text()))
    token = token_of(cluster)  # names the new one

    def joins():
        worker = cluster.worker("--join", join, "--token", token)
        wait_until(lambda: worker.popen.poll() is not None or cluster.ready_nodes(), "it joins, or ends")
        return cluster.ready_nodes()

    wait_until(joins, "the head takes the file")
    assert block(join.read_text(), "ca-certificate").split() == again.read_text().split()


@pytest.mark.long
def test_certificates_that_are_renewed_by_many_at_once_are_whole(cluster):
    """A head and a worker renew theirs meanwhile, too."""
    head = start_head(cluster, *SHORT)
    join = own_join(cluster)
    worker = cluster.worker("--join", join, "--token", token_of(cluster))
    cluster.wait_ready()
    own, heads = ["--join", join], ["--certificate-lifetime", f"{LIFE_S}s"]
    until = time.monotonic() + LIFE_S
    while time.monotonic() < until:
        done = at_once(lambda words: run("certificate", "renew", *words, env=cluster.env), [own, heads] * 2)
        for command in done:
            assert command.returncode == 0 or "has just been changed" in command.stderr, command.stderr
        assert not [path.name for path in (*cluster.state_dir.iterdir(), *join.parent.iterdir())
                    if path.name.startswith(("join.", "credentials.pem."))]  # fmt: skip
    text = lambda: (cluster.state_dir / "credentials.pem").read_text()  # noqa: E731
    wait_until(lambda: shown_by(cluster.control_port).split() == block(text(), "head-certificate").split(),
               f"what is in the file is used:\n{head.log()}")  # fmt: skip
    made = lambda: block(text(), "worker-certificate")  # noqa: E731
    wait_until(lambda: block((cluster.state_dir / "join").read_text(), "worker-certificate") == made(),
               "the join file has the same")  # fmt: skip
    worker.kill()
    worker.popen.wait(PATIENCE_S)
    cluster.worker("--join", join)
    wait_until(lambda: len(cluster.ready_nodes()) == 1, f"it joins by its file:\n{cluster.logs()}")


@pytest.mark.long
def test_a_disk_that_is_full(cluster):
    """The new one is used, and told to be lost with the process; the old file stays until there is room."""
    start_head(cluster, *SHORT)
    join = own_join(cluster)
    mounted = ["mount", "-t", "tmpfs", "-o", "size=32k", "none", str(join.parent)]
    if os.geteuid() != 0 or subprocess.run(mounted, capture_output=True).returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        worker = cluster.worker("--join", join, "--token", token_of(cluster))
        cluster.wait_ready()
        first, filler = join.read_text(), join.parent / "filler"
        with open(filler, "wb", 0) as full, pytest.raises(OSError):
            while True:
                full.write(bytes(4096))
        worker.wait_log("is lost when this process ends")
        assert join.read_text() == first and {p.name for p in join.parent.iterdir()} == {"join", "filler"}
        filler.unlink()
        wait_until(lambda: join.read_text() != first, f"it is stored:\n{worker.log()}")
        assert len(cluster.ready_nodes()) == 1 and ends(cluster, join) > time.time()
    finally:
        subprocess.run(["umount", "-l", str(join.parent)], check=True)


@pytest.mark.long
def test_the_end_of_a_worker_does_not_wait_for_a_renewal(cluster):
    """The head hangs while it is asked."""
    head = start_head(cluster, *SHORT)
    worker = cluster.worker("--join", own_join(cluster), "--token", token_of(cluster))
    cluster.wait_ready()
    head.kill(signal.SIGSTOP)
    time.sleep(LIFE_S)
    began = time.monotonic()
    worker.kill(signal.SIGTERM)
    assert worker.exit_code() == 0
    bound("ended", time.monotonic() - began, 2)
    head.kill(signal.SIGCONT)
