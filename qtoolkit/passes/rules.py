"""The switches of the passes: each on by default, each off to see what it is for."""

from dataclasses import dataclass, replace
from typing import Any

from qtoolkit.errors import UnknownName
from qtoolkit.qparams import MODES


@dataclass(frozen=True, slots=True)
class FuseRules:
    """How fuse and lower work.

    per_channel: accept per-channel weights; off, such a conv or linear is left float.
    align_bias_spec: a bias has as many scales as its weight; off, it has one, and a per-channel
    weight with a bias is left float. replace_all_arguments: every quantized operand of an op is
    replaced by its codes; off, the first alone, and ops of two operands and more are left float.
    check_relu_zero_point: a folded activation clamps the codes; off, it is taken for what
    saturation does, and vanishes where the zero point is not the least code.
    fold_activation: fold relu, relu6, hardtanh, clamp into the op before them.
    requantize: 'float', 'fixed' or 'fixed_double' (numbers.md). strict: raise where a bias does not
    fit int32 instead of leaving the op float.
    What follows concerns the Cadence family alone. depthwise_before_overload: a per-channel
    depthwise conv is known as depthwise; off, it stays a dense one. lowering_keeps_granularity:
    rewrites of per-channel ops keep all scales; off, they keep that of channel 0, and a permute
    past a dequantize leaves its axis behind. hifi_reads_channel0 (off by default): HiFi's kernels
    take vectors of scales, and read element 0. channels_last: convs get channels as their last
    axis, between permutes. im2row (off by default): convs become im2row and a linear.
    """

    per_channel: bool = True
    align_bias_spec: bool = True
    replace_all_arguments: bool = True
    check_relu_zero_point: bool = True
    fold_activation: bool = True
    requantize: str = "float"
    strict: bool = False
    depthwise_before_overload: bool = True
    lowering_keeps_granularity: bool = True
    hifi_reads_channel0: bool = False
    channels_last: bool = True
    im2row: bool = False

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if name != "requantize" and type(value) is not bool:
                raise UnknownName(f"{name}={value!r}; choose on or off")
        if self.requantize not in MODES:
            raise UnknownName(
                f"requantize mode {self.requantize!r}; choose one of {', '.join(MODES)}"
            )

    @classmethod
    def parse(cls, text: str) -> "FuseRules":
        """Read 'per_channel=off,requantize=fixed', on top of the defaults. Raises UnknownName."""
        return cls(**_told(cls, text))


@dataclass(frozen=True, slots=True)
class PlaceRules:
    """How place and transitions work. The defaults are ours; `executorch()` is release 1.5.1.

    engine: 'repsets' narrows sets of representations, 'proposals' takes one per op (ExecuTorch up
    to July 2025). input_preferences: an operand is asked for its own preference first; off, the
    result's preference serves for all operands. constrain_outputs: whether a result that is still
    open is narrowed by what its readers want: 'never', 'unsynced' (only where it is tied to no
    operand and all results are tied) or 'always'.
    search: how an open operand is narrowed: 'readers-first' asks all readers of its value, breadth
    first, and then takes what the value has (at once where the readers would have it copied and
    the result is smaller than it); 'source-first' the other way round; 'depth-first' as the first
    with a search in depth. budget: a search ends before it asks the readers of this many
    nodes (None: no end); budget_scope: one budget for a search ('shared') or for each path of it
    ('per-branch'). ties: tied operands get one representation ('identical') or compatible ones
    ('packed-dim'). share_transitions: readers that want the same copy of a value share one.
    pick: what is still open takes the kernel's first choice ('declared') or the first in
    ExecuTorch's order ('executorch'). oddities: follow ExecuTorch where it does not follow its own
    rules: lists are not searched, of several untied results only the second is, a value is asked
    once for every path to it, a tie refuses operands that are no part of it, operands without a
    demand are brought to a representation all the same, sizes do not count.
    """

    engine: str = "repsets"
    input_preferences: bool = True
    constrain_outputs: str = "always"
    search: str = "readers-first"
    budget: int | None = 64
    budget_scope: str = "shared"
    ties: str = "identical"
    share_transitions: bool = True
    pick: str = "declared"
    oddities: bool = False

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            value = getattr(self, name)
            if value not in known:
                raise UnknownName(f"{name}={value!r}; choose one of {', '.join(map(str, known))}")
        if self.budget is not None and (
            type(self.budget) is not int or not 1 <= self.budget <= MOST_BUDGET
        ):
            raise UnknownName(f"budget={self.budget!r}; give 1 to {MOST_BUDGET}, or none")

    @classmethod
    def executorch(cls) -> "PlaceRules":
        """Release 1.5.1 of ExecuTorch, to the node."""
        return cls(ties="packed-dim", pick="executorch", oddities=True)

    @classmethod
    def proposals(cls, input_preferences: bool = True) -> "PlaceRules":
        """ExecuTorch of July 2025, with PR 12616 or, input_preferences off, before it."""
        return cls(
            engine="proposals", input_preferences=input_preferences, share_transitions=False,
            pick="executorch",
        )  # fmt: skip

    @classmethod
    def parse(cls, text: str, start: "PlaceRules | None" = None) -> "PlaceRules":
        """Read 'budget=none,ties=identical', on top of `start`. Raises UnknownName."""
        return replace(start or cls(), **_told(cls, text))

    def __str__(self) -> str:
        """The rules as `parse` reads them."""
        shown = {f: getattr(self, f) for f in self.__dataclass_fields__}
        return ",".join(f"{name}={_spelled(value)}" for name, value in shown.items())


MOST_BUDGET = 10**9
CHOICES: dict[str, tuple[object, ...]] = {
    "engine": ("repsets", "proposals"),
    "input_preferences": (True, False),
    "constrain_outputs": ("never", "unsynced", "always"),
    "search": ("readers-first", "source-first", "depth-first"),
    "budget_scope": ("shared", "per-branch"),
    "ties": ("identical", "packed-dim"),
    "share_transitions": (True, False),
    "pick": ("declared", "executorch"),
    "oddities": (True, False),
}
WORDS: dict[str, object] = {"none": None, "on": True, "true": True, "off": False, "false": False}


def _told(rules: type[FuseRules] | type[PlaceRules], text: str) -> dict[str, Any]:
    """The fields that 'name=value, …' names, with their values."""
    told: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, value = (p.strip() for p in part.partition("="))
        if name not in rules.__dataclass_fields__:
            known = ", ".join(rules.__dataclass_fields__)
            raise UnknownName(f"rule {name!r}; the rules are {known}")
        told[name] = _value(name, value)
    return told


def _value(name: str, text: str) -> object:
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    if name != "budget":
        return text
    return int(text) if text.isdecimal() and len(text) < 20 else text[:20]


def _spelled(value: object) -> str:
    words = {None: "none", True: "on", False: "off"}
    return words[value] if value is None or isinstance(value, bool) else str(value)
