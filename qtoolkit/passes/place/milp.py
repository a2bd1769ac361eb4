"""Integer programs, row by row, for SciPy's HiGHS."""

from collections.abc import Sequence

import numpy as np


class Rows:
    """A sparse integer program under construction."""

    def __init__(self) -> None:
        self.costs: list[float] = []
        self.whole: list[bool] = []
        self.entries: tuple[list[float], list[int], list[int]] = ([], [], [])
        self.low: list[float] = []
        self.high: list[float] = []

    def variable(self, cost: float, whole: bool = False) -> int:
        """A variable between 0 and 1; its column."""
        self.costs.append(cost)
        self.whole.append(whole)
        return len(self.costs) - 1

    def at_least(
        self, terms: Sequence[tuple[int, float]], rest: float, equal: bool = False
    ) -> None:
        """Sum of coefficient · variable >= rest, or == rest."""
        row = len(self.low)
        for column, coefficient in terms:
            self.entries[0].append(coefficient)
            self.entries[1].append(row)
            self.entries[2].append(column)
        self.low.append(rest)
        self.high.append(rest if equal else np.inf)

    def solve(self, seconds: float) -> tuple[Sequence[float] | None, float]:
        """The values of least cost and a proved bound; None if no solution was found in time."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

        data, row, column = self.entries
        matrix = csr_array((data, (row, column)), shape=(len(self.low), len(self.costs)))
        found = milp(
            self.costs,
            integrality=np.array(self.whole, dtype=int),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(matrix, self.low, self.high),
            options={"time_limit": seconds, "mip_rel_gap": 0.0},
        )
        bound = found.mip_dual_bound
        proved = found.fun if found.status == 0 else bound
        return found.x, 0.0 if proved is None or not np.isfinite(proved) else float(proved)
