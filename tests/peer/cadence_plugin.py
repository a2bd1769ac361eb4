"""A pytest plugin: puts our kernels in the place of upstream's, and counts what reaches them.

    python -m pytest <upstream's test file> -p cadence_plugin --cadence-report=report.json

Upstream registers its kernels for CompositeExplicitAutograd, so a kernel for CPU goes before them.
The session fails if the tests call an op that KERNELS holds and the call does not reach it.
"""

import functools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from qtoolkit.interop.cadence import ADDED_SCHEMAS, KERNELS


class Asked(TorchDispatchMode):
    """Counts the calls of cadence's ops on their way to a kernel."""

    def __init__(self, seen: Counter[str]) -> None:
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.namespace == "cadence":
            name = func._opname
            overload = func._overloadname
            self.seen[name if overload == "default" else f"{name}.{overload}"] += 1
        return func(*args, **(kwargs or {}))


class Peer:
    """Ours registered; `asked` counts what the tests called, `ours` what came to our kernels."""

    def __init__(self, report: Path | None) -> None:
        from executorch.backends.cadence.aot import ops_registrations  # noqa: F401

        self.report = report
        self.asked: Counter[str] = Counter()
        self.ours: Counter[str] = Counter()
        self.library = torch.library.Library("cadence", "FRAGMENT")
        for name, schema in ADDED_SCHEMAS.items():
            if not hasattr(torch.ops.cadence, name) or "default" not in (
                getattr(torch.ops.cadence, name).overloads()
            ):
                self.library.define(name + schema)
        for name, kernel in KERNELS.items():
            self.library.impl(name, self.counted(name, kernel), "CPU")

    def counted(self, name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(kernel)
        def run(*args: Any, **kwargs: Any) -> Any:
            self.ours[name] += 1
            return kernel(*args, **kwargs)

        return run

    def missed(self) -> list[str]:
        """Ops of ours whose calls did not all come to us."""
        return [n for n in KERNELS if self.asked[n] != self.ours[n]]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        with Asked(self.asked):
            return (yield)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.missed():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self.report:
            told = {
                "ours": dict(self.ours),
                "theirs": sorted(set(self.asked) - set(self.ours)),
                "missed": self.missed(),
            }
            self.report.write_text(json.dumps(told, indent=1))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line(
            f"{len(self.ours)} distinct cadence ops were ours, {sum(self.ours.values())} calls; "
            f"missed: {', '.join(self.missed()) or 'none'}"
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cadence-report", type=Path, default=None, help="write the counts here")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Peer(config.getoption("--cadence-report")), "cadence peer")
