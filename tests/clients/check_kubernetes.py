"""Kubernetes' own schemas take the files of configs/deploy/kubernetes, and kustomize puts them together."""

import shutil
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

FOLDER = Path(__file__).resolve().parents[2] / "configs" / "deploy" / "kubernetes"
FILES = [path for path in sorted(FOLDER.glob("*.yaml")) if path.name != "kustomization.yaml"]
VERSION = "1.32"


def pods_of(group):
    """The templates of a LeaderWorkerSet, whose own schema is no part of Kubernetes, as pods."""
    parts = group["spec"]["leaderWorkerTemplate"]
    for role in ("leaderTemplate", "workerTemplate"):
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": role}, "spec": parts[role]["spec"]}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_kubernetes_takes(path):
    for document in yaml.safe_load_all(path.read_text()):
        group = document["kind"] == "LeaderWorkerSet"
        for part in pods_of(document) if group else [document]:
            kubernetes_validate.validate(part, VERSION, strict=True)


def test_a_misspelled_field_is_noticed():
    pod = next(pods_of(yaml.safe_load(FILES[1].read_text().split("---\n")[-1])))
    pod["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="livenesProbe"):
        kubernetes_validate.validate(pod, VERSION, strict=True)


def test_the_group_has_what_the_sets_have():
    """The same head and worker, but for how a worker finds the head and where the state is."""
    documents = [document for name in ("head.yaml", "worker.yaml")
                 for document in yaml.safe_load_all((FOLDER / name).read_text())]
    sets = [document for document in documents if document["kind"] == "StatefulSet"]
    group = list(yaml.safe_load_all((FOLDER / "leader-worker-set.yaml").read_text()))[-1]
    for alone, together in zip(sets, pods_of(group), strict=True):
        ours, theirs = (pod["containers"][0] for pod in (alone["spec"]["template"]["spec"], together["spec"]))
        assert {**ours, "command": None} == {**theirs, "command": None}
        assert len(ours["command"]) == len(theirs["command"])


@pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl here")
def test_kustomize_puts_them_together():
    done = subprocess.run(["kubectl", "kustomize", FOLDER], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    kinds = [document["kind"] for document in yaml.safe_load_all(done.stdout)]
    assert sorted(kinds) == sorted(["Service"] * 3 + ["StatefulSet"] * 2 + ["PodDisruptionBudget"])
