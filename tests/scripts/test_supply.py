"""The audit of the lock files and the bill of materials.

Pip-audit itself asks a server here that knows what we say.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pytest

from scripts.setup import ROOT
from scripts.supply import audit, sbom
from scripts.supply.audit import all_pins, pins
from tests.servers import SeenRequest, Wire, loopback

PACKAGES: Final = (("alpha", "1.0"), ("beta", "2.0"), ("beta", "3.0"))
HOLE: Final = "PYSEC-2026-1"


def allowing(directory: Path, *, until: int, id_: str = HOLE) -> Path:
    """An entry that holds until so many days from now."""
    file = directory / "audit.toml"
    today = datetime.now(UTC).date()
    entry = (
        f'id = "{id_}"\npackage = "beta"\nreason = "never called"\nuntil = '
        f"{today + timedelta(days=until)}\n"
    )
    file.write_text(f"[[allow]]\n{entry}")
    return file


def advisory(package: str, version: str) -> Mapping[str, Any]:
    """What a registry says of a package with a hole.

    In the form of https://ossf.github.io/osv-schema/.
    """
    ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "9.9"}]}]
    affected = [
        {"package": {"name": package, "ecosystem": "PyPI"}, "ranges": ranges, "versions": [version]}
    ]
    return {
        "vulns": [
            {"id": HOLE, "aliases": ["CVE-2026-1"], "summary": "a hole", "affected": affected}
        ]
    }


def audited(directory: Path, status: int = 200) -> int:
    """The exit code where the registry knows a hole in beta 3.0, and answers with this status."""
    pytest.importorskip("pip_audit")
    allowed = directory / "none.toml"
    allowed.touch()

    async def script(request: SeenRequest, wire: Wire) -> None:
        package = request.json["package"]["name"], request.json["version"]
        await wire.json(advisory(*package) if package == ("beta", "3.0") else {}, status)

    with loopback(script) as server:
        service = [
            "--",
            "--vulnerability-service",
            "osv",
            "--osv-url",
            server.url,
            "--cache-dir",
            str(directory / "cache"),
        ]
        return audit.main(service, allowed_file=allowed, packages=PACKAGES)


def test_a_known_vulnerability_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With its names and the version that mends it.

    Of two versions of a package, both are audited.
    """
    assert audited(tmp_path) == 1
    stderr = capsys.readouterr().err
    assert f"known vulnerability: beta 3.0: {HOLE}, CVE-2026-1; mended in 9.9" in stderr
    assert "3 packages audited, 1 known vulnerabilities, 0 allowed" in stderr


def test_a_registry_that_does_not_answer_is_told_and_fails_only_where_it_must(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0, or 2 with `--require`; it never says that there are no vulnerabilities."""
    assert audited(tmp_path, status=503) == 0
    stderr = capsys.readouterr().err
    assert (
        "NOT AUDITED: 3 of 3 packages, because the registry did not answer: alpha, beta, beta"
        in stderr
    )
    assert "0 packages audited" in stderr
    report_of(monkeypatch, skipped=["alpha"])
    assert audit.main(["--require"], allowed_file=tmp_path / "none.toml", packages=PACKAGES) == 2


def report_of(monkeypatch: pytest.MonkeyPatch, *holes: str, skipped: Sequence[str] = ()) -> None:
    """What pip-audit reports, without asking it."""

    def report(packages: Sequence[audit.Pin], options: Sequence[str]) -> list[dict[str, Any]]:
        vulnerable = {
            "beta 3.0": [
                {"id": hole, "aliases": ["CVE-2026-1"], "fix_versions": []} for hole in holes
            ]
        }
        return [
            {"name": name, "version": version, "vulns": vulnerable.get(f"{name} {version}", [])}
            if name not in skipped
            else {
                "name": name,
                "skip_reason": "Dependency not found on PyPI and could not be audited",
            }
            for name, version in packages
        ]

    monkeypatch.setattr(audit, "report", report)


@pytest.mark.parametrize("name", [HOLE, "CVE-2026-1"])
def test_an_entry_lets_a_vulnerability_pass_by_any_of_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Until the end of its day and not longer.

    One with the name of another vulnerability does not.
    """
    report_of(monkeypatch, HOLE)
    for until, code in ((0, 0), (-1, 1)):
        assert (
            audit.main(
                [], allowed_file=allowing(tmp_path, until=until, id_=name), packages=PACKAGES
            )
            == code
        )
    assert (
        audit.main(
            [], allowed_file=allowing(tmp_path, until=9, id_="PYSEC-2026-2"), packages=PACKAGES
        )
        == 1
    )


def test_entries_that_have_no_use_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a complete audit: where a package was not audited, an entry may still be needed."""
    report_of(monkeypatch)
    assert audit.main([], allowed_file=allowing(tmp_path, until=9), packages=PACKAGES) == 0
    assert f"{HOLE} of beta is not found any more" in capsys.readouterr().err
    report_of(monkeypatch, skipped=["beta"])
    assert audit.main([], allowed_file=allowing(tmp_path, until=9), packages=PACKAGES) == 0
    stderr = capsys.readouterr().err
    assert "not found any more" not in stderr
    assert "NOT AUDITED: 2 of 3 packages" in stderr


def test_an_entry_needs_a_reason_and_a_day(tmp_path: Path) -> None:
    file = tmp_path / "audit.toml"
    file.write_text(f'[[allow]]\nid = "{HOLE}"\npackage = "beta"\n')
    with pytest.raises(TypeError, match="'reason' and 'until'"):
        audit.read_allowances(file)


def test_every_entry_of_this_repository_can_be_read() -> None:
    assert [
        entry.id
        for entry in audit.read_allowances(audit.ALLOWED)
        if entry.until < datetime.now(UTC).date()
    ] == []


def test_every_package_of_every_system_is_audited() -> None:
    """Also what only Windows needs, and both versions of a package that has two.

    And torch, which no lock file has.
    """
    audited = all_pins()
    assert {"pywin32-ctypes", "torch", "trl", "litellm", "pytest"} <= {name for name, _ in audited}
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert set(pins(lock)) <= set(audited)
    assert len(pins(lock)) == len(re.findall(r"^[a-z0-9].*==", lock, re.MULTILINE))


def test_the_bill_of_materials_has_what_is_used_with_versions_and_hashes(tmp_path: Path) -> None:
    pytest.importorskip("cyclonedx_py")
    file = tmp_path / "bill.json"
    assert sbom.main(file, "--no-validate") == 0  # validation takes seconds
    bill = json.loads(file.read_text(encoding="utf-8"))
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == (
        "CycloneDX",
        "conductor-llm",
    )
    listed = {(component["name"], component["version"]) for component in bill["components"]}
    names = {name for name, _ in listed}
    assert {
        "httpx",
        "litellm",
        "llama-cpp-python",
        "mcp",
        "psycopg",
        "pyarrow",
        "pywin32-ctypes",
        "numpy",
    } <= names
    assert not names & {"pytest", "mypy", "ruff", "pip-audit", "llm"}
    assert listed <= set(all_pins())
    assert all(component["purl"].startswith("pkg:pypi/") for component in bill["components"])
    references = [component["externalReferences"][0] for component in bill["components"]]
    hashes = list(chain.from_iterable(reference["hashes"] for reference in references))
    assert {digest["alg"] for digest in hashes} == {"SHA-256"}


def test_without_pip_audit_nothing_is_said_to_be_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.CompletedProcess([], 1, "", f"{sys.executable}: No module named pip_audit\n")
    monkeypatch.setattr("subprocess.run", lambda *_, **__: done)
    with pytest.raises(audit.NoAnswerError, match="No module named pip_audit"):
        audit.ask(PACKAGES, ())
