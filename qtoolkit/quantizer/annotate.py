"""Our plan of what becomes int8, told to torchao as annotations."""

from collections.abc import Iterator
from typing import Any

from torch import fx

from qtoolkit.quantizer.config import QuantizationConfig
from qtoolkit.quantizer.observers import ActivationRange
from qtoolkit.quantizer.plan import Int8Plan, Kind, activations, kind_of, parameters, places, plan
from qtoolkit.quantizer.torchao import (
    Q_ANNOTATION_KEY,
    QuantizationAnnotation,
    Quantizer,
    SharedQuantizationSpec,
)


class Int8Quantizer(Quantizer):  # type: ignore[misc]
    """int8: activations per-tensor affine, weights symmetric per-channel or per-tensor.

    Every value has one observer, and values that share qparams share it: the first place that
    prepare_pt2e visits holds the spec, all others point there, so no chain of pointers can loop.
    After prepare_pt2e, `observers` holds the observer of each edge and node, `parameters` the
    weight and bias of each conv and linear.
    """

    def __init__(self, weights: str | QuantizationConfig = QuantizationConfig()) -> None:  # noqa: B008
        super().__init__()
        self.config = QuantizationConfig.of(weights)
        self.activation, self.weight = self.config.activation, self.config.weight
        self.plan = Int8Plan((), {}, frozenset())
        self.observers: dict[Any, Any] = {}
        self.parameters: dict[fx.Node, tuple[fx.Node, fx.Node | None]] = {}

    def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
        self.plan = plan(model.graph)
        anchors: dict[fx.Node, Any] = {}
        for node in self.plan.nodes:
            inputs = {
                v: self._spec(v, (v, node), anchors)
                for v in activations(node)
                if v not in self.plan.folded
            }
            if kind_of(node) is Kind.WEIGHTED:
                inputs |= self._parameter_specs(node)
            output = None if node in self.plan.folded else self._spec(node, node, anchors)
            node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(
                inputs, output, allow_implicit_sharing=False, _annotated=True
            )
        return model

    def _spec(self, value: fx.Node, place: Any, anchors: dict[fx.Node, Any]) -> Any:
        owner = self.plan.owner.get(value, value)
        if owner in anchors:
            return SharedQuantizationSpec(anchors[owner])
        anchors[owner] = place
        return self.activation

    def _parameter_specs(self, node: fx.Node) -> dict[fx.Node, Any]:
        """The specs of a weight and its bias; the one place where the two meet."""
        weight, bias = parameters(node)
        (x,) = activations(node)
        specs: dict[fx.Node, Any] = {weight: self.weight}
        derived = self.config.bias(node, x, weight, places(node).outputs_axis)
        if bias is not None and derived is not None:
            specs[bias] = derived
        self.parameters[node] = weight, bias if bias in specs else None
        return specs

    def validate(self, model: fx.GraphModule) -> None:
        """Nothing to add: annotate asks only for what the plan allows."""

    def prepare_obs_or_fq_callback(
        self, model: fx.GraphModule, edge_or_node_to_obs_or_fq: dict[Any, Any]
    ) -> None:
        self.observers = dict(edge_or_node_to_obs_or_fq)
        for place, observer in self.observers.items():
            value = place[0] if isinstance(place, tuple) else place
            if isinstance(observer, ActivationRange) and not observer.node:
                observer.node = value.name

    def ranges(self) -> Iterator[ActivationRange]:
        """Each activation observer once."""
        found = {id(o): o for o in self.observers.values() if isinstance(o, ActivationRange)}
        return iter(found.values())
