"""`make audit`: look for known vulnerabilities in what the lock files pin.

pip-audit asks PyPI about each package.

Exit code 1: at least one, and `.ci/audit.toml` does not allow it. A mirror of PyPI may not serve
what pip-audit asks for (`/pypi/NAME/VERSION/json`); pip-audit then skips the package and reports no
vulnerability. Here such a package is *not audited*, which is said, with the count. That is no
failure, because otherwise nothing could be built where the registry does not answer; with
`--require`, as once a week, it is one (exit code 2), so it does not go unseen for good.

Words after `--` go to pip-audit: `python -m scripts.supply.audit -- --vulnerability-service osv`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from scripts.setup import ROOT

ALLOWED: Final = ROOT / ".ci/audit.toml"
LOCKS: Final = ("requirements.lock", "requirements-train.lock")
# How long pip-audit may take for all packages; about a quarter of a second is usual for each
SECONDS: Final = 300
_PIN: Final = re.compile(r"^([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?==([^\s;]+)", re.MULTILINE)
Pin = tuple[str, str]


class NoAnswerError(Exception):
    """Nobody could be asked; the message says why."""


class Allowance(NamedTuple):
    """One known vulnerability that passes, until the end of a day."""

    id: str
    package: str
    reason: str
    until: date


class Finding(NamedTuple):
    """One known vulnerability of a package, with all its names and the versions that mend it."""

    package: str
    version: str
    names: tuple[str, ...]
    fixed: tuple[str, ...]

    def __str__(self) -> str:
        mended = f"mended in {', '.join(self.fixed)}" if self.fixed else "not mended in any version"
        return f"{self.package} {self.version}: {', '.join(self.names)}; {mended}"


def main(
    words: Sequence[str], *, allowed_file: Path = ALLOWED, packages: Sequence[Pin] | None = None
) -> int:
    """Audit, print the result on stderr, and return the exit code."""
    cut = words.index("--") if "--" in words else len(words)
    required = "--require" in words[:cut]
    options = words[cut + 1 :]
    wanted = all_pins() if packages is None else packages
    today = datetime.now(UTC).date()
    allowed = read_allowances(allowed_file)
    try:
        findings, skipped = ask(wanted, options)
    except NoAnswerError as problem:
        findings = []
        skipped = list(wanted)
        say(f"nobody could be asked: {problem}")
    passing = {(entry.package, entry.id) for entry in allowed if today <= entry.until}
    refused = [
        vulnerable
        for vulnerable in findings
        if not passing & {(vulnerable.package, name) for name in vulnerable.names}
    ]
    for finding in refused:
        say(f"known vulnerability: {finding}")
    for note in notes(allowed, findings, today, complete=not skipped):
        say(note)
    if skipped:
        names = ", ".join(name for name, _ in skipped[:5])
        if len(skipped) > 5:
            names += ", …"
        say(
            f"NOT AUDITED: {len(skipped)} of {len(wanted)} packages, because the registry did not "
            f"answer: {names}"
        )
    audited = len(wanted) - len(skipped)
    passed = len(findings) - len(refused)
    say(
        f"{audited} packages audited, {len(refused)} known vulnerabilities, {passed} allowed by "
        f"{allowed_file.name}"
    )
    if refused:
        return 1
    if skipped and required:
        return 2
    return 0


def say(text: str) -> None:
    """One line on stderr."""
    print(f"audit: {text}", file=sys.stderr, flush=True)


def pins(text: str) -> list[tuple[str, str]]:
    """Return name and version of each package in a lock file, in the order of the file.

    Packages for other systems are among them. A package has several versions where its version
    depends on that of Python.
    """
    return [(name, version) for name, version in _PIN.findall(text)]


def all_pins(root: Path = ROOT) -> list[tuple[str, str]]:
    """What both lock files pin, and what `pyproject.toml` itself does: torch."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [(root / lock).read_text(encoding="utf-8") for lock in LOCKS]
    texts += ["\n".join(extra) for extra in project["optional-dependencies"].values()]
    all_pins_found: set[Pin] = set()
    for text in texts:
        all_pins_found.update(pins(text))
    return sorted(all_pins_found)


def read_allowances(path: Path) -> list[Allowance]:
    """The entries of the file.

    Raises `TypeError` where one lacks its reason or its day, or has something else.
    """
    return [
        Allowance(**entry)
        for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("allow", ())
    ]


def notes(
    allowed: Sequence[Allowance], findings: Sequence[Finding], today: date, *, complete: bool
) -> list[str]:
    """What is to be done about entries.

    Those that have run out, and, after a `complete` audit, those without a use.
    """
    names: set[Pin] = set()
    for finding in findings:
        names.update((finding.package, name) for name in finding.names)
    old = []
    unused = []
    for allowance in allowed:
        subject = f"{allowance.id} of {allowance.package}"
        if allowance.until < today:
            old.append(f"{subject} was allowed until {allowance.until}: {allowance.reason}")
        if complete and (allowance.package, allowance.id) not in names:
            unused.append(f"{subject} is not found any more: remove it from audit.toml")
    return [*old, *unused]


def ask(packages: Sequence[Pin], options: Sequence[str]) -> tuple[list[Finding], list[Pin]]:
    """What is known of the packages, and those about which there was no answer.

    Raises `NoAnswerError`.
    """
    versions: Counter[str] = Counter()
    rounds: defaultdict[int, list[Pin]] = defaultdict(list)
    for name, version in packages:
        # pip-audit takes one version of a package at a time
        rounds[versions[name]].append((name, version))
        versions[name] += 1
    audited = set()
    findings = []
    for pins_of_round in rounds.values():
        for package in report(pins_of_round, options):
            if "vulns" not in package:
                continue
            pin = (package["name"], package["version"])
            audited.add(pin)
            for vulnerability in package["vulns"]:
                names = dict.fromkeys((vulnerability["id"], *vulnerability.get("aliases", ())))
                fixed_in = tuple(vulnerability["fix_versions"])
                findings.append(Finding(*pin, tuple(names), fixed_in))
    return findings, [pin for pin in packages if pin not in audited]


def report(packages: Sequence[Pin], further_options: Sequence[str]) -> list[dict[str, Any]]:
    """What pip-audit reports of each package, whether or not it has found something.

    Raises `NoAnswerError`.
    """
    with tempfile.TemporaryDirectory() as directory:
        # Not the lock file itself: of that, pip-audit leaves out what is not for the system that it
        # runs on.
        file = Path(directory) / "requirements.txt"
        file.write_text(
            "".join(f"{name}=={version}\n" for name, version in packages), encoding="utf-8"
        )
        options = (
            "--format json --progress-spinner off --aliases on --disable-pip --no-deps "
            "--requirement"
        )
        command = [sys.executable, "-m", "pip_audit", *options.split(), str(file), *further_options]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            raise NoAnswerError(f"pip-audit took more than {SECONDS} s") from None
    try:
        dependencies: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except ValueError:
        raise NoAnswerError(
            (done.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1][:200]
        ) from None
    return dependencies


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
