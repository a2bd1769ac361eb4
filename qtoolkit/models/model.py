"""What a model is here: a module with the data to calibrate and to judge it."""

from dataclasses import dataclass, replace
from typing import Any

import torch

RANDOM = "random data"
COUNT = 8


@dataclass(frozen=True, eq=False)
class Model:
    """A network in eval mode, or an exported program, with its data.

    example, each calibration entry and the second half of each evaluation entry are tuples of
    forward's arguments, all of one shape. labels: class names. held_out: (arguments, a class
    per sample of the batch) pairs whose accuracy is reported. data_source says in words where the
    data comes from.
    """

    module: Any
    example: tuple[Any, ...]
    calibration: tuple[tuple[Any, ...], ...] = ()
    labels: tuple[str, ...] | None = None
    evaluation: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    held_out: tuple[tuple[tuple[Any, ...], tuple[int, ...]], ...] = ()
    data_source: str = RANDOM
    name: str = "model"
    preprocess: Any = None

    def __repr__(self) -> str:
        shapes = ", ".join(str(list(getattr(x, "shape", ()))) for x in self.example)
        return (
            f"Model({self.name}: {shapes}; {len(self.calibration)} calibration and "
            f"{len(self.evaluation)} evaluation inputs, {self.data_source})"
        )


def random_samples(model: Model, seed: int = 0) -> Model:
    """The model with seeded standard normal inputs (integers: those of the example) as its data."""
    generator = torch.Generator().manual_seed(seed)

    def sample() -> tuple[Any, ...]:
        return tuple(
            torch.randn(x.shape, generator=generator).to(x.dtype)
            if isinstance(x, torch.Tensor) and x.dtype.is_floating_point
            else x
            for x in model.example
        )

    calibration = tuple(sample() for _ in range(COUNT))
    evaluation = tuple((f"random {i}", sample()) for i in range(2))
    return replace(model, calibration=calibration, evaluation=evaluation, data_source=RANDOM)
