"""A JupyterLab of its own, on a folder of notebooks, that leaves nothing behind."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chromium import wait_for

ROOT = Path(__file__).resolve().parents[2]
# No question about news at the first start, and every cell in the page, seen or not.
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "notebook-extension/tracker": {"windowingMode": "none"},
}


@contextmanager
def jupyter_lab(notebooks: Path, folder: Path) -> Iterator[str]:
    """Serve `notebooks`; gives the address of the lab, token included."""
    for name, value in SETTINGS.items():
        path = folder / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))
    runtime = folder / "runtime"
    environment = os.environ | {
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_RUNTIME_DIR": str(runtime),
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(":"),
    }
    command = (
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--port=0",
        "--ip=127.0.0.1", f"--ServerApp.root_dir={notebooks}", "--expose-app-in-browser",
    )  # fmt: skip
    with open(folder / "lab.log", "wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        told = json.loads(wait_for(runtime / f"jpserver-{process.pid}.json", 60, process))
        yield f"{told['url']}lab?token={told['token']}"
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
