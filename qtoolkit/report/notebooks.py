"""Notebooks run through papermill: executed copies, and one line for a cell that fails."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from qtoolkit.errors import MissingDependency, UnknownName
from qtoolkit.report.files import replacing
from qtoolkit.resources import shipped

TOUR = "00_tour.ipynb"
CHOICES = ("tour", "all", "none")


def chosen(which: str) -> tuple[Path, ...]:
    """The shipped notebooks that 'tour', 'all' or 'none' stands for, in order."""
    if which not in CHOICES:
        raise UnknownName(f"notebooks {which!r}; choose one of {', '.join(CHOICES)}")
    if which == "none":
        return ()
    found = sorted(shipped("notebooks").glob(TOUR if which == "tour" else "[0-9]*.ipynb"))
    if not found:
        raise MissingDependency(
            f"{shipped('notebooks')} holds no {TOUR}; reinstall qtoolkit, or use --notebooks none"
        )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Executed:
    """A notebook as it ran; failure names the cell that stopped it."""

    path: Path
    failure: str | None


def run_notebooks(
    sources: Sequence[Path],
    out: Path,
    parameters: Mapping[str, Any],
    progress: Callable[[str, float], None] = lambda stage, seconds: None,
) -> tuple[Executed, ...]:
    """Run each notebook and write it executed into `out`; progress(name, seconds) after each.

    A notebook receives those of `parameters` that its parameters cell declares. One that fails is
    written as far as it ran, and the others still run.
    """
    ran: list[Executed] = []
    for source in sources:
        start = perf_counter()
        target = out / source.name
        failure = _run(source, target, parameters)
        told = None if failure is None else f"notebook {source.name}: {failure}; see {target}"
        ran.append(Executed(target, told))
        progress(f"notebook {source.stem}", perf_counter() - start)
    return tuple(ran)


def _run(source: Path, target: Path, parameters: Mapping[str, Any]) -> str | None:
    """Execute one notebook into `target`; the reason if a cell failed."""
    import papermill
    from jupyter_client.kernelspec import NoSuchKernel
    from nbclient.exceptions import DeadKernelError

    here = _literal(source)
    declared = papermill.inspect_notebook(here)
    with replacing(target) as part, _silent("papermill"):
        try:
            papermill.execute_notebook(
                here,
                _literal(part),
                {name: value for name, value in parameters.items() if name in declared},
                progress_bar=False,
                extra_arguments=["--log-level=ERROR"],
                cwd=os.getcwd(),
            )
        except papermill.PapermillExecutionError as why:
            said = " ".join(f"{why.ename}: {why.evalue}".split())
            return f"cell [{why.exec_count}] raised {said}"
        except DeadKernelError:
            return "its kernel died, perhaps for want of memory"
        except NoSuchKernel as why:
            raise MissingDependency(
                f"{source.name} asks for the Jupyter kernel {why.name!r}, which is not installed; "
                "run: python -m pip install ipykernel"
            ) from why
    return None


@contextmanager
def _silent(logger: str) -> Iterator[None]:
    """Keep a logger quiet, errors too: what it would say is raised as well."""
    log = logging.getLogger(logger)
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)


def _literal(path: Path) -> str:
    """A path that papermill, which formats it, reads back as it is."""
    return str(path).replace("{", "{{").replace("}", "}}")
