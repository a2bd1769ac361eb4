"""One loop over several threads: the results are cut into bands, each computed by one thread.

Compiled loops release the interpreter lock, so Python's threads do. Measured on two cores that
others used too: prange 4 to 8 ms a call, worse than one thread; this 1.9 times as fast as one
thread on idle cores. Every cell is computed by one thread in one way: the count cannot show.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from numba.core import config

ALONE = 2_000_000  # multiply-adds a thread must get; below, handing over costs more than it gains


def threads() -> int:
    """How many threads a loop may use: Numba's NUMBA_NUM_THREADS, by default all cores."""
    # Set when numba is imported, out of a type checker's sight.
    return int(vars(config)["NUMBA_NUM_THREADS"])


def in_bands(loop: Callable[[int, int], None], count: int, work: int, grain: int = 1) -> None:
    """Call loop(start, stop) so that the bands cover range(count).

    work: the multiply-adds of the whole. Bands start at multiples of `grain`.
    """
    if count == 0:
        return
    parts = max(1, min(threads(), work // ALONE, count // grain))
    size = -(-count // (parts * grain)) * grain
    if parts == 1 or size >= count:
        loop(0, count)
        return
    pool = _pool(parts - 1, os.getpid())
    others = [pool.submit(loop, a, min(a + size, count)) for a in range(size, count, size)]
    loop(0, size)
    for other in others:
        other.result()


@lru_cache(maxsize=4)
def _pool(workers: int, process: int) -> ThreadPoolExecutor:
    """Threads kept between calls; a forked process has none of its parent's and makes its own."""
    return ThreadPoolExecutor(workers, thread_name_prefix="qtoolkit-numba")
