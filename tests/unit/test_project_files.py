"""Files that other programs read agree with each other: workflows, pyproject.toml, constraints, Makefile, templates."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
JOBS = {name: job for path in WORKFLOWS for name, job in yaml.safe_load(path.read_text())["jobs"].items()}
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))


def commands(job):
    return [step["run"] for step in job["steps"] if "run" in step]


def test_the_matrix_has_the_python_versions_of_the_classifiers():
    named = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if "Python :: 3." in line]
    assert JOBS["test"]["strategy"]["matrix"]["python"] == named
    assert PROJECT["requires-python"] == f">={named[0]}"


def test_the_matrix_runs_what_the_readme_and_continuous_integration_run():
    assert commands(JOBS["test"]) == [".ci/run"]
    last = (ROOT / ".ci" / "run").read_text().split("\n\n")[-1].strip()
    assert last == "make test"
    assert re.search(rf"^\$ {last} ", (ROOT / "README.md").read_text(), re.M)


def test_workflows_call_targets_and_tests_that_exist():
    told = [command for job in JOBS.values() for command in commands(job)]
    assert {word for command in told for word in re.findall(r"make ([\w-]+)", command)} <= TARGETS
    files = [word for command in told for word in re.findall(r"tests/[\w/]+\.py", command)]
    assert files
    assert all((ROOT / name).is_file() for name in files)
    assert {"test", "lowest-versions", "package", "audit"} <= JOBS.keys()


def test_workflows_check_out_before_they_run_and_may_only_read():
    for path in WORKFLOWS:
        assert yaml.safe_load(path.read_text())["permissions"] == {"contents": "read"}
    for job in JOBS.values():
        assert job["steps"][0]["uses"].startswith("actions/checkout@")
        assert job["timeout-minutes"] <= 60


def test_the_lowest_constraints_are_the_bounds_that_are_declared():
    lines = [line for line in (ROOT / "constraints-lowest.txt").read_text().splitlines() if not line.startswith("#")]
    pinned = {Requirement(line).name.lower(): Requirement(line).specifier for line in lines}
    for line in PROJECT["dependencies"]:
        needed = Requirement(line)
        (bound,) = needed.specifier
        assert bound.operator == ">="
        (pin,) = pinned[needed.name.lower()]
        assert (pin.operator, Version(pin.version)) == ("==", Version(bound.version))


def test_every_extra_of_users_is_installed_for_all_tests():
    recipe = re.search(r"-e '\.\[([\w,]+)\]' pre-commit", (ROOT / "Makefile").read_text())
    assert recipe
    assert set(recipe[1].split(",")) == PROJECT["optional-dependencies"].keys()


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_issue_templates_are_forms(path):
    form = yaml.safe_load(path.read_text())
    if path.stem == "config":
        assert form.keys() == {"blank_issues_enabled"}
        return
    assert {"name", "description", "body"} <= form.keys()
    ids = [field["id"] for field in form["body"]]
    assert len(set(ids)) == len(ids)
    assert {field["type"] for field in form["body"]} <= {"textarea", "input", "dropdown", "markdown", "checkboxes"}
    assert all(field["attributes"]["label"] for field in form["body"])
