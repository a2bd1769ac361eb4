"""pyproject, constraints.txt, environment.yml, Makefile and workflow tell one story."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
# conda's name -> PyPI's
CONDA = {"pytorch": "torch"}


def requirements(*extras: str) -> dict[str, Requirement]:
    """The core's requirements and those of the extras, ours among them followed."""
    found: dict[str, Requirement] = {}
    wanted = [Requirement(r) for r in PROJECT["dependencies"]]
    wanted += [Requirement(r) for extra in extras for r in EXTRAS[extra]]
    while wanted:
        r = wanted.pop()
        if r.name == "qtoolkit":
            wanted += [Requirement(inner) for extra in r.extras for inner in EXTRAS[extra]]
        else:
            found[canonicalize_name(r.name)] = r
    return found


def test_the_conda_environment_has_the_same_packages_and_ranges() -> None:
    told = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    (pip,) = [d["pip"] for d in told if isinstance(d, dict)]
    named = [d for d in told if isinstance(d, str)] + [p for p in pip if not p.startswith("-e")]
    conda = {}
    for line in named:
        r = Requirement(line)
        conda[canonicalize_name(CONDA.get(r.name, r.name))] = (r.specifier, r.marker)
    assert conda.pop("python") == (PROJECT["requires-python"], None)
    conda.pop("pip")
    extras = ("models", "notebook", "shaders", "vulkan")
    ours = requirements(*extras)
    assert conda == {name: (r.specifier, r.marker) for name, r in ours.items()}


def test_every_direct_dependency_is_pinned_inside_its_range() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    pins = {canonicalize_name(name): pinned for name, pinned in pins.items()}
    for name, r in requirements(*EXTRAS).items():
        assert name in pins, f"constraints.txt does not pin {name}"
        assert r.specifier.contains(pins[name], prereleases=True), f"{name} {pins[name]} not in {r}"


def test_a_wheel_is_built_with_the_ranges_that_we_work_with() -> None:
    ours = requirements("test")
    for line in PYPROJECT["build-system"]["requires"]:
        r = Requirement(line)
        known = ours[canonicalize_name(r.name)]
        assert (known.specifier, known.marker) == (r.specifier, r.marker), r.name


def test_the_extras_that_users_are_told_of_exist() -> None:
    told = {"notebook", "vulkan", "models", "shaders", "executorch", "test", "dev"}
    assert told <= set(EXTRAS)


def test_every_target_of_the_makefile_says_what_it_does() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", makefile, re.M))
    helped = set(re.findall(r"^([a-z]+):.*?## \S", makefile, re.M))
    assert targets - helped <= {"setup"} and {"explore", "test", "lab"} <= helped


def test_the_workflow_runs_the_commands_of_the_readme_and_no_other() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    steps = [s["run"] for job in workflow["jobs"].values() for s in job["steps"] if "run" in s]
    readme = (ROOT / "README.md").read_text()
    assert steps
    for step in steps:
        assert re.search(rf"^{re.escape(step)}(\s|$)", readme, re.M), f"README lacks {step!r}"


@pytest.mark.parametrize("picture", ["sqnr-waterfall.png", "graph-by-module.png"])
def test_the_pictures_of_the_readme_are_there(picture: str) -> None:
    assert f"docs/images/{picture}" in (ROOT / "README.md").read_text()
    assert (ROOT / "docs/images" / picture).stat().st_size > 10_000
