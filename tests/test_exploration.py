"""exploration.py: the main job on a small network, and the faults it must notice."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
import torchao.quantization.pt2e.quantizer.x86_inductor_quantizer as x86
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from qtoolkit import backends
from qtoolkit.errors import UnknownName
from qtoolkit.exploration import explore, mean_sqnr_db
from qtoolkit.kernel import Bound
from qtoolkit.models import Model, load, load_inputs
from qtoolkit.models.model import random_samples


@pytest.fixture(scope="module")
def digits() -> Model:
    model = load("digits-cnn")
    return replace(model, evaluation=model.evaluation[:2])


def test_digits_lose_at_most_a_point_and_agree_to_the_bit(digits: Model) -> None:
    stages: list[str] = []
    found = explore(digits, progress=lambda stage, seconds: stages.append(stage))
    assert found.equal == {"reference": True, "numba": True, "vulkan": True}
    assert (
        found.compared["numba"].missing == found.compared["vulkan"].missing == ()
        and found.left_float == ()
    )
    assert found.accuracy is not None and found.accuracy["float"] > 0.95
    assert found.accuracy["per-channel"] >= found.accuracy["float"] - 0.01
    assert stages[0] == "capture" and set(stages) == set(found.seconds)
    ours, theirs = mean_sqnr_db(found.nodes), mean_sqnr_db(found.other_nodes)
    assert ours is not None and theirs is not None and ours > theirs


def test_one_code_changed_in_one_kernel_is_noticed_and_named(
    digits: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = "conv2d_2"
    table = backends.kernels("numba")
    counter = iter(range(10**6))

    def off_by_one(bind: Any) -> Any:
        def bound(args: Sequence[Any]) -> Bound:
            run, here = bind(args), next(counter)

            def spoiled(*tensors: Any) -> Any:
                y = run(*tensors)
                if here == 2:
                    y = y.copy()
                    y.reshape(-1)[7] += 1 if y.reshape(-1)[7] < 127 else -1
                return y

            return spoiled

        return bound

    kernels = tuple(replace(k, bind=off_by_one(k.bind)) for k in table["q8_conv2d"])
    module = backends._module("numba")
    spoiled = MappingProxyType({**table, "q8_conv2d": kernels})
    monkeypatch.setattr(module, "KERNELS", spoiled)
    found = explore(replace(digits, held_out=()), backends=("numba",))
    assert found.equal == {"reference": True, "numba": False}
    assert found.first_difference == {"backend": "numba", "node": planted, "max_steps": 1}


def test_an_op_no_backend_runs_is_told_and_the_rest_is_shown() -> None:
    class Odd(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.erfcx(self.linear(x)).cumsum(1)

    model = random_samples(Model(Odd().eval(), (torch.zeros(2, 4),), name="odd"))
    found = explore(model)
    assert found.refused is not None
    assert re.search(r"cannot run 2 nodes: %\w+ \(aten.special_erfcx.default\)", found.refused)
    assert found.images == () and found.equal == {}
    assert {f.op for f in found.left_float} >= {"aten.cumsum.default"}


def test_random_data_is_called_random() -> None:
    found = explore(load("mlp"), weights="per-tensor")
    assert found.model.data_source == "random data" and found.other == "per-channel"
    assert all(np.isfinite(n.sqnr_db) for n in found.nodes if n.sqnr_db is not None)


def test_accuracy_counts_every_sample_of_a_batch(tmp_path: Path) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = torch.nn.Linear(4, 3).eval()
    x = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
    with torch.no_grad():
        right = module(torch.from_numpy(x)).argmax(1).numpy()
    wrong = np.where(np.arange(20) % 2 == 0, right, (right + 1) % 3)
    np.savez(tmp_path / "d.npz", input=x, labels=wrong)
    model = load_inputs(Model(module, (torch.zeros(2, 4),)), str(tmp_path / "d.npz"))
    accuracy = explore(model).accuracy
    assert accuracy is not None and accuracy["float"] == 0.5


def test_a_wrong_granularity_lists_what_there_is() -> None:
    with pytest.raises(UnknownName, match="per-channel, per-tensor"):
        explore(load("mlp"), weights="per-group")


def test_a_program_quantized_by_others_is_taken_as_it_is(tmp_path: Path) -> None:
    """torchao's own x86 quantizer: uint8 activations, per-channel weights, float biases."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3), torch.nn.ReLU()
    ).eval()
    x = torch.randn(1, 3, 8, 8)
    theirs = x86.X86InductorQuantizer()
    theirs.set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(torch.export.export(net, (x,)).module(), theirs)
    prepared(x)
    path = tmp_path / "theirs.pt2"
    torch.export.save(torch.export.export(convert_pt2e(prepared), (x,)), path)
    found = explore(load(str(path)))
    assert found.weights == "imported" and found.other is None
    assert found.equal == {"reference": True, "numba": True, "vulkan": True}
    ops = found.compiled.counts()
    assert ops["q8_conv2d"] == 1, "the last conv has no quantize behind it, the first one has"
    assert "uint8" in {v.dtype.name for v in found.runs["numba"].values.values()}
    fused = next(n for n in found.nodes if n.op == "q8_conv2d")
    # Held against the conv it reads 2 dB; against the relu only rounding and clipping are left.
    assert fused.origin[-1] == "relu" and (fused.sqnr_db or 0) > 15
    (left, *_) = found.left_float
    assert left.op == "aten.conv2d.default" and "output of the graph" in left.why
