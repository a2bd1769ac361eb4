"""fuse: a dequantize, an op and a quantize become one op on codes; refusals say why."""

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from functools import partial

from qtoolkit.draft import Draft
from qtoolkit.graph import Graph, Node
from qtoolkit.passes import fuse_other as other
from qtoolkit.passes.fuse_matmul import fuse_matmul
from qtoolkit.passes.fuse_weighted import fuse_weighted
from qtoolkit.passes.left_float import LEFT_FLOAT, explain_float, no_form
from qtoolkit.passes.rules import FuseRules
from qtoolkit.rewrite import Answer, apply_rules
from qtoolkit.trace import Step

FuseRule = Callable[[Node, Draft, FuseRules], Answer]

FOLD: tuple[FuseRule, ...] = (other.fold_quantized_constant,)
MATCH: tuple[FuseRule, ...] = (
    fuse_weighted,
    fuse_matmul,
    other.fuse_add,
    other.fuse_pool,
    other.fuse_cat,
    other.fuse_move,
    other.fuse_activation,
    other.fuse_requantize,
    explain_float,
)
SETTLE: tuple[FuseRule, ...] = (other.settle,)


def fuse(graph: Graph, rules: FuseRules = FuseRules()) -> Generator[Step, None, Graph]:  # noqa: B008
    """Fold quantized constants, match every pattern in graph order, settle what remains."""
    draft = Draft(graph)
    for family in (FOLD, MATCH, SETTLE):
        yield from apply_rules(draft, [partial(_offer, rule, rules) for rule in family])
    return draft.finish()


def _offer(rule: FuseRule, rules: FuseRules, node: Node, draft: Draft) -> Answer:
    return rule(node, draft, rules)


@dataclass(frozen=True, slots=True)
class LeftFloat:
    """A node that computes on floats in a quantized graph, and why."""

    node: str
    op: str
    where: str
    why: str


BORDER = ("input", "quantize", "dequantize", "transition", "getitem")


def left_float(graph: Graph, steps: Iterable[Step]) -> tuple[LeftFloat, ...]:
    """The nodes of a fused graph that still compute on floats, each with fuse's last refusal."""
    refused = {s.node: s.reason for s in steps if s.kind == "reject"}
    return tuple(
        LeftFloat(n.name, n.op, str(n.where), refused.get(n.name) or _unasked(n))
        for n in graph.nodes
        if n.op not in BORDER and any(t.dtype.floating for t in n.types)
    )


def _unasked(node: Node) -> str:
    """Why a node is float that reads nothing quantized, so that no rule was about it."""
    if node.op in LEFT_FLOAT:
        return no_form(node.op)
    return "nothing around it is quantized in the captured program"
