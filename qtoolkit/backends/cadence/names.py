"""What the Cadence family calls its ops, with which schemas, and which core has a kernel for each.

Facts of ExecuTorch 1.5.1, in upstream.json, and what PR 22227 adds to them.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from qtoolkit.errors import UnknownName

GENERIC, HIFI, VISION, TIE, PORTABLE = "generic", "hifi", "vision", "tie", "portable"
OURS = "qtoolkit"  # of ops that neither the family nor the portable library has
NAMESPACE = {GENERIC: "impl::generic", HIFI: "impl::HiFi", VISION: "impl::vision",
             PORTABLE: "torch::executor"}  # fmt: skip

# PR 22227: rows that generic never had, so that everything per-channel can fall back to it.
# quantized_max_pool2d_nchw: generic has the kernel, its list misspells the name.
ADDED = ("quantized_conv1d_ncl.out", "quantized_conv1d_nlc.out",
         "quantized_depthwise_conv1d_ncl.out", "quantized_depthwise_conv1d_nlc.out",
         "quantized_max_pool2d_nchw.out")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Name:
    """An op and overload, and the core whose kernel runs it: 'hifi/quantized_linear.default'."""

    core: str
    op: str
    overload: str = "default"

    def __str__(self) -> str:
        return f"{self.core}/{self.op}.{self.overload}"

    @property
    def out(self) -> str:
        """The name of its out variant, as kernel tables and selective builds write it."""
        bare = self.op.removeprefix("aten::")
        return f"{bare}.out" if self.overload == "default" else f"{bare}.{self.overload}_out"

    @property
    def has_kernel(self) -> bool:
        """Whether the core has a kernel for it."""
        return self.out in kernels(self.core)

    @property
    def schema(self) -> str:
        """The schema of the functional form; for an aten op the name alone.

        Raises UnknownName if there is none.
        """
        if self.op.startswith("aten::"):
            return f"{self.op}.{self.overload}"
        return _schema(self.op if self.overload == "default" else f"{self.op}.{self.overload}")

    @property
    def out_schema(self) -> str:
        """The schema of the out variant, likewise."""
        return self.out if self.op.startswith("aten::") else _schema(self.out)

    @property
    def kernel_name(self) -> str:
        """The C++ function, 'impl::HiFi::quantized_linear_per_tensor_out'."""
        return f"{NAMESPACE[self.core]}::{self.out.replace('.', '_')}"

    @classmethod
    def parse(cls, kernel: str) -> "Name":
        """Read 'hifi/quantized_linear.default[depthwise]', as a node's kernel names it."""
        core, _, rest = kernel.partition("[")[0].partition("/")
        op, _, overload = rest.rpartition(".")
        return cls(core, op, overload)


@cache
def _upstream() -> dict[str, Any]:
    told: dict[str, Any] = json.loads(Path(__file__).with_name("upstream.json").read_text())
    for layout in ("ncl", "nlc"):
        # The schemas that PR 22227 gives to depthwise conv1d are those of the dense one.
        for end in ("", ".out"):
            dense, name = (f"quantized_{d}conv1d_{layout}{end}" for d in ("", "depthwise_"))
            told["schemas"][name] = told["schemas"][dense].replace("_conv1d", "_depthwise_conv1d")
    return told


def _schema(name: str) -> str:
    schemas = _upstream()["schemas"]
    if name not in schemas:
        raise UnknownName(f"cadence::{name}: no op of the Cadence family has this name")
    return str(schemas[name])


@cache
def kernels(core: str) -> frozenset[str]:
    """The out variants that a core has kernels for. TIE's are not public."""
    told = _upstream()
    if core == PORTABLE:
        return frozenset(told["portable"])
    added = ADDED if core == GENERIC else ()
    known: frozenset[str] = frozenset(told["kernels"].get(core, ())) & frozenset(told["schemas"])
    return known | frozenset(added)
