"""cli.py: exit codes, one line for what is wrong, and our own output only."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from qtoolkit.backends import available

HERE = Path(__file__).parent


def qtoolkit(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-c",
        "import sys; from qtoolkit.cli import main; sys.exit(main())",
        *args,
    ]
    env = {**os.environ, "PYTHONPATH": str(HERE.parent), "COLUMNS": "100"}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=env, stdin=subprocess.DEVNULL
    )


@pytest.fixture(scope="module")
def factory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a module of odd models in it."""
    folder = tmp_path_factory.mktemp("mine")
    (folder / "mine.py").write_text(
        """
import torch
from qtoolkit.models import Model

class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count.add_(1)
        return self.linear(x)

class Odd(torch.nn.Module):
    def forward(self, x):
        return torch.special.erfcx(x)

def counter(): return Model(Counter().eval(), (torch.zeros(2, 4),))
def odd(): return Model(Odd().eval(), (torch.zeros(2, 4),))
def bare(): return torch.nn.Linear(4, 4).eval()
def broken(): raise RuntimeError("no weights\\nhere")
def train(): return Model(torch.nn.Sequential(torch.nn.Dropout()), (torch.zeros(2, 4),))
"""
    )
    return folder


def test_version_and_help_are_light() -> None:
    done = qtoolkit("--version")
    assert done.returncode == 0 and done.stdout.startswith("qtoolkit 0.")
    code = "import sys, qtoolkit.cli; print('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


def test_doctor_prints_json() -> None:
    assert json.loads(qtoolkit("doctor", "--json").stdout)["format"] == 1


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("efficientnet-lite",), "did you mean efficientnet-lite0?"),
        (("mlp", "--weights", "per-group"), "per-channel or per-tensor"),
        (("mlp", "--backends", "cuda"), "'cuda'"),
        (("mlp", "--notebooks", "some"), "tour, all, none"),
        (("mlp", "--inputs", "nowhere"), "nowhere"),
        (("none.pt2",), "none.pt2: no such file"),
        (("nowhere:net",), "no module nowhere"),
        (("mine:nothing",), "no function nothing"),
        (("mine:bare",), "brings no example inputs"),
        (("mine:broken",), "mine:broken failed: RuntimeError: no weights"),
        (("mine:train",), "training mode"),
        (("mine:counter",), "count"),
        (("broken.pt2",), "broken.pt2: torch cannot read"),
        (("mlp", "--inputs", "nan.npz"), "NaN"),
        (("mlp", "--inputs", "short.npz"), "float32[1, 3], the model takes float32[1, 64]"),
    ],
)
def test_bad_input_is_one_line_on_stderr_and_exit_code_two(
    args: tuple[str, ...], told: str, factory: Path
) -> None:
    (factory / "broken.pt2").write_bytes(b"PK\x03\x04 not a program")
    bad = np.zeros((5, 64), np.float32)
    bad[1, 3] = np.nan
    np.savez(factory / "nan.npz", x=bad)
    np.savez(factory / "short.npz", x=np.zeros((5, 3), np.float32))
    done = qtoolkit("explore", *args, "--out", str(factory / "out"), cwd=factory)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert told in done.stderr


def test_an_unsupported_op_is_named_and_the_rest_is_written(factory: Path) -> None:
    out = factory / "odd"
    done = qtoolkit("explore", "mine:odd", "--out", str(out), "--notebooks", "none", cwd=factory)
    assert done.returncode == 1
    assert "aten.special_erfcx.default" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    report = json.loads((out / "report.json").read_text())
    assert report["top1"]["reference"] is None and report["ops"] and (out / "report.html").exists()


def test_explore_writes_a_report_with_the_agreed_keys(factory: Path) -> None:
    np.savez(
        factory / "data.npz",
        x=np.random.default_rng(0).standard_normal((10, 64)).astype(np.float32),
        labels=np.arange(10),
    )
    out = factory / "mlp"
    done = qtoolkit(
        "explore", "mlp", "--inputs", "data.npz", "--out", str(out), "--notebooks", "none",
        cwd=factory,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    report = json.loads((out / "report.json").read_text())
    assert set(report) >= {
        "format", "model", "weights", "versions", "devices", "images", "data", "top1", "ops",
        "left_float", "transitions", "equal", "compared", "first_difference", "nodes", "also",
        "seconds",
    }  # fmt: skip
    assert report["equal"] == dict.fromkeys(available(), True)
    assert report["data"]["source"].endswith("data.npz") and report["accuracy"]
    assert "data.npz" in (out / "report.html").read_text()


def test_random_data_is_said_on_the_terminal(factory: Path) -> None:
    done = qtoolkit("explore", "mlp", "--out", str(factory / "r"), "--notebooks", "none")
    assert done.returncode == 0 and "random data" in done.stdout


def test_a_pt2_of_a_float_network_is_explored(factory: Path) -> None:
    program = torch.export.export(torch.nn.Linear(4, 4).eval(), (torch.zeros(2, 4),))
    torch.export.save(program, factory / "net.pt2")
    args = ("explore", "net.pt2", "--out", "pt2", "--notebooks", "none")
    done = qtoolkit(*args, cwd=factory)
    assert (done.returncode, done.stderr) == (0, "")
