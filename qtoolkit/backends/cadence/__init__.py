"""The Cadence family: its names and overloads, routed per core, run by our Numba kernels."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from qtoolkit.backends import DeviceChoice, no_choice, numba_cpu
from qtoolkit.backends.cadence import plain, weighted
from qtoolkit.backends.cadence.names import GENERIC as GENERIC_NAME
from qtoolkit.backends.cadence.names import HIFI as HIFI_NAME
from qtoolkit.backends.cadence.names import TIE as TIE_NAME
from qtoolkit.backends.cadence.names import VISION as VISION_NAME
from qtoolkit.backends.engine import Engine, HostEngine
from qtoolkit.graph import Graph
from qtoolkit.kernel import Kernel
from qtoolkit.ops import OPS


@dataclass(frozen=True)
class Core:
    """One target of the family. All run on this CPU: there is no Xtensa core here."""

    name: str

    @cached_property
    def KERNELS(self) -> Mapping[str, tuple[Kernel, ...]]:
        """By op; a node that the family has no op for finds none."""
        made = {
            op: (weighted if op in weighted.FORMS else plain).kernels(op, self.name)
            for op in OPS
            if op not in ("getitem", "transition")
        }
        return {op: kernels for op, kernels in made.items() if kernels}

    def device(self, choice: DeviceChoice = None) -> str:
        """What computes in the core's place."""
        return f"{numba_cpu.device()}, in place of a Cadence {self.name} core"

    def texture_limit(self, choice: DeviceChoice = None) -> None:
        """There are no textures."""

    def check(self) -> None:
        """Nothing beside the package is needed."""

    def load(
        self, graph: Graph, chosen: Mapping[str, Kernel], choice: DeviceChoice = None
    ) -> Engine:
        """Bind the kernels of a graph."""
        no_choice(self.name, choice)
        return HostEngine(graph, chosen, self.device())


GENERIC, HIFI, VISION, TIE = map(Core, (GENERIC_NAME, HIFI_NAME, VISION_NAME, TIE_NAME))
