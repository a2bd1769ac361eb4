"""Upstream's own tests of its Cadence kernels, run on ours."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from qtoolkit.interop.executorch import live

pytest.importorskip("torch")

ROOT = Path(__file__).parent.parent
PEER = ROOT / "tests" / "peer"
CASES = "backends/cadence/aot/tests/test_ref_implementations.py"
N_CASES = 167

needs_executorch = pytest.mark.skipif(live.available() is not None, reason=str(live.available()))


def run_upstream(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Upstream's test file in a process of its own, with the plugin and without our settings."""
    package = importlib.util.find_spec("executorch")
    assert package is not None and package.submodule_search_locations is not None
    cases = Path(next(iter(package.submodule_search_locations))) / CASES
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, "-p", "cadence_plugin", f"--rootdir={folder}", *options, str(cases)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(PEER), str(folder)])},
        capture_output=True,
        encoding="utf-8",
        timeout=600,
        check=False,
    )


@needs_executorch
@pytest.mark.slow
def test_all_cases_of_upstream_pass_and_every_call_of_an_op_of_ours_reaches_ours(
    tmp_path: Path,
) -> None:
    report = tmp_path / "report.json"
    ran = run_upstream(tmp_path, f"--cadence-report={report}")
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert f"{N_CASES} passed" in ran.stdout.splitlines()[-1]
    told = json.loads(report.read_text())
    assert told["missed"] == []
    assert len(told["ours"]) >= 56
    assert told["theirs"] == ["linalg_svd", "quantized_w8a32_gru", "slice_scatter_"]


@needs_executorch
@pytest.mark.slow
def test_the_session_fails_if_a_call_goes_past_our_kernel(tmp_path: Path) -> None:
    """With another kernel over ours, upstream's case passes and the session does not."""
    (tmp_path / "past.py").write_text(
        "import torch\n"
        "import pytest\n"
        "@pytest.hookimpl(trylast=True)\n"
        "def pytest_collection_finish():\n"
        "    global library\n"
        "    library = torch.library.Library('cadence', 'IMPL')\n"
        "    library.impl('where_Scalar', other, 'CPU', allow_override=True)\n"
        "def other(condition, self, other):\n"
        "    if condition.dtype != torch.bool:\n"
        "        raise ValueError('condition must be a bool tensor')\n"
        "    return torch.where(condition, self, other)\n"
    )
    ran = run_upstream(tmp_path, "-p", "past", "-k", "where_Scalar")
    assert ran.returncode == 1, ran.stdout[-2000:] + ran.stderr[-2000:]
    assert "1 passed" in ran.stdout and "missed: where_Scalar" in ran.stdout


@needs_executorch
@pytest.mark.slow
def test_random_arguments_give_what_upstreams_kernels_give() -> None:
    """Equal, codes and reals alike: most cases of upstream's file look at shapes alone."""
    ran = subprocess.run(
        [sys.executable, str(PEER / "cadence_random.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    told = json.loads(ran.stdout.splitlines()[-1])
    assert {name: most for name, (_, most) in told.items() if most != 0} == {}
    assert len(told) >= 52


@needs_executorch
@pytest.mark.slow
def test_the_lines_of_the_docs_register_our_kernels() -> None:
    page = (ROOT / "docs" / "cadence.md").read_text()
    lines = page.split("```python\n")[1].split("```")[0]
    code = f"""{lines}
codes = torch.tensor([[10]], dtype=torch.int8), torch.tensor([[1], [2]], dtype=torch.int8)
bias, zero = torch.zeros(2, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
many = torch.tensor([-(2**30), -(2**29)], dtype=torch.int32)
print(torch.ops.cadence.quantized_linear(*codes, bias, 0, zero, many, zero, 0, None).tolist())
print(torch.ops.cadence.quantized_depthwise_conv1d_nlc.default)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    told = ran.stdout.splitlines()[-2:]
    assert told == ["[[5, 5]]", "cadence.quantized_depthwise_conv1d_nlc.default"]
