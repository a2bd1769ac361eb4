"""What an exploration leaves behind: report.json, report.html and executed notebooks."""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qtoolkit.errors import MissingDependency
from qtoolkit.exploration import Exploration
from qtoolkit.report.files import folder, write_text
from qtoolkit.report.notebooks import Executed, chosen, run_notebooks
from qtoolkit.report.page import page
from qtoolkit.report.pictures import pictures
from qtoolkit.report.record import dumps, to_json
from qtoolkit.report.summary import failures, table

__all__ = [
    "Executed",
    "Written",
    "chosen",
    "failures",
    "require",
    "run_notebooks",
    "table",
    "to_json",
    "write_report",
]

NEEDED = ("jinja2", "matplotlib")
NEEDED_BY_NOTEBOOKS = ("papermill", "ipykernel")


@dataclass(frozen=True, slots=True)
class Written:
    """Where the two files of a report lie."""

    json: Path
    html: Path


def require(notebooks: Sequence[Path] = ()) -> None:
    """Raise MissingDependency now for what write_report and run_notebooks will import later."""
    for package in (*NEEDED, *(NEEDED_BY_NOTEBOOKS if notebooks else ())):
        if importlib.util.find_spec(package) is None:
            raise MissingDependency(
                f"{package} is not installed, and the report needs it; run: "
                "python -m pip install 'qtoolkit[notebook]'"
            )


def write_report(exploration: Exploration, out: Path) -> Written:
    """Write report.json and report.html into the folder `out`, each whole or not at all.

    `out` is made if its parent is there. Raises BadInput where the file system refuses.
    """
    folder(out)
    record = to_json(exploration)
    told = write_text(out / "report.json", dumps(record))
    html = page(exploration, record, pictures(exploration))
    return Written(told, write_text(out / "report.html", html))
