"""The files of `deploy/`: what they say of paths, ports, figures and users is so."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from conductor_cli.server.http import process
from conductor_cli.server.http.access import OPEN_PATHS
from conductor_cli.server.http.metrics import Metrics

DEPLOY = Path(__file__).parents[1] / "deploy"


def read(name: str) -> str:
    return (DEPLOY / name).read_text()


def manifests() -> dict[str, Any]:
    return {document["kind"]: document for document in yaml.safe_load_all(read("kubernetes.yaml"))}


def test_haproxy_takes_its_settings(tmp_path: Path) -> None:
    """The names of the replicas are those of this machine: no other can be looked up here."""
    haproxy = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if haproxy is None:
        pytest.skip("haproxy is not installed")
    file = tmp_path / "haproxy.cfg"
    file.write_text(re.sub(r"serve-\d", "127.0.0.1", read("haproxy.cfg")))
    subprocess.run([haproxy, "-c", "-f", file], check=True, capture_output=True)


def test_each_path_that_is_asked_needs_no_key() -> None:
    container = manifests()["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    probes = {
        container[f"{name}Probe"]["httpGet"]["path"]
        for name in ("startup", "liveness", "readiness")
    }
    paths = {
        *probes,
        *re.findall(r"GET uri (\S+)", read("haproxy.cfg")),
        *re.findall(r"8080(/\w+)", read("compose.yaml")),
    }
    assert paths == {"/livez", "/readyz"}
    assert paths <= OPEN_PATHS


def test_a_replica_has_the_time_that_its_end_takes() -> None:
    most = process.MAX_PAUSE + process.DRAIN_SECONDS + 2 * process.CLOSING_SECONDS
    pod = manifests()["Deployment"]["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] >= most
    compose = yaml.safe_load(read("compose.yaml"))
    assert int(compose["services"]["serve-1"]["stop_grace_period"].removesuffix("s")) >= most


def test_no_container_of_conductor_may_write_or_is_root() -> None:
    pod = manifests()["Deployment"]["spec"]["template"]["spec"]
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (
        True,
        10001,
    )
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"]
    services = yaml.safe_load(read("compose.yaml"))["services"]
    assert all(services[f"serve-{number}"]["read_only"] for number in (1, 2, 3))
    _, build, run = read("Containerfile").split("\nFROM ")
    assert "USER 10001" in run
    assert "g++" in build
    assert "g++" not in run


def test_the_board_shows_figures_that_there_are() -> None:
    named = set(
        re.findall(
            r"conductor_\w+",
            json.dumps(
                [panel["targets"] for panel in json.loads(read("grafana/conductor.json"))["panels"]]
            ),
        )
    )
    text = Metrics().render(0)[0].decode()
    there = set(re.findall(r"^# TYPE (conductor_\w+)", text, re.MULTILINE))
    assert {re.sub(r"_bucket$", "", name) for name in named} <= there


def test_the_balancer_the_figures_and_the_budget_are_about_the_same_replicas() -> None:
    compose = yaml.safe_load(read("compose.yaml"))
    replicas = {f"{name}:8080" for name in compose["services"] if name.startswith("serve-")}
    assert set(re.findall(r"^    server \w+ (\S+)", read("haproxy.cfg"), re.MULTILINE)) == replicas
    jobs = yaml.safe_load(read("prometheus.yml"))["scrape_configs"]
    assert set(jobs[0]["static_configs"][0]["targets"]) == replicas
    documents = manifests()
    labels = documents["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert documents["Service"]["spec"]["selector"] == labels
    assert documents["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert (
        documents["PodDisruptionBudget"]["spec"]["minAvailable"]
        < documents["Deployment"]["spec"]["replicas"]
    )
