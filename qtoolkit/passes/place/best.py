"""policy='optimal': the placement of least total cost, told beside the greedy one."""

from qtoolkit.layout import bit
from qtoolkit.passes.place.cost import CostModel
from qtoolkit.passes.place.demands import ANY
from qtoolkit.passes.place.form import Form, State
from qtoolkit.passes.place.optimal import REPR, Program, Region
from qtoolkit.passes.place.pricing import Pricing
from qtoolkit.passes.place.problem import Problem
from qtoolkit.passes.place.recorder import Recorder
from qtoolkit.passes.place.repsets import Repsets

SECONDS = 30.0
REGION = "the region of {0} nodes around %{1} costs {2:,.0f} {3}, greedy {4:,.0f}; {5}"
PROVED = "proved: nothing costs less"
UNPROVED = "not proved within the time: at least {0:,.0f}"
CHEAPER = "{0}: {1}, which makes the region around %{2} cost {3:,.0f} {4} less than greedy's {5}"
AS_GREEDY = "{0}: {1}, of least cost, as greedy has it"


class Best:
    """Decides by an integer program, where greedy engines decide node by node."""

    def __init__(
        self, problem: Problem, recorder: Recorder, model: CostModel, seconds: float = SECONDS
    ) -> None:
        self.problem, self.recorder, self.model = problem, recorder, model
        self.greedy = greedy(problem)
        self.program = Program(problem, Pricing(problem, model))
        free = {n: bit(held[0]) for n, held in enumerate(self.greedy.held) if held}
        before = self.program.labelled(self.greedy.states, free)
        self.labels = self.program.solve(before, seconds)
        self.region_of: dict[int, Region] = {}
        self.starts: dict[int, list[Region]] = {}
        for region in self.program.regions:
            nodes = [n for c in region.choices for n in self.program.choices[c].nodes]
            opened = any(problem.open_at_start(n) for n in nodes)
            if opened:
                self.starts.setdefault(min(nodes), []).append(region)
                self.region_of |= dict.fromkeys(nodes, region)

    def decide(self, n: int) -> None:
        """Bring node n to its place in the best placement."""
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
        region = self.region_of[n]
        p = form.inputs if form.inputs < len(found) else 0
        mine, theirs = ANY.within(found[p]), self.greedy.states[n]
        cause = recorder.demanded_by(n, form.slot(p))
        if theirs == found or region.cost >= region.greedy:
            recorder.change(n, found, "optimal", (AS_GREEDY, mine), cause)
            return
        first = min(m for c in region.choices for m in self.program.choices[c].nodes)
        gain = region.greedy - region.cost
        was = ANY.within(theirs[p]) if theirs is not None else "none"
        why = (CHEAPER, mine, problem.names[first], gain, self.model.unit, was)
        recorder.change(n, found, "optimal", why, cause)

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


def greedy(problem: Problem) -> Recorder:
    """The greedy placement of a problem, without its steps."""
    recorder = Recorder(problem)
    recorder.demands()
    engine = Repsets(problem, recorder)
    for n in range(problem.nodes):
        engine.decide(n)
        recorder.fresh()
    return recorder
