"""Widgets do what their controls say, and each leaves a static twin (G14)."""

import os
from pathlib import Path
from typing import Any

import ipywidgets
import nbformat
import papermill
import pytest
from nbconvert import HTMLExporter

import qtoolkit as qt
from qtoolkit.errors import UnknownName
from qtoolkit.interop.executorch import examples
from qtoolkit.passes.rules import CHOICES
from qtoolkit.widgets import Live, preference, stepper, switches

ROOT = Path(__file__).resolve().parents[1]
TABLE = "executorch-1.5.1"
NOW = qt.PlaceRules.executorch()
PNG = b"\x89PNG"


class Shown:
    """A frontend: what was displayed, and how it was redrawn."""

    def __init__(self) -> None:
        self.first: list[Any] = []
        self.redrawn: list[Any] = []

    def display(self, what: Any, **kind: Any) -> "Shown":
        self.first.append(what)
        return self

    def update(self, what: Any, **kind: Any) -> None:
        self.redrawn.append(what)


@pytest.fixture
def frontend(monkeypatch: pytest.MonkeyPatch) -> Shown:
    shown = Shown()
    monkeypatch.setattr("IPython.display.display", shown.display)
    return shown


@pytest.fixture(scope="module")
def placed() -> qt.Placement:
    return qt.place(examples.quantized_pair(), TABLE)


def control(live: Live, name: str) -> Any:
    return next(c for c in live.controls if c.description == name)


def test_a_widget_shows_its_controls_and_a_static_twin(
    placed: qt.Placement, frontend: Shown
) -> None:
    stepper(placed, 8)._ipython_display_()
    controls, picture, table = frontend.first
    assert isinstance(controls, ipywidgets.Widget)
    assert picture["image/png"].startswith("iVBOR")
    assert "after 8 of 11 steps: 7. readers %conv" in picture["text/plain"]
    assert "<td style='text-align:left'>readers</td>" in table["text/html"]


def test_moving_the_slider_redraws_picture_and_table(placed: qt.Placement, frontend: Shown) -> None:
    live = stepper(placed, 8)
    live._ipython_display_()
    slider = control(live, "steps taken")
    assert (slider.min, slider.max, slider.value) == (0, len(placed.trace.steps), 8)
    slider.value = 5
    picture, table = frontend.redrawn
    assert picture["image/png"] != frontend.first[1]["image/png"]
    assert placed.trace.steps[4].reason in table["text/plain"]


def test_the_table_of_a_step_names_its_cause(placed: qt.Placement) -> None:
    table = stepper(placed, 8).twin().table
    assert table.index("%pointwise") < table.index("%conv")
    assert "<td" not in stepper(placed, 0).twin().table


def test_a_slider_beyond_the_steps_is_refused(placed: qt.Placement) -> None:
    with pytest.raises(UnknownName, match=r"step 99: the placement has steps 0\.\.11"):
        stepper(placed, 99)


def test_switches_place_again_by_the_menus(frontend: Shown) -> None:
    live = switches(examples.quantized_pair(), TABLE, NOW, constrain_outputs="never")
    live._ipython_display_()
    told = live.twin().text
    assert "before: greedy by executorch-1.5.1: 0 transitions" in told
    assert "constrain_outputs=never: greedy by executorch-1.5.1: 2 transitions" in told
    menu = control(live, "constrain_outputs")
    assert menu.value == "never"
    menu.value = "always"
    assert "no switch moved: greedy by executorch-1.5.1: 0" in frontend.redrawn[-1]["text/plain"]


def test_there_is_a_menu_for_every_switch() -> None:
    live = switches(examples.quantized_pair(), TABLE)
    assert {c.description for c in live.controls} == set(qt.PlaceRules.__dataclass_fields__)
    assert set(CHOICES) < set(qt.PlaceRules.__dataclass_fields__)
    odd = switches(examples.quantized_pair(), TABLE, qt.PlaceRules(budget=7))
    assert control(odd, "budget").value == 7


def test_every_choice_of_every_menu_is_placed_or_refused_in_words() -> None:
    live = switches(examples.quantized_pair(), TABLE)
    for menu in live.controls:
        first = menu.value
        for _, value in menu.options:
            menu.value = value
            assert live.twin().picture.startswith(PNG)
        menu.value = first


def test_a_switch_that_is_not_there_is_refused() -> None:
    with pytest.raises(UnknownName, match="switch 'sharing'; the switches are engine"):
        switches(examples.quantized_pair(), TABLE, sharing=False)
    with pytest.raises(UnknownName, match="search='sideways'"):
        switches(examples.quantized_pair(), TABLE, search="sideways")


def test_a_first_choice_is_swapped_and_everything_placed_again(frontend: Shown) -> None:
    rules = qt.PlaceRules(search="source-first")
    graph = examples.fan_out(1)
    stated = qt.place(graph, TABLE, rules).of("sum_0")
    assert stated is not None
    live = preference(graph, "sum_0", TABLE, rules)
    live._ipython_display_()
    menu = control(live, "%sum_0 prefers")
    for _, wanted in menu.options:
        menu.value = wanted
        told = live.twin().text
        assert told.startswith("as stated: greedy") and f"%sum_0 prefers {wanted}" in told
    assert len(frontend.redrawn) >= 2


def test_what_must_be_costs_as_was_stated() -> None:
    graph = examples.convolution_then_linears()
    live = preference(graph, "add_2", TABLE, prefer="texture_3d/height", only=True)
    told = live.twin().text
    assert "%add_2 must be texture_3d/height: greedy by executorch-1.5.1: 4 transitions" in told
    # The second choice of add_2's operands and result, which is what it was before the edit.
    assert "operations 0 " in told.splitlines()[0]
    assert "operations 0 " not in told.splitlines()[1]
    control(live, "and nothing else").value = False
    told = live.twin().text
    assert "1 transition" in told.splitlines()[1]
    assert "ExecuTorch's order, whatever an op prefers" in told


def test_a_preference_that_cannot_be_is_refused() -> None:
    graph = examples.convolution_then_linears()
    with pytest.raises(UnknownName, match="%conv has no choice"):
        preference(graph, "conv", TABLE)
    with pytest.raises(UnknownName, match="no node %nothing"):
        preference(graph, "nothing", TABLE)
    with pytest.raises(UnknownName, match="%add_2 cannot be 'buffer/packed_int8_4w'"):
        preference(graph, "add_2", TABLE, prefer="buffer/packed_int8_4w")


def test_widgets_are_named_by_the_face() -> None:
    assert qt.widgets.stepper is stepper
    assert "import ipywidgets" in Path(qt.widgets.__file__).read_text()


@pytest.mark.slow
def test_pictures_and_tables_stay_after_papermill_and_in_html(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    monkeypatch.setenv("PYTHONPATH", path)
    book = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": ""}}
    )
    book.cells = [
        nbformat.v4.new_code_cell(source)
        for source in (
            "import qtoolkit as qt\nfrom qtoolkit.interop.executorch import examples",
            f"qt.widgets.stepper(qt.place(examples.quantized_pair(), {TABLE!r}), 8)",
            f"qt.widgets.switches(examples.quantized_pair(), {TABLE!r}, search='source-first')",
            f"qt.widgets.preference(examples.fan_out(1), 'sum_0', {TABLE!r})",
        )
    ]
    nbformat.write(book, tmp_path / "in.ipynb")
    papermill.execute_notebook(
        tmp_path / "in.ipynb", tmp_path / "out.ipynb", progress_bar=False, cwd=tmp_path
    )
    # Without the state of the widgets: as a page shows it that no script may run in.
    done = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    done.metadata.pop("widgets", None)
    page, _ = HTMLExporter().from_notebook_node(done)
    assert page.count('src="data:image/png;base64,iVBOR') == 3
    assert page.count("<table>") == 3
    assert "found by the search from %conv" in page
