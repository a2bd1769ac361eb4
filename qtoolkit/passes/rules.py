"""The switches of the passes: each on by default, each off to see what it is for."""

from dataclasses import dataclass

from qtoolkit.errors import UnknownName
from qtoolkit.qparams import MODES


@dataclass(frozen=True, slots=True)
class FuseRules:
    """How fuse works.

    per_channel: accept per-channel weights; off, such a conv or linear is left float.
    fold_activation: fold relu, relu6, hardtanh, clamp into the op before them.
    requantize: 'float', 'fixed' or 'fixed_double' (numbers.md). strict: raise where a bias does not
    fit int32 instead of leaving the op float.
    """

    per_channel: bool = True
    fold_activation: bool = True
    requantize: str = "float"
    strict: bool = False

    def __post_init__(self) -> None:
        if self.requantize not in MODES:
            raise UnknownName(
                f"requantize mode {self.requantize!r}; choose one of {', '.join(MODES)}"
            )


@dataclass(frozen=True, slots=True)
class PlaceRules:
    """How place and transitions work.

    follow_source: an operand takes the representation its source has, if the kernel admits it.
    ask_readers: an undecided result takes what its readers demand. share_transitions: readers that
    want the same copy of a value share one.
    """

    follow_source: bool = True
    ask_readers: bool = True
    share_transitions: bool = True
