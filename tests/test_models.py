"""models/: the table, the data users bring, the cache of digits-cnn."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from qtoolkit.errors import BadInput, UnknownName
from qtoolkit.models import MODELS, digits, load
from qtoolkit.models.photographs import preprocess


@pytest.mark.parametrize("name", ["mobilenet-v2", "resnet18", "mlp"])
def test_seeded_models_are_the_same_each_time_and_call_their_data_random(name: str) -> None:
    torch.manual_seed(7)
    before = torch.rand(1)
    torch.manual_seed(7)
    one, two = load(name), load(name)
    assert torch.equal(torch.rand(1), before)
    with torch.no_grad():
        assert torch.equal(one.module(*one.example), two.module(*two.example))
    assert one.data_source == "random data" and not one.module.training


def test_efficientnet_knows_the_cat_and_calibrates_without_it() -> None:
    m = load("efficientnet-lite0")
    assert m.evaluation[0][0] == "chelsea" and len(m.calibration) == 12
    cat = m.evaluation[0][1][0]
    assert not any(torch.equal(cat, x) or torch.equal(cat.flip(-1), x) for (x,) in m.calibration)
    with torch.no_grad():
        assert 281 <= int(m.module(cat).argmax()) <= 285
    assert m.labels is not None and len(m.labels) == 1000 and "cat" in m.labels[285].lower()


def test_preprocess_crops_the_centre_and_scales_to_the_contract() -> None:
    pixels = np.zeros((100, 300, 3), np.uint8)
    pixels[:, 100:200] = 255
    x = preprocess(Image.fromarray(pixels))
    assert x.shape == (3, 224, 224) and x.dtype == torch.float32
    assert x[:, 112, 112].tolist() == [1.0, 1.0, 1.0]
    assert preprocess(Image.new("L", (50, 40))).min() == pytest.approx(-127 / 128)


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean resnet18"):
        load("resnet-18")
    with pytest.raises(UnknownName, match=", ".join(MODELS)):
        load("zzz")


def test_a_damaged_cache_is_trained_again(tmp_path: Path) -> None:
    file = tmp_path / "digits.npz"
    state = digits.network().state_dict()
    digits.write(file, state)
    back = digits.read(file)
    assert back is not None and all(torch.equal(back[k], state[k]) for k in state)
    whole = file.read_bytes()
    for damaged in (b"", whole[:40], whole[:-1], whole[:50] + b"x" + whole[51:]):
        file.write_bytes(damaged)
        assert digits.read(file) is None
    assert [p.name for p in tmp_path.iterdir()] == ["digits.npz"]


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    digits.write(tmp_path / "file" / "digits.npz", digits.network().state_dict())


def test_an_npz_is_split_and_its_labels_give_held_out_pairs(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((10, 64)).astype(np.float32)
    np.savez(tmp_path / "d.npz", input=x, labels=np.arange(10))
    m = load("mlp", inputs=str(tmp_path / "d.npz"))
    assert (len(m.calibration), len(m.evaluation)) == (8, 2)
    assert [c for _, c in m.held_out] == [(8,), (9,)]
    assert np.array_equal(m.evaluation[0][1][0].numpy(), x[8:9])


def test_a_folder_of_images_needs_preprocess_unless_the_model_knows_it(tmp_path: Path) -> None:
    Image.new("RGB", (30, 20), "red").save(tmp_path / "a.png")
    (tmp_path / "notes.txt").write_text("not an image")
    m = load("efficientnet-lite0", inputs=str(tmp_path))
    assert [name for name, _ in m.evaluation] == ["a.png"] and m.data_source == str(tmp_path)
    with pytest.raises(BadInput, match="--preprocess"):
        load("mlp", inputs=str(tmp_path))
    (tmp_path / "b.jpg").write_bytes(b"broken")
    with pytest.raises(BadInput, match=r"b\.jpg: not a readable image"):
        load("efficientnet-lite0", inputs=str(tmp_path))


def test_bad_npz_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "broken.npz").write_bytes(b"no")
    with pytest.raises(BadInput, match=r"broken\.npz: not a readable"):
        load("mlp", inputs=str(tmp_path / "broken.npz"))
    np.savez(tmp_path / "few.npz", x=np.zeros((4, 64), np.float32), labels=np.zeros(3, int))
    with pytest.raises(BadInput, match="3 labels for 4 samples"):
        load("mlp", inputs=str(tmp_path / "few.npz"))


def test_a_loader_brings_samples_and_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bring.py").write_text(
        "import numpy as np\n"
        "def load(): return [np.ones((1, 64), np.float32)] * 5, [0, 1, 2, 3, 4]\n"
    )
    monkeypatch.chdir(tmp_path)
    m = load("mlp", inputs="bring:load")
    assert len(m.calibration) == 4 and [c for _, c in m.held_out] == [(4,)]
    with pytest.raises(UnknownName, match="no function nothing"):
        load("mlp", inputs="bring:nothing")
