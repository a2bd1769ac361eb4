"""Draw the pictures of README.md anew: python docs/pictures.py"""

from pathlib import Path

import matplotlib

import qtoolkit as qt
from qtoolkit.interop.executorch import examples

FOLDER = Path(__file__).parent / "images"
# Eight inches wide: 1600 pixels.
DPI = 200


def main() -> None:
    matplotlib.use("agg")
    m = qt.models.load("efficientnet-lite0")
    _, x = m.evaluation[0]
    truth = qt.run_float(m.module, x)
    traces = {
        weights: qt.compile(qt.quantize(m.module, m.example, m.calibration, weights), "numba")
        for weights in ("per-channel", "per-tensor")
    }
    placed = qt.compile(qt.quantize(m.module, m.example, m.calibration), "vulkan")
    found = {w: qt.compare(truth, qt.execute(t.result, x)) for w, t in traces.items()}
    pictures = {
        "sqnr-waterfall": qt.draw.sqnr(*found.values(), data=m.data_source),
        "graph-by-module": qt.draw.graph(
            traces["per-channel"], title="EfficientNet-Lite0 by module"
        ),
        "placement": qt.draw.placement(placed, title="EfficientNet-Lite0 placed for Vulkan"),
    }
    pair = qt.place(examples.quantized_pair(), "executorch-1.5.1")
    pictures["repsets"] = qt.draw.repsets(pair, 8)
    FOLDER.mkdir(exist_ok=True)
    for name, ax in pictures.items():
        ax.figure.savefig(FOLDER / f"{name}.png", dpi=DPI)


if __name__ == "__main__":
    main()
