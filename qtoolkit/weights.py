"""Weight errors: one scale per channel against one per tensor, layer by layer, channel by channel.

The truth is the weight that the quantizer saw: the float one with its batch norm folded in.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.draft import Draft
from qtoolkit.errors import BadInput, UnknownName
from qtoolkit.graph import Const, Graph, Node
from qtoolkit.metrics import measure
from qtoolkit.norms import Float64, folded, reach
from qtoolkit.passes.fuse_weighted import WEIGHTED
from qtoolkit.passes.qdq import operand, short
from qtoolkit.qparams import EPS_WEIGHT, SCALE_LOW

if TYPE_CHECKING:
    import pandas as pd

CODES = 127
DEAD, UNDERFLOWED, RAISED = "dead", "underflowed", "raised"
MARKS = (DEAD, UNDERFLOWED, RAISED)
# Scales are rounded up to float32, and the fold here may differ from torch's in the last bit.
SLACK = 1 + 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """A layer's weight in one quantized graph. scale[O], one value repeated where it is shared.

    db[O]: SQNR of each channel, NaN where exact or without signal; lost[O]: all codes are zero
    though the channel is not; sqnr and sqnr_db: of the whole weight, as in metrics.
    """

    scale: Float64
    db: Float64
    lost: NDArray[np.bool_]
    sqnr: str
    sqnr_db: float | None


@dataclass(frozen=True, slots=True, eq=False)
class LayerWeights:
    """A conv or linear: max_abs[O] of its float weight, both quantizations, marks by name.

    marks: channel indices that are dead (all zero), underflowed (not zero, yet below every scale)
    or raised (their per-channel scale was widened for their bias).
    """

    name: str
    where: str
    module: str
    kind: str
    max_abs: Float64
    channel: Side
    tensor: Side
    marks: dict[str, NDArray[np.intp]]

    @property
    def gain(self) -> float | None:
        """dB won by per-channel scales; None where either side has no figure."""
        if self.channel.sqnr_db is None or self.tensor.sqnr_db is None:
            return None
        return self.channel.sqnr_db - self.tensor.sqnr_db

    def row(self) -> dict[str, Any]:
        """The layer as one row of a table or of JSON; no NaN in it."""
        return {
            "name": self.name, "where": self.where, "op": self.kind,
            "channels": self.max_abs.size,
            "per_channel_db": self.channel.sqnr_db, "per_tensor_db": self.tensor.sqnr_db,
            "gain_db": self.gain, "lost_per_tensor": int(self.tensor.lost.sum()),
            **{mark: int(self.marks[mark].size) for mark in MARKS},
        }  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class WeightErrors:
    """Every conv and linear that both graphs quantize, in graph order."""

    layers: tuple[LayerWeights, ...]

    def __getitem__(self, name: str) -> LayerWeights:
        found = next((layer for layer in self.layers if layer.name == name), None)
        if found is None:
            known = ", ".join(layer.name for layer in self.layers)
            raise UnknownName(f"no quantized weight of %{name}; there are {known}")
        return found

    def to_dataframe(self) -> "pd.DataFrame":
        """A row for each layer: SQNR of its weight in dB both ways, the gain, counts of marks."""
        import pandas as pd

        return pd.DataFrame([layer.row() for layer in self.layers]).set_index("name")

    def to_json(self) -> dict[str, Any]:
        """Format 1."""
        return {"format": 1, "layers": [layer.row() for layer in self.layers]}

    def __repr__(self) -> str:
        gains = [g for layer in self.layers if (g := layer.gain) is not None]
        mean = f"; per-channel gains {np.mean(gains):.1f} dB on average" if gains else ""
        counts = [sum(layer.marks[mark].size for layer in self.layers) for mark in MARKS]
        told = ", ".join(f"{n} {mark}" for n, mark in zip(counts, MARKS, strict=True))
        return f"WeightErrors: {len(self.layers)} layers{mean}; channels: {told}"

    def _repr_html_(self) -> str:
        table = self.to_dataframe().to_html(max_rows=20, float_format="{:.1f}".format)
        return f"<p>{self!r}</p>{table}"


def weight_errors(captured: Graph, per_channel: Graph, per_tensor: Graph) -> WeightErrors:
    """Hold the weights of two q/dq graphs of one model against those of the float graph.

    captured: from qt.capture; the others: from qt.quantize, in either granularity's place as named.
    Raises BadInput where a graph is not what its name says or no layer is common to all three.
    """
    channel, tensor = _weights(per_channel), _weights(per_tensor)
    # A weight of one channel is the same either way, and is no evidence.
    for name, found, wanted in (("per_channel", channel, True), ("per_tensor", tensor, False)):
        for node, (codes, scale) in found.items():
            if codes.shape[0] > 1 and (scale.size > 1) is not wanted:
                raise BadInput(
                    f"{name}: %{node} has {scale.size} weight scale(s) for {codes.shape[0]} "
                    f"channels; give qt.quantize(..., weights='{name.replace('_', '-')}')"
                )
    layers = [
        _layer(captured, per_channel[name], channel[name], tensor[name])
        for name in channel
        if name in tensor and name in captured
    ]
    if not layers:
        raise BadInput(
            "no conv or linear is quantized in both graphs and known to the captured one; give "
            "qt.capture and both qt.quantize of one module"
        )
    return WeightErrors(tuple(layers))


Quantized = tuple[NDArray[Any], NDArray[np.float32]]


def _weights(graph: Graph) -> dict[str, Quantized]:
    """Codes and scales of each quantized weight, by its node."""
    return dict(_quantized(graph))


def _quantized(graph: Graph) -> Iterator[tuple[str, Quantized]]:
    draft = Draft(graph)
    for node in graph.nodes:
        found = operand(node.args[1], draft) if node.op in WEIGHTED else None
        if found is not None and isinstance(found.codes, Const):
            yield node.name, (graph.array(found.codes), found.qparams.scale)


def _layer(captured: Graph, node: Node, channel: Quantized, tensor: Quantized) -> LayerWeights:
    real = folded(captured, node.name)[0]
    most, scale = reach(real), np.broadcast_to(channel[1], real.shape[0])
    return LayerWeights(
        node.name, str(node.where), node.where.module, _kind(captured, node), most,
        _side(real, *channel), _side(real, *tensor), _marks(most, scale),
    )  # fmt: skip


def _side(real: NDArray[np.float32], codes: NDArray[Any], scale: NDArray[np.float32]) -> Side:
    flat, q = (a.reshape(len(a), -1).astype(np.float64) for a in (real, codes))
    each = np.broadcast_to(scale.astype(np.float64), len(flat))
    value = q.astype(np.float32) * each.astype(np.float32)[:, None]
    signal, noise = (flat**2).sum(1), ((value - flat) ** 2).sum(1)
    some = (signal > 0) & (noise > 0)
    db = np.full(len(flat), np.nan)
    db[some] = 10 * np.log10(signal[some] / noise[some])
    whole = measure(flat.astype(np.float32), value)
    lost = (signal > 0) & ~q.any(axis=1)
    return Side(each, db, lost, whole.sqnr, whole.sqnr_db)


def _marks(most: Float64, scale: NDArray[np.float32]) -> dict[str, NDArray[np.intp]]:
    """The marks of numbers.md, from max|w| of each channel and the scale it was given."""
    own = most / CODES
    return {
        DEAD: np.flatnonzero(most == 0),
        UNDERFLOWED: np.flatnonzero((most > 0) & (own < max(SCALE_LOW, EPS_WEIGHT))),
        RAISED: np.flatnonzero(scale > np.maximum(own, EPS_WEIGHT) * SLACK),
    }


def _kind(captured: Graph, node: Node) -> str:
    """'conv2d', 'linear', 'depthwise conv2d'."""
    x = captured.type_of(captured[node.origin[0] if node.origin else node.name].args[0])
    depthwise = "conv" in node.op and x is not None and node.args[6] == x.sizes[1] > 1
    return ("depthwise " if depthwise else "") + short(node.op)
