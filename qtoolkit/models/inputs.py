"""Data that users bring: a folder of images, an .npz, or a function that loads it."""

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from qtoolkit.errors import BadInput, MissingDependency, UnknownName
from qtoolkit.graph import DType
from qtoolkit.models.model import Model
from qtoolkit.program.chatter import first_line

Sample = tuple[Any, ...]
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
SHOWN = 8  # evaluation inputs that are run node by node; accuracy uses all of them


def load_inputs(model: Model, source: str, preprocess: str | None = None) -> Model:
    """The model with calibration and evaluation data from `source`.

    The first four fifths of the samples calibrate, the rest evaluate; a single sample does both.
    Raises BadInput naming the file and what is wrong with it.
    """
    names, samples, labels = _read(model, source, preprocess)
    if not samples:
        raise BadInput(f"{source} holds no samples; give at least one")
    example = model.example or samples[0]
    for name, sample in zip(names, samples, strict=True):
        _check(f"{source}, {name}", sample, example)
    cut = max(1, len(samples) * 4 // 5)
    tail = slice(cut, None) if cut < len(samples) else slice(0, None)
    classes = None if labels is None else _classes(source, labels, samples, example)
    held_out = () if classes is None else tuple(zip(samples[tail], classes[tail], strict=True))
    return replace(
        model,
        example=example,
        calibration=tuple(samples[:cut]),
        evaluation=tuple(zip(names[tail], samples[tail], strict=True))[:SHOWN],
        held_out=held_out,
        data_source=source,
    )


def _classes(
    source: str, labels: Sequence[Any], samples: Sequence[Sample], example: Sample
) -> list[tuple[int, ...]]:
    """The labels of each batch: one whole number per sample."""
    batch = example[0].shape[0] if isinstance(example[0], torch.Tensor) and example[0].dim() else 1
    found = np.asarray(labels)
    if found.dtype.kind not in "iu":
        raise BadInput(f"{source}: labels are {found.dtype}; give one whole number per sample")
    if found.shape != (batch * len(samples),):
        raise BadInput(
            f"{source}: {found.size} labels for {batch * len(samples)} samples; give one each"
        )
    return [tuple(int(c) for c in part) for part in found.reshape(len(samples), batch)]


def named(name: str) -> Callable[..., Any]:
    """The function that 'package.module:function' names; the current folder is searched too."""
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise UnknownName(f"{name!r} is not 'package.module:function'")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as why:
        if why.name is not None and not f"{module_name}.".startswith(f"{why.name}."):
            raise MissingDependency(
                f"{module_name} needs the package {why.name}, which is not installed"
            ) from why
        raise UnknownName(
            f"{name}: no module {module_name} here or on the path; run where it can be imported"
        ) from why
    found = getattr(module, function_name, None)
    if not callable(found):
        raise UnknownName(f"{name}: {module_name} has no function {function_name}")
    function: Callable[..., Any] = found
    return function


def called(name: str, *args: Any) -> Any:
    """What the function that `name` names returns. Raises BadInput, in one line, if it fails."""
    function = named(name)
    try:
        return function(*args)
    # It is the user's code, and may raise anything; the traceback stays attached.
    except Exception as why:
        raise BadInput(f"{name} failed: {first_line(why)}") from why


def _read(
    model: Model, source: str, preprocess: str | None
) -> tuple[list[str], list[Sample], Sequence[Any] | None]:
    path = Path(source)
    if path.is_dir():
        return _read_folder(model, path, preprocess)
    if path.suffix == ".npz":
        return _read_npz(model, path)
    if ":" in source:
        return _read_loader(source)
    raise BadInput(f"--inputs {source}: neither a folder, nor an .npz, nor 'package.module:loader'")


def _read_folder(
    model: Model, folder: Path, preprocess: str | None
) -> tuple[list[str], list[Sample], None]:
    from PIL import Image, UnidentifiedImageError

    change = partial(called, preprocess) if preprocess else model.preprocess
    if change is None:
        raise BadInput(
            f"{folder}: {model.name} does not say how to prepare images; add "
            "--preprocess package.module:function (from a PIL image to an array)"
        )
    names: list[str] = []
    samples: list[Sample] = []
    for file in sorted(folder.iterdir()):
        if file.suffix.lower() not in IMAGES:
            continue
        try:
            with Image.open(file) as image:
                x = torch.as_tensor(np.asarray(change(image)))
        except (UnidentifiedImageError, OSError) as why:
            raise BadInput(f"{file}: not a readable image ({why})") from why
        batched = model.example and x.dim() == model.example[0].dim() - 1
        samples.append((x.unsqueeze(0) if batched or not model.example else x,))
        names.append(file.name)
    if not names:
        raise BadInput(f"{folder} holds no images ({', '.join(IMAGES)})")
    return names, samples, None


def _read_npz(model: Model, path: Path) -> tuple[list[str], list[Sample], Sequence[Any] | None]:
    try:
        with np.load(path, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
    except (OSError, ValueError, EOFError, KeyError) as why:
        raise BadInput(f"{path}: not a readable .npz ({why})") from why
    labels = arrays.pop("labels", None)
    if not arrays:
        raise BadInput(f"{path} holds no inputs; its keys are input names, beside `labels`")
    ordered = _ordered(model, path, arrays)
    for name, array in arrays.items():
        if array.dtype.kind not in "fiub":
            raise BadInput(f"{path}: {name} holds {array.dtype}, not numbers")
    counts = {len(a) if a.ndim else 0 for a in ordered}
    if len(counts) != 1:
        raise BadInput(f"{path}: its arrays hold different numbers of samples {sorted(counts)}")
    batch = model.example[0].shape[0] if model.example and model.example[0].dim() else 1
    starts = range(0, counts.pop(), batch)
    samples = [tuple(torch.from_numpy(a[i : i + batch].copy()) for a in ordered) for i in starts]
    return [f"sample {i}" for i in starts], samples, labels


def _ordered(model: Model, path: Path, arrays: dict[str, Any]) -> list[Any]:
    """The arrays in the order of forward's arguments: by name, or the only one there is."""
    if len(arrays) == 1:
        return list(arrays.values())
    from qtoolkit.program import input_names

    wanted = input_names(model.module)
    if set(wanted) != set(arrays):
        raise BadInput(
            f"{path} holds {', '.join(sorted(arrays))}; {model.name} takes {', '.join(wanted)}"
        )
    return [arrays[name] for name in wanted]


def _read_loader(source: str) -> tuple[list[str], list[Sample], Sequence[Any] | None]:
    found = called(source)
    labels = None
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], list):
        found, labels = found
    samples = [s if isinstance(s, tuple) else (s,) for s in found]
    tensors = [tuple(map(_tensor, s)) for s in samples]
    return [f"sample {i}" for i in range(len(tensors))], tensors, labels


def _tensor(value: Any) -> Any:
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def _check(where: str, sample: Sample, example: Sample) -> None:
    if len(sample) != len(example):
        raise BadInput(f"{where}: {len(sample)} inputs, the model takes {len(example)}")
    for i, (got, wanted) in enumerate(zip(sample, example, strict=True)):
        if not isinstance(wanted, torch.Tensor):
            continue
        if not isinstance(got, torch.Tensor) or (got.shape, got.dtype) != (
            wanted.shape,
            wanted.dtype,
        ):
            told = f"{_dtype(got)}{list(getattr(got, 'shape', ()))}"
            raise BadInput(
                f"{where}: input {i} is {told}, the model takes "
                f"{_dtype(wanted)}{list(wanted.shape)}; change --preprocess or the data"
            )


def _dtype(value: Any) -> str:
    name = str(getattr(value, "dtype", type(value).__name__)).removeprefix("torch.")
    return DType(name).value if name in set(DType) else name
