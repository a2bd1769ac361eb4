"""Exits of lower: rewrites into the ops that a family of backends has, all equal to the bit."""

from collections.abc import Sequence
from functools import partial

from qtoolkit.draft import Draft
from qtoolkit.graph import Node
from qtoolkit.passes import exits_conv as conv
from qtoolkit.passes import exits_other as other
from qtoolkit.passes.rules import FuseRules
from qtoolkit.rewrite import Answer, Rule


def exits(family: str | None, rules: FuseRules) -> Sequence[Sequence[Rule]]:
    """The rewrites of a family, in rounds: each round sees what the one before it made."""
    if family != "cadence":
        return ()
    rounds = [
        (other.pool_as_depthwise, other.permute_before_dequantize),
        (other.clamp_apart,),
        (conv.trivial_conv_as_linear,),
        *([(conv.channels_last,)] if rules.channels_last else []),
        *([(conv.im2row_and_linear,)] if rules.im2row else []),
    ]
    return [[partial(_offer, rule, rules) for rule in each] for each in rounds]


def _offer(rule: other.Exit, rules: FuseRules, node: Node, draft: Draft) -> Answer:
    return rule(node, draft, rules)
