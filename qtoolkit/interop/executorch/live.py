"""ExecuTorch's own Vulkan placement, run in a process of its own: a peer to compare with.

Imports neither torch nor executorch. A call starts one process, which takes some ten seconds to
import executorch: hand it many graphs at once.
"""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from qtoolkit.errors import BadInput, MissingDependency, PlacementError

PIP = "python -m pip install 'qtoolkit[executorch]'"

SCRIPT = Path(__file__).with_name("peer_script.py")


def available() -> str | None:
    """Say why the peer cannot run here; None if this interpreter finds executorch."""
    if importlib.util.find_spec("executorch") is None:
        return f"the Python package executorch is not installed; run: {PIP}"
    return None


def place(
    graphs: Sequence[Mapping[str, Any]], repeat: int = 1, timeout_s: float = 600
) -> list[dict[str, Any]]:
    """Place recorded graphs ({"texture_limits", "force_fp16", "pre"}); one answer each, in order.

    An answer is {"post", "transitions", "tag_seconds"} in the recorded form, or {"error"} with what
    upstream raised. tag_seconds is the best of `repeat` runs of the pass alone, in seconds.
    Raises MissingDependency without executorch, PlacementError if the process fails or takes longer
    than timeout_s seconds.
    """
    wanted = ("texture_limits", "force_fp16", "pre")
    request = {
        "mode": "place",
        "graphs": [{key: graph[key] for key in wanted} for graph in graphs],
        "repeat": repeat,
    }
    answers: list[dict[str, Any]] = _ask(request, timeout_s)
    return answers


def lower(
    path: str | Path,
    texture_limits: tuple[int, int, int] | None = None,
    force_fp16: bool = False,
    timeout_s: float = 600,
) -> dict[str, Any]:
    """Lower an exported program (.pt2) with upstream's partitioner and passes; return a recording.

    texture_limits are (w, h, d) in texels, None for upstream's own. The recording has the form of
    tests/peer/placement/*.json, save that an undelegated op is {"target", "name", "reason"}, and
    that a node whose readers fx does not hold in graph order names them under "users".
    Raises BadInput if there is no such file, MissingDependency and PlacementError as `place` does.
    """
    file = Path(path).resolve()
    if not file.is_file():
        raise BadInput(f"{path}: no such file; torch.export.save writes one")
    request = {
        "mode": "lower",
        "program": str(file),
        "texture_limits": texture_limits,
        "force_fp16": force_fp16,
    }
    recording: dict[str, Any] = _ask(request, timeout_s)
    return recording


def _ask(request: Mapping[str, Any], timeout_s: float) -> Any:
    missing = available()
    if missing is not None:
        raise MissingDependency(missing)
    # -P: the script's folder must not stand before the installed packages.
    command = [sys.executable, "-P", str(SCRIPT)]
    try:
        ran = subprocess.run(
            command,
            input=json.dumps(request),
            capture_output=True,
            encoding="utf-8",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PlacementError(
            f"executorch: no answer within {timeout_s:g} s; ask for fewer graphs at a time, or "
            "give timeout_s"
        ) from None
    if ran.returncode != 0:
        last = (ran.stderr.strip() or "nothing on stderr").splitlines()[-1]
        raise PlacementError(f"executorch: the process ended with {ran.returncode}: {last}")
    return json.loads(ran.stdout)
