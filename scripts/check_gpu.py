"""Hold a Vulkan device against the reference: every shader in every representation, and networks.

    python scripts/check_gpu.py [--device NAME] [--validation] [NETWORK.qtgraph INPUT.npy]...

A network is a q/dq graph of `qtoolkit.save`, its input one array. Prints what
ran, ends with 1 if anything differs. Needs no torch and no shader compiler: see docs/gpu.md.
"""

import argparse
import sys
from datetime import date
from pathlib import Path
from time import perf_counter

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from test_vulkan_conformance import BY_SHADERS, WITH_FEATURES, accepting, check

import qtoolkit as qt
from qtoolkit.backends.vulkan import Device, opened
from qtoolkit.execution import load
from qtoolkit.ops import OPS

STORAGES = ("mixed", "buffer", "texture")


def conform(device: Device, ops: tuple[str, ...]) -> bool:
    """Every op of `ops` on a device; prints a line each and tells whether all are equal."""
    right = True
    for op in ops:
        start, ran, faults = perf_counter(), 0, []
        for example in OPS[op].examples():
            for kernel in accepting(op, example):
                try:
                    ran += check(device, kernel, OPS[op], example)
                except AssertionError as wrong:
                    faults.append(f"{kernel.name}, {example.label!r}: {wrong}")
        took = perf_counter() - start
        print(f"  {op:<36}{ran:6} combinations  {took:6.1f} s  {len(faults)} differ", flush=True)
        for fault in faults[:3]:
            print(f"    {fault}")
        right &= not faults
    return right


def network(path: str, x: np.ndarray, device: str | None) -> bool:
    """A network in every storage mode against the reference, at every node."""
    graph, right = qt.load(path), True
    truth = qt.execute(qt.compile(graph, backend="reference").result, x)
    for storage in STORAGES:
        trace = qt.compile(graph, backend="vulkan", storage=storage, device=device)
        runner = load(trace.result, device=device)
        runner(x)
        start = perf_counter()
        run = runner(x)
        took = perf_counter() - start
        found = qt.compare(truth, run)
        on_device = sum(s for n, s in run.seconds.items() if ":host" not in (kernel_of(trace, n)))
        verdict = "equal" if found.equal else f"differs first at %{found.first_difference.name}"
        print(
            f"  {Path(path).stem}, {storage}: {verdict} over {len(found.rows)} values, "
            f"{found.elements} elements, {len(found.missing)} not compared; "
            f"shaders {1e3 * on_device:.2f} ms, run with all values read back {1e3 * took:.1f} ms",
            flush=True,
        )
        runner.close()
        right &= found.equal and not found.missing
    return right


def kernel_of(trace: qt.Trace, name: str) -> str:
    """The kernel of a node, '' for none."""
    return trace.result[name].kernel or ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device")
    parser.add_argument("--validation", action="store_true")
    parser.add_argument("networks", nargs="*", help="pairs of NETWORK.qtgraph and INPUT.npy")
    asked = parser.parse_args()
    right = True
    with Device(asked.device, validation=asked.validation) as device:
        print(f"{date.today()}: {device}")
        print(f"  {device.limits}, features: {', '.join(sorted(device.features))}")
        print("every shader, example and representation:")
        right &= conform(device, BY_SHADERS)
        print(f"  {len(device.pipelines.made)} pipelines, {len(device.messages)} messages")
        for message in device.messages[:5]:
            print(f"    {message}")
        right &= not device.messages
    with Device(asked.device, validation=asked.validation, plain=True) as device:
        print("packed words alone, no optional feature used:")
        right &= conform(device, WITH_FEATURES) and not device.messages
    for path, x in zip(asked.networks[::2], asked.networks[1::2], strict=True):
        right &= network(path, np.load(x), asked.device)
    opened(asked.device).close()
    print("all equal" if right else "NOT all equal")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
