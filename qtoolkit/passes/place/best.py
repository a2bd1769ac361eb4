"""policy='optimal': the placement of least total cost, told beside the greedy one."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from qtoolkit.layout import bit
from qtoolkit.passes.place.cost import CostModel
from qtoolkit.passes.place.demands import ANY
from qtoolkit.passes.place.form import Form, State, is_open
from qtoolkit.passes.place.optimal import REPR, SAME, Program, Region
from qtoolkit.passes.place.pricing import Pricing, copies
from qtoolkit.passes.place.problem import Problem
from qtoolkit.passes.place.recorder import Recorder
from qtoolkit.passes.place.repsets import Repsets
from qtoolkit.trace import Step

SECONDS = 30.0
REGION = "the region of {0} nodes around %{1} costs {2:,.0f} {3}, greedy {4:,.0f}; {5}"
PROVED = "proved: nothing costs less"
OUTSIDE = "not proved: greedy, copying from copies or leaving a constraint (oddities), costs less"
UNPROVED = "not proved within the time: at least {0:,.0f}"
CHEAPER = "{0}: {1}, which makes the region around %{2} cost {3:,.0f} {4} less than greedy's {5}"
AS_GREEDY = "{0}: {1}, of least cost, as greedy has it"


class Best:
    """Decides by an integer program, where greedy engines decide node by node."""

    def __init__(
        self,
        problem: Problem,
        recorder: Recorder,
        model: CostModel,
        seconds: float = SECONDS,
        order: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        self.problem, self.recorder, self.model = problem, recorder, model
        pricing = Pricing(problem, model)
        self.greedy, self.spent = greedy(problem, pricing, order)
        self.program = Program(problem, pricing)
        free = {n: bit(held[0]) for n, held in enumerate(self.greedy.held) if held}
        before = self.program.labelled(self.greedy.states, free)
        self.labels = self.program.solve(before, seconds)
        self.least = sum(region.cost for region in self.program.regions)
        # ExecuTorch's oddities may cost less than its rules allow: then they stay.
        outside = self.spent < self.least - SAME * max(1.0, self.least)
        self.instead = Repsets(problem, recorder, order) if outside else None
        self.starts: dict[int, list[Region]] = {}
        of: dict[int, Region] = {}
        for region in self.program.regions:
            if any(is_open(self.program.choices[c].domain) for c in region.choices):
                nodes = [n for c in region.choices for n in self.program.choices[c].nodes]
                self.starts.setdefault(min(nodes), []).append(region)
                of |= dict.fromkeys(region.choices, region)
        self.region_of = {slot: of[c] for slot, c in self.program.of.items() if c in of}

    def decide(self, n: int) -> None:
        """Bring node n to its place in the best placement."""
        if self.instead is not None:
            if n == 0:
                told = (REGION, self.problem.nodes, self.problem.names[0], self.spent,
                        self.model.unit, self.spent, OUTSIDE, 0.0)  # fmt: skip
                self.recorder.note(0, "region", told)
            self.instead.decide(n)
            return
        for region in self.starts.get(n, ()):
            self._tell(n, region)
        form = self.problem.forms[n]
        if self.problem.is_alias[n]:
            self.recorder.alias(n)
        elif form is not None:
            self._place(n, form)
            self.recorder.hold(n)
            self._connect(n)

    def _tell(self, n: int, region: Region) -> None:
        nodes = {m for c in region.choices for m in self.program.choices[c].nodes}
        end = PROVED if region.proved else UNPROVED.format(region.bound)
        told = (REGION, len(nodes), self.problem.names[n], region.cost, self.model.unit,
                region.greedy, end, region.bound)  # fmt: skip
        self.recorder.note(n, "region", told)

    def _place(self, n: int, form: Form) -> None:
        recorder, problem = self.recorder, self.problem
        state = recorder.states[n]
        assert state is not None
        found: State = tuple(
            0 if not mask else self.labels[self.program.of[n, p]] for p, mask in enumerate(state)
        )
        if found == state:
            return
        theirs = self.greedy.states[n]

        def why(p: int) -> tuple[tuple[object, ...], int | None]:
            region, mine = self.region_of[n, p], ANY.within(found[p])
            cause = recorder.demanded_by(n, form.slot(p))
            if region.cost >= region.greedy:
                return (AS_GREEDY, mine), cause
            first = min(m for c in region.choices for m in self.program.choices[c].nodes)
            gain = region.greedy - region.cost
            was = "none" if theirs is None else ANY.within(theirs[p])
            return (CHEAPER, mine, problem.names[first], gain, self.model.unit, was), cause

        recorder.settle(n, found, "optimal", why)

    def _connect(self, n: int) -> None:
        """Say which copies node n needs; nodes without a say take their place when first read."""
        recorder, problem = self.recorder, self.problem
        state = recorder.states[n]
        assert state is not None
        odd = problem.rules.oddities
        for operand in problem.operands[n]:
            mask = state[operand.position]
            if not mask or (odd and operand.listed and operand.constant):
                continue
            wants = REPR[mask]
            for source, result in operand.values:
                if problem.is_constant(source):
                    continue
                if not recorder.held[source]:
                    label = self.labels[self.program.of[source, result]]
                    recorder.adopt(source, REPR[label], n, recorder.decided.get(n, 0))
                recorder.bring(n, source, result, wants)


def greedy(
    problem: Problem, pricing: Pricing, order: Mapping[str, Sequence[str]]
) -> tuple[Recorder, float]:
    """The greedy placement of a problem, and what it costs."""
    recorder = Recorder(problem)
    recorder.demands()
    recorder.fresh()
    engine = Repsets(problem, recorder, order)
    steps: list[Step] = []
    for n in range(problem.nodes):
        engine.decide(n)
        steps += (step for step in recorder.fresh() if step.kind == "copy")
    made = copies(problem.graph, steps, problem.rules.share_transitions)
    decided = [None if problem.is_alias[n] else state for n, state in enumerate(recorder.states)]
    return recorder, pricing.cost(decided, made).total
