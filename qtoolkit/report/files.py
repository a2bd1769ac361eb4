"""Files that appear whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qtoolkit.errors import BadInput


def folder(path: Path) -> None:
    """Make a folder, unless it is there. Raises BadInput where the file system refuses."""
    try:
        path.mkdir(exist_ok=True)
    except OSError as why:
        raise BadInput(f"{path}: no folder there ({why.strerror}); choose another") from why


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; it takes its place when the block ends well.

    Raises BadInput where the file system refuses, naming the file and why.
    """
    part = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        yield part
        os.replace(part, path)
    except OSError as why:
        raise BadInput(
            f"{path}: cannot be written ({why.strerror or why}); free the disk or choose another "
            "--out"
        ) from why
    finally:
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> Path:
    """Write UTF-8 text and return the path."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")
    return path
