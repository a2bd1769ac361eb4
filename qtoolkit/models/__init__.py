"""The models one can name, and how any other model and its data come in."""

import importlib
from collections.abc import Mapping
from difflib import get_close_matches

import torch

from qtoolkit.errors import BadInput, MissingDependency, UnknownName
from qtoolkit.models.inputs import Sample, called, load_inputs
from qtoolkit.models.model import RANDOM, Model, random_samples
from qtoolkit.models.refused import refusals

__all__ = ["MODELS", "RANDOM", "Model", "Sample", "load", "load_inputs", "refusals"]

# name -> module of this package whose make() builds the Model. Torch is imported only there.
MODELS: Mapping[str, str] = {
    "efficientnet-lite0": "photographs:efficientnet_lite0",
    "digits-cnn": "digits:digits_cnn",
    "mobilenet-v2": "plain:mobilenet_v2",
    "resnet18": "plain:resnet18",
    "mlp": "plain:mlp",
    "quantize-ops": "operators:quantize_ops",
    "in-place": "small:in_place",
    "odd-channels": "small:odd_channels",
}


def load(name: str, inputs: str | None = None, preprocess: str | None = None) -> Model:
    """A model with its data, by name.

    name: one of MODELS, a 'package.module:factory' (no arguments; returns an nn.Module in eval
    mode or a Model), or the path of a .pt2 file. inputs: a folder of images, an .npz (keys = input
    names, first axis = samples, optional `labels`) or 'package.module:loader' (returns a list of
    input tuples, or such a list and labels), split into calibration and evaluation; preprocess:
    'package.module:function' from a PIL image to an array, for a folder. Without inputs a model
    that brings no data gets seeded random data, and says so.
    """
    model = _find(name)
    if inputs is not None:
        return load_inputs(model, inputs, preprocess)
    if not model.example:
        raise BadInput(
            f"{name} brings no example inputs; add --inputs, or let it return "
            "qtoolkit.models.Model(module, example)"
        )
    return model if model.calibration and model.evaluation else random_samples(model)


def _find(name: str) -> Model:
    if name in MODELS:
        module, _, factory = MODELS[name].partition(":")
        try:
            made = getattr(importlib.import_module(f"{__name__}.{module}"), factory)()
        except ModuleNotFoundError as why:
            raise MissingDependency(
                f"{name} needs the package {why.name}; python -m pip install 'qtoolkit[models]'"
            ) from why
        assert isinstance(made, Model)
        return made
    if name.endswith(".pt2"):
        return _from_program(name)
    if ":" in name:
        return _from_factory(name)
    near = get_close_matches(name, MODELS, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UnknownName(
        f"no model {name!r}: {hint}there are {', '.join(MODELS)}, 'package.module:factory' and "
        ".pt2 files"
    )


def _from_factory(name: str) -> Model:
    made = called(name)
    if isinstance(made, Model):
        return made
    if not isinstance(made, torch.nn.Module):
        raise BadInput(
            f"{name} returned {type(made).__name__}; return an nn.Module or a qtoolkit Model"
        )
    return Model(made, (), name=name)


def _from_program(name: str) -> Model:
    from qtoolkit.program import read_pt2

    program = read_pt2(name)
    if program.example_inputs is not None:
        args, kwargs = program.example_inputs
        if kwargs:
            raise BadInput(f"{name}: takes keyword inputs {sorted(kwargs)}; export it without them")
        return Model(program, tuple(args), name=name)
    raise BadInput(f"{name} holds no example inputs; save it with torch.export.save after export")
