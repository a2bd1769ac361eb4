"""Golden text: compare with tests/golden/NAME.txt, or rewrite it with `make golden`."""

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"
UPDATE = bool(os.environ.get("QTOOLKIT_UPDATE_GOLDEN"))


def check(name: str, text: str) -> None:
    """Fail with both texts if they differ; a missing golden file is a failure too."""
    path = FOLDER / f"{name}.txt"
    if UPDATE:
        path.write_text(text)
    assert path.exists(), f"{path} is missing; run `make golden` and read what it writes"
    assert text == path.read_text()
