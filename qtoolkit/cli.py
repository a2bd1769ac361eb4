"""The `qtoolkit` command: doctor, explore, place, coverage, schemas, bench and lab."""

import importlib.util
import json
import logging
import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter, sleep
from typing import Annotated, Any

import typer

from qtoolkit import __version__
from qtoolkit.errors import BadInput, GateFailed, MissingDependency, QtoolkitError, UnknownName

# Click's ClickException, or that of typer's own copy of Click: typer exports only its children.
UsageError: Any = typer.BadParameter.__mro__[2]
WEIGHTS = ("per-channel", "per-tensor")
STORAGES = ("mixed", "buffer", "texture")
INTERRUPTED = 130
SECONDS_TO_END = 3

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line. Returns 0, 1 for a failed gate, 2 for bad input, 130 for Ctrl-C.

    An error is one line on stderr; a traceback is a fault of ours.
    """
    _own_output_only()
    try:
        return app(args=arguments, prog_name="qtoolkit", standalone_mode=False) or 0
    except UsageError as why:
        return _failed(f"{why.format_message().rstrip('.')}; see {_help_of(why)}", 2)
    except GateFailed as why:
        return _failed(str(why), 1)
    except QtoolkitError as why:
        return _failed(str(why), 2)
    except (KeyboardInterrupt, typer.Abort):
        return _failed("interrupted", INTERRUPTED)


def _failed(why: str, code: int) -> int:
    typer.echo(f"qtoolkit: {' '.join(why.split())}", err=True)
    return code


def _help_of(why: Any) -> str:
    return f"{why.ctx.command_path if why.ctx else 'qtoolkit'} --help"


def _own_output_only() -> None:
    """Keep foreign warnings and log lines below ERROR off the terminal; ours become notes.

    Warnings are left alone where the user said with -W or PYTHONWARNINGS what to do with them.
    """
    logging.disable(logging.WARNING)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if not sys.warnoptions:
        warnings.simplefilter("ignore")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"qtoolkit {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def qtoolkit(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """See, run and compare what a quantizing compiler does to a network, to the bit."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Show versions, CPU and Vulkan devices, what is missing, and the command that mends it."""
    from qtoolkit.doctor import examine

    found = examine()
    typer.echo(json.dumps(found.to_json(), indent=1) if as_json else str(found))


@app.command()
def explore(
    model: Annotated[
        str,
        typer.Argument(help="A model of the table, a .pt2 file, or package.module:factory."),
    ],
    weights: Annotated[
        str, typer.Option(help="Granularity of the weights: per-channel or per-tensor.")
    ] = "per-channel",
    backends: Annotated[
        str | None,
        typer.Option(
            help="Backends to run, separated by commas; reference always runs  "
            "[default: all that can run here]"
        ),
    ] = None,
    storage: Annotated[
        str, typer.Option(help="Where vulkan keeps tensors: mixed, buffer or texture.")
    ] = "mixed",
    device: Annotated[
        str | None,
        typer.Option(help="The Vulkan device, by index or part of its name  [default: the best]"),
    ] = None,
    notebooks: Annotated[
        str, typer.Option(help="Notebooks to run and keep: tour, all or none.")
    ] = "tour",
    out: Annotated[
        Path | None, typer.Option(help="Folder for the report  [default: explore-MODEL]")
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|FILE.npz|LOADER",
            help="Calibration and evaluation data: images, arrays, or package.module:loader.",
        ),
    ] = None,
    preprocess: Annotated[
        str | None,
        typer.Option(
            metavar="FUNCTION", help="package.module:function, from an image of DIR to an input."
        ),
    ] = None,
) -> None:
    """Quantize a model, run it on every backend, compare node by node, and write a report."""
    if weights not in WEIGHTS:
        raise UnknownName(f"--weights {weights!r}; choose {' or '.join(WEIGHTS)}")
    if storage not in STORAGES:
        raise UnknownName(f"--storage {storage!r}; choose {', '.join(STORAGES)}")
    names = None if backends is None else _backends(backends)
    folder = _folder(out or Path(f"explore-{_slug(model)}"))
    typer.echo(f"qtoolkit {__version__} explores {model}")
    with _stage("load model"):
        from qtoolkit import exploration, models, report

        asked = report.chosen(notebooks)
        report.require(asked)
        chosen = models.load(model, inputs=inputs, preprocess=preprocess)
    found = exploration.explore(
        chosen, weights, names, progress=_told, storage=storage, device=device
    )
    for backend, why in found.unavailable.items():
        typer.echo(f"qtoolkit: going on without {backend}: {' '.join(why.split())}", err=True)
    with _stage("report"):
        written = report.write_report(found, folder)
    given = {"model": model, "weights": weights, "backends": list(found.backends)}
    optional = {"inputs": inputs, "preprocess": preprocess}
    if "vulkan" in found.backends:
        optional |= {"storage": storage, "device": device}
    given |= {k: v for k, v in optional.items() if v}
    ran = report.run_notebooks(asked, folder, given, progress=_told)
    typer.echo(f"\n{report.table(found)}\n")
    for path in (written.html, *(each.path for each in ran)):
        typer.echo(f"wrote {path}")
    wanted = (*(names or ()), *(["vulkan"] if device is not None else []))
    lacking = (f"{b} was asked for: {found.unavailable[b]}" for b in dict.fromkeys(wanted)
               if b in found.unavailable)  # fmt: skip
    reasons = (*report.failures(found), *lacking, *(e.failure for e in ran if e.failure))
    if reasons:
        raise GateFailed("; ".join(reasons))


def _told(stage: str, seconds: float) -> None:
    typer.echo(f"  {stage:<32}{seconds:7.1f} s")


@contextmanager
def _stage(name: str) -> Iterator[None]:
    start = perf_counter()
    yield
    _told(name, perf_counter() - start)


def _backends(listed: str) -> tuple[str, ...]:
    """The backends of --backends, reference first, each once."""
    from qtoolkit.backends import BACKENDS

    names = [name.strip() for name in listed.split(",") if name.strip()]
    for name in names:
        if name not in BACKENDS:
            raise UnknownName(f"--backends {name!r}; choose among {', '.join(BACKENDS)}")
    return tuple(dict.fromkeys(("reference", *names)))


def _slug(model: str) -> str:
    """A folder name for a model: of a path its stem, of module:factory both parts."""
    return re.sub(r"[^\w.-]+", "-", Path(model).name.removesuffix(".pt2")).strip("-.") or "model"


def _folder(out: Path) -> Path:
    """The folder of the report, not made yet. Raises BadInput if it could not hold files."""
    parent = out.absolute().parent
    if not parent.is_dir():
        raise BadInput(f"--out {out}: there is no folder {parent}; make it first")
    if out.exists() and not out.is_dir():
        raise BadInput(f"--out {out}: a file of that name is in the way; name a folder")
    if not os.access(out if out.exists() else parent, os.W_OK):
        raise BadInput(f"--out {out}: not writable; choose another folder")
    return out


@app.command()
def place(
    what: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|FILE",
            help="A model of the table, a .pt2 or .qtgraph file, or a recorded run (.json).",
        ),
    ],
    eyes: Annotated[
        str | None,
        typer.Option(
            "--as",
            help="Place as executorch does (its lowering, table and rules) or as qtoolkit  "
            "[default: executorch for a recorded run, else qtoolkit]",
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="qtoolkit, executorch-1.5.1, executorch-0dd42c465d or executorch-pr12616.",
        ),
    ] = None,
    policy: Annotated[str, typer.Option(help="greedy, or optimal: the least cost.")] = "greedy",
    rules: Annotated[
        str, typer.Option(metavar="K=V,…", help="Rules to change, e.g. budget=none,search=…")
    ] = "",
    why: Annotated[
        str | None,
        typer.Option(metavar="NODE[:OPERAND]", help="Show what fixed a node (-1: its result)."),
    ] = None,
    storage: Annotated[
        str, typer.Option(help="Keep to mixed, buffer or texture as far as possible.")
    ] = "mixed",
    device: Annotated[
        str | None, typer.Option(help="The Vulkan device whose limits and measured costs count.")
    ] = None,
    cost: Annotated[
        str,
        typer.Option(
            metavar="default|measured|FILE",
            help="The cost model: bytes, or what `qtoolkit bench transitions` measured.",
        ),
    ] = "default",
    seconds: Annotated[
        float, typer.Option(help="How long to look for the optimal placement.")
    ] = 30.0,
    weights: Annotated[
        str, typer.Option(help="Granularity of a model's weights: per-channel or per-tensor.")
    ] = "per-channel",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Show where each tensor lies, why, which copies that needs, and what it costs."""
    if weights not in WEIGHTS:
        raise UnknownName(f"--weights {weights!r}; choose {' or '.join(WEIGHTS)}")
    if storage not in STORAGES:
        raise UnknownName(f"--storage {storage!r}; choose {', '.join(STORAGES)}")
    from qtoolkit.placement.job import Asked, place_job

    asked = Asked(what, eyes, table, policy, rules, why, storage, device, cost, seconds, weights)
    found = place_job(asked)
    typer.echo(json.dumps(found.to_json(), indent=1) if as_json else str(found))


@app.command()
def coverage(
    what: Annotated[
        str, typer.Argument(metavar="MODEL|FILE", help="A model, or a .pt2 or .qtgraph file.")
    ],
    target: Annotated[
        str,
        typer.Option(
            help="Lower to reference, numba, vulkan, or a Cadence core: generic, hifi, vision, tie."
        ),
    ] = "numba",
    rules: Annotated[
        str, typer.Option(metavar="K=V,…", help="Fusion rules to change, e.g. per_channel=off")
    ] = "",
    stage: Annotated[str, typer.Option(help="After quantize, fuse or lower.")] = "lower",
    weights: Annotated[
        str, typer.Option(help="Granularity of a model's weights: per-channel or per-tensor.")
    ] = "per-channel",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Show what is quantized, at which granularity, by which kernel, and why the rest is not."""
    if weights not in WEIGHTS:
        raise UnknownName(f"--weights {weights!r}; choose {' or '.join(WEIGHTS)}")
    from qtoolkit.coverage import cover
    from qtoolkit.placement.sources import read_graph

    found = cover(read_graph(what, weights), target, rules, stage)
    typer.echo(json.dumps(found.to_json(), indent=1) if as_json else str(found))


@app.command()
def schemas(
    what: Annotated[
        str, typer.Argument(metavar="MODEL|FILE", help="A model, or a .pt2 or .qtgraph file.")
    ],
    target: Annotated[str, typer.Option(help="generic, hifi, vision or tie.")] = "generic",
    rules: Annotated[
        str, typer.Option(metavar="K=V,…", help="Rules of fuse and lower, e.g. im2row=on")
    ] = "",
    weights: Annotated[
        str, typer.Option(help="Granularity of a model's weights: per-channel or per-tensor.")
    ] = "per-channel",
    as_yaml: Annotated[
        bool, typer.Option("--yaml", help="Print entries of a custom_ops.yaml.")
    ] = False,
) -> None:
    """List every op and overload of the Cadence family that a program needs."""
    from qtoolkit import pipeline
    from qtoolkit.backends import CADENCE
    from qtoolkit.backends.cadence.schemas import needed
    from qtoolkit.passes.rules import FuseRules
    from qtoolkit.placement.sources import read_graph

    if weights not in WEIGHTS:
        raise UnknownName(f"--weights {weights!r}; choose {' or '.join(WEIGHTS)}")
    if target not in CADENCE:
        raise UnknownName(f"--target {target!r}; choose one of {', '.join(CADENCE)}")
    fusing = FuseRules.parse(rules)
    found = needed(pipeline.compile(read_graph(what, weights), target, fusing=fusing).result)
    typer.echo(found.to_yaml() if as_yaml else str(found))


@app.command()
def bench(
    suite: Annotated[str, typer.Argument(metavar="SUITE", help="transitions")],
    device: Annotated[
        str | None,
        typer.Option(help="The Vulkan device, by index or part of its name  [default: the best]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Measure what copies and operations cost on the present device, and keep the result."""
    if suite != "transitions":
        raise UnknownName(f"suite {suite!r}; there is transitions")
    from qtoolkit import bench as benchmark

    model = benchmark.measure(device)
    path = benchmark.store(model)
    told = json.dumps(model.to_json(), indent=1) if as_json else benchmark.table(model).to_string()
    typer.echo(told)
    typer.echo(f"{model.name}: wrote {path}", err=as_json)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def lab(context: typer.Context) -> None:
    """Open JupyterLab on the notebooks; further options go to it, e.g. --no-browser.

    An installed qtoolkit copies its notebooks to ./qtoolkit-notebooks; what is there stays.
    """
    if importlib.util.find_spec("jupyterlab") is None:
        raise MissingDependency(
            "jupyterlab is not installed; run: python -m pip install 'qtoolkit[notebook]'"
        )
    folder = _notebooks()
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={folder}", "-y"]
    command.append("--ServerApp.log_level=ERROR")
    if os.geteuid() == 0:  # Jupyter asks root for this; its token guards the server all the same.
        command.append("--allow-root")
    raise typer.Exit(_serve([*command, *context.args], folder))


def _serve(command: Sequence[str], folder: Path) -> int:
    """Run a Jupyter server until it ends or Ctrl-C does it; the exit code."""
    from jupyter_server.serverapp import list_running_servers

    server = subprocess.Popen(command)
    try:
        while server.poll() is None:
            mine = [s for s in list_running_servers() if s["pid"] == server.pid]
            if mine:
                address = f"{mine[0]['url']}lab?token={mine[0]['token']}"
                typer.echo(f"JupyterLab shows {folder} at {address} (Ctrl-C ends it)")
                break
            sleep(0.2)
        return server.wait()
    except KeyboardInterrupt:
        server.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            server.wait(SECONDS_TO_END)
        server.terminate()
        raise


def _notebooks() -> Path:
    """The notebooks of the checkout, or a copy of the installed ones that may be written to."""
    from qtoolkit.resources import checkout, shipped

    source = shipped("notebooks")
    if checkout() is not None:
        return source
    folder = Path.cwd() / "qtoolkit-notebooks"
    try:
        folder.mkdir(exist_ok=True)
        for path in source.glob("*.ipynb"):
            if not (folder / path.name).exists():
                (folder / path.name).write_bytes(path.read_bytes())
    except OSError as why:
        raise BadInput(f"{folder}: {why.strerror}; start lab in a folder of yours") from why
    return folder


if __name__ == "__main__":
    sys.exit(main())
