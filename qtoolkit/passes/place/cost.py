"""What a placement costs: copies and operations, in bytes or, where a device was measured, µs."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qtoolkit.errors import FormatError
from qtoolkit.layout import TensorRepr

BYTES, MICROSECONDS = "bytes", "µs"
# An operation in its kernel's second choice costs as much as copying a twentieth of its tensors.
SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Line:
    """A time that grows with size: fixed + slope · bytes, in µs."""

    fixed: float
    slope: float

    def at(self, nbytes: int) -> float:
        return self.fixed + self.slope * nbytes


@dataclass(frozen=True)
class CostModel:
    """What copies and operations cost.

    The default model counts bytes: a copy costs those it writes; an operation costs for each tensor
    operand and result SHARE · its bytes · the rank of its representation in the kernel's order of
    preference, from 0. A measured model counts µs: `copies` by representation read and written,
    `operations` by op and representation of result 0, over the bytes of all operands and results;
    what it does not hold costs as by the default, at `slope` µs a byte. name says which it is, with
    device and driver.
    """

    name: str = "default model"
    unit: str = BYTES
    slope: float = 1.0
    copies: Mapping[tuple[TensorRepr, TensorRepr], Line] = field(default_factory=dict)
    operations: Mapping[tuple[str, TensorRepr], Line] = field(default_factory=dict)

    def copy(self, nbytes: int, has: TensorRepr, wants: TensorRepr) -> float:
        """The cost of bringing a tensor of `nbytes` from one representation to another."""
        line = self.copies.get((has, wants))
        return self.slope * nbytes if line is None else line.at(nbytes)

    def measured(self, op: str, r: TensorRepr, nbytes: int) -> float | None:
        """The measured time of an operation whose result 0 has representation r, if there is."""
        line = self.operations.get((op, r))
        return None if line is None else line.at(nbytes)

    def ranked(self, nbytes: int, rank: int) -> float:
        """What a tensor adds to an operation that was not measured."""
        return SHARE * self.slope * nbytes * rank

    def to_json(self) -> dict[str, Any]:
        """The saved form: format 1, no pickle."""
        return {
            "format": 1,
            "name": self.name,
            "unit": self.unit,
            "slope": self.slope,
            "copies": [[str(a), str(b), x.fixed, x.slope] for (a, b), x in self.copies.items()],
            "operations": [
                [op, str(r), x.fixed, x.slope] for (op, r), x in self.operations.items()
            ],
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> "CostModel":
        """Read back `to_json`. Raises FormatError."""
        try:
            if told["format"] != 1:
                raise FormatError(f"cost model of format {told['format']}; this release reads 1")
            parse = TensorRepr.parse
            return cls(
                str(told["name"]), str(told["unit"]), float(told["slope"]),
                {(parse(a), parse(b)): Line(float(f), float(s)) for a, b, f, s in told["copies"]},
                {(op, parse(r)): Line(float(f), float(s)) for op, r, f, s in told["operations"]},
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as why:
            raise FormatError(f"not a saved cost model: {why!r}; measure it again") from why

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "CostModel":
        """Read a saved cost model. Raises FormatError."""
        try:
            told = json.loads(Path(path).read_text())
        except (OSError, ValueError) as why:
            raise FormatError(f"{path}: cannot be read as JSON ({why})") from why
        return cls.from_json(told)


@dataclass(frozen=True, slots=True)
class Cost:
    """The two sums of a placement, in the unit of the model that priced it."""

    transitions: float
    operations: float
    unit: str
    model: str

    @property
    def total(self) -> float:
        return self.transitions + self.operations

    def __str__(self) -> str:
        return (
            f"{self.total:,.0f} {self.unit}: transitions {self.transitions:,.0f}, operations "
            f"{self.operations:,.0f} ({self.model})"
        )
