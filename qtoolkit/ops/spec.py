"""The shape of an operator's definition: schema, shape rule, exact reference, example cases."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from qtoolkit.graph import TensorType
from qtoolkit.qparams import QParams


@dataclass(frozen=True, slots=True)
class Example:
    """One case of an op: a label and its arguments in schema order, tensors as NumPy arrays."""

    label: str
    args: tuple[Any, ...]


def no_examples() -> Iterator[Example]:
    """The examples of an op that conformance does not cover by itself."""
    return iter(())


def no_qparams(*args: Any) -> QParams | None:
    """The qparams rule of an op whose result is not quantized."""
    return None


@dataclass(frozen=True, slots=True)
class OpSpec:
    """What an operator means, apart from how any backend computes it.

    schema: argument names in order. infer(*args): result types, tensors given as TensorType.
    reference(*args): the results, tensors given as arrays; slow, obvious, right by definition.
    qparams(*args): the result's QParams, tensors given as their own QParams or None, but those
    named in `constants` as arrays. constants: arguments that must be constants. moves: the op only
    moves values about, so it means the same on codes as on real numbers.
    """

    name: str
    schema: tuple[str, ...]
    infer: Callable[..., tuple[TensorType, ...]]
    reference: Callable[..., Any]
    examples: Callable[[], Iterator[Example]] = no_examples
    qparams: Callable[..., QParams | None] = no_qparams
    constants: tuple[str, ...] = ()
    moves: bool = False

    def position(self, name: str) -> int:
        """The schema position of an argument."""
        return self.schema.index(name)
