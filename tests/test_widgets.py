"""Widgets do what their menus say, and each leaves a static twin (G14)."""

from pathlib import Path

import ipywidgets
import pytest

import qtoolkit as qt
from qtoolkit.errors import UnknownName
from qtoolkit.interop.executorch import examples
from qtoolkit.widgets import Live, preference, stepper, switches

TABLE = "executorch-1.5.1"
NOW = qt.PlaceRules.executorch()
PNG = b"\x89PNG"


def parts(live: Live, kind: type) -> list[object]:
    return [w for w in live.widget.children if isinstance(w, kind)]


@pytest.fixture(scope="module")
def placed() -> qt.Placement:
    return qt.place(examples.quantized_pair(), TABLE)


def test_the_slider_redraws_the_step(placed: qt.Placement) -> None:
    live = stepper(placed, 8)
    (slider,), (image,) = parts(live, ipywidgets.IntSlider), parts(live, ipywidgets.Image)
    before = bytes(image.value)
    assert before == live.picture and before.startswith(PNG)
    slider.value = 3
    after = bytes(image.value)
    assert after != before and after.startswith(PNG)
    assert (slider.min, slider.max) == (0, len(placed.trace.steps))


def test_a_widget_shows_its_static_twin_first(
    placed: qt.Placement, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[object] = []
    monkeypatch.setattr("IPython.display.display", lambda what, **kind: shown.append(what))
    live = stepper(placed, 8)
    live._ipython_display_()
    twin, widget = shown
    assert twin == live._repr_mimebundle_() and widget is live.widget
    assert twin["image/png"].startswith("iVBOR")
    assert "step 8 of 11: readers %conv" in twin["text/plain"]


def test_switches_place_again_by_the_menus() -> None:
    live = switches(examples.quantized_pair(), TABLE, NOW, {"constrain_outputs": "never"})
    assert "before: greedy by executorch-1.5.1: 0 transitions" in live.text
    assert "after: greedy by executorch-1.5.1: 2 transitions" in live.text
    menus = {m.description: m for m in parts(live, ipywidgets.Dropdown)}
    (told,) = parts(live, ipywidgets.HTML)
    assert menus["constrain_outputs"].value == "never" and "2 transitions" in told.value
    menus["constrain_outputs"].value = "always"
    assert "2 transitions" not in told.value


def test_a_preference_is_edited_and_everything_placed_again() -> None:
    graph = examples.convolution_then_linears()
    live = preference(graph, "add_2", TABLE)
    (menu,), (told,) = parts(live, ipywidgets.Dropdown), parts(live, ipywidgets.HTML)
    assert str(menu.value) == "texture_3d/height" and "as stated: greedy" in live.text
    costly = told.value
    menu.value = next(r for text, r in menu.options if text == "texture_3d/width")
    assert "1 transition, 524,288 bytes" in told.value and told.value != costly


def test_a_node_without_a_choice_is_refused() -> None:
    with pytest.raises(UnknownName, match="%conv has no choice"):
        preference(examples.convolution_then_linears(), "conv", TABLE)
    with pytest.raises(UnknownName, match="no node %nothing"):
        preference(examples.convolution_then_linears(), "nothing", TABLE)


def test_widgets_are_named_by_the_face() -> None:
    assert qt.widgets.stepper is stepper
    assert "ipywidgets" in Path(qt.widgets.__file__).read_text()
