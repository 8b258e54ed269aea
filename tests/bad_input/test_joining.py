"""Workers that do not belong to a cluster, and workers whose clocks do not."""

import socket
import ssl

import pytest

from bad_machine import BadMachine
from running import DEMO, Cluster

DAYS = 24 * 3600


@pytest.mark.parametrize("shift_s", [-40 * 365 * DAYS, 40 * 365 * DAYS, -5 * 3600])
def test_a_worker_whose_clock_is_far_off_serves(troupe, tmp_path, shift_s):
    """With certificates checked against the clock the first two would never join."""
    with Cluster() as cluster:
        machine = BadMachine(tmp_path / "machine", tmp_path)
        machine.set_clock(shift_s)
        cluster.head(DEMO, "--kv-cache-memory", "128MiB")
        cluster.wait_joinable()
        head = f"127.0.0.1:{cluster.control_port}"
        cluster.start("worker", "--head", head, "--threads", 1, env=machine.env)
        cluster.wait_ready()
        cluster.complete("brandy", max_tokens=4)


def test_a_join_file_for_another_cluster(troupe, tmp_path):
    with Cluster() as one, Cluster() as other:
        for cluster in (one, other):
            cluster.head(DEMO, "--kv-cache-memory", "128MiB")
            cluster.wait_joinable()
        worker = one.start("worker", "--head", f"127.0.0.1:{one.control_port}",
                           "--join", other.state_dir / "join", "--threads", 1)  # fmt: skip
        assert worker.exit_code() == 1
        said = worker.log().strip().splitlines()[-1]
        assert "belongs to another cluster" in said and "join file" in said, said
        assert not one.status()["nodes"] and not other.status()["nodes"]


def test_strangers_that_come_again_and_again_do_not_fill_the_log(troupe):
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    with Cluster() as cluster:
        head = cluster.head(DEMO, "--kv-cache-memory", "128MiB")
        cluster.wait_joinable()
        for _ in range(300):
            try:
                with socket.create_connection(("127.0.0.1", cluster.control_port), 5) as plain:
                    with anyone.wrap_socket(plain) as session:
                        session.recv(1)
            except OSError:
                pass
        refused = head.log().count("was refused")
        assert 1 <= refused <= 40, head.log()[-2000:]
        assert cluster.status()["cluster"]["state"] == "forming"
