"""Keeping foreign prints, warnings and log lines off the terminal; exceptions pass."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO


@contextmanager
def quiet() -> Iterator[None]:
    """Run a block without prints, warnings and log lines; what goes wrong comes as an exception."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        # torch.export prints the graph that it gives up on to stderr.
        unread = StringIO()
        with redirect_stdout(unread), redirect_stderr(unread), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def first_line(error: BaseException) -> str:
    """The error's type and the first line of what it says, at most 200 characters of it."""
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    name = type(error).__name__
    return f"{name}: {said[:200]}" if said else name
