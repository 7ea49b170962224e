"""The habits of the repository: workflows, templates of issues, hooks.

What they name exists, and their form is right.

No workflow runs here. Their form is checked by the schema of GitHub's workflows, and zizmor looks
for known holes.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped]

ROOT: Final = Path(__file__).resolve().parents[1]
GITHUB: Final = ROOT / ".github"
WORKFLOWS: Final = sorted((GITHUB / "workflows").glob("*.yml"))
CONFIGS: Final = [GITHUB / "ISSUE_TEMPLATE/config.yml"]
FORMS: Final = sorted({*GITHUB.glob("ISSUE_TEMPLATE/*.yml")} - {*CONFIGS})
PINNED_ACTION: Final = re.compile(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def beside_python(name: str) -> str | None:
    """A program of this environment."""
    return shutil.which(name, path=str(Path(sys.executable).parent))


def tool(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """How a program ended that stands beside this Python."""
    program = beside_python(name)
    if program is None:
        pytest.skip(f"{name} is not installed")
    command = [program, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def make_targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))


def test_workflows_have_the_form_that_github_takes() -> None:
    files = [str(path) for path in WORKFLOWS]
    done = tool("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *files)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_workflow_with_a_mistake_is_refused_by_the_schema(tmp_path: Path) -> None:
    """The check above can fail."""
    broken = tmp_path / "broken.yml"
    text = (GITHUB / "workflows/check.yml").read_text(encoding="utf-8")
    broken.write_text(text.replace("runs-on:", "run-on:"), encoding="utf-8")
    done = tool("check-jsonschema", "--builtin-schema", "vendor.github-workflows", str(broken))
    assert done.returncode == 1


def test_zizmor_finds_no_known_hole_in_a_workflow() -> None:
    done = tool("zizmor", "--offline", "--no-progress", "--quiet", str(GITHUB / "workflows"))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_pins_its_actions_and_may_only_read(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    workflow = read(path)
    uses = [
        line.strip(" -") for line in text.splitlines() if re.match(r"\s*- uses:|\s*uses:", line)
    ]
    assert uses
    assert [line for line in uses if not PINNED_ACTION.fullmatch(line)] == []
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")
    assert workflow["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_what_a_workflow_runs_exists(path: Path) -> None:
    for job in read(path)["jobs"].values():
        for step in job["steps"]:
            command = step.get("run", "")
            for words in re.findall(r"^make ([^\n]+)", command, re.MULTILINE):
                named = {word for word in words.split() if "=" not in word}
                assert named <= make_targets()
            for script in re.findall(r"(?:^|\s)((?:scripts|\.ci)/[\w./]+)", command):
                assert (ROOT / script).is_file()


def test_the_tests_run_on_every_system_and_python_that_the_package_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    jobs = read(GITHUB / "workflows/check.yml")["jobs"]
    matrix = jobs["tests"]["strategy"]["matrix"]
    classifiers = "\n".join(project["classifiers"])
    assert set(re.findall(r"Python :: (3\.\d+)", classifiers)) <= set(matrix["python"])
    assert project["requires-python"] == f">={matrix['python'][0]}"
    assert {name.partition("-")[0] for name in matrix["system"]} == {"ubuntu", "macos", "windows"}
    assert jobs["debian"]["container"].startswith("debian:")
    assert jobs["debian"]["steps"][-1]["run"] == ".ci/run"


def test_forms_for_issues_have_the_form_that_github_takes() -> None:
    for kind, paths in (("issue-forms", FORMS), ("issue-config", CONFIGS)):
        files = [str(path) for path in paths]
        done = tool("check-jsonschema", "--builtin-schema", f"vendor.github-{kind}", *files)
        assert done.returncode == 0, done.stdout + done.stderr


def test_hooks_run_programs_of_the_environment_and_targets_that_exist() -> None:
    """A hook of another repository would run another version than `make check` does."""
    config = read(ROOT / ".pre-commit-config.yaml")
    assert [source["repo"] for source in config["repos"]] == ["local"]
    for hook in config["repos"][0]["hooks"]:
        program, *rest = hook["entry"].split()
        assert hook["language"] == "system"
        if program == "make":
            assert rest[0] in make_targets()
        else:
            assert program.startswith(".venv/bin/")
            assert beside_python(Path(program).name)
