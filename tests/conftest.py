"""What every test shares: no figure stays open, and no window is ever asked for."""

import os
from collections.abc import Iterator

import pytest

os.environ.setdefault("MPLBACKEND", "agg")


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    """Close the figures that a test drew, if it drew any."""
    yield
    import sys

    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
