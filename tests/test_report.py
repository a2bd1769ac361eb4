"""report/: report.json, report.html, the terminal's table, and notebooks run by papermill."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
from browser.chromium import Page, installed
from torch import nn

from qtoolkit import report
from qtoolkit.errors import BadInput, MissingDependency, UnknownName
from qtoolkit.exploration import IMPORTED, Exploration, explore
from qtoolkit.models import Model
from qtoolkit.report.files import replacing, write_text
from qtoolkit.report.summary import size

NASTY = '"><img src=x onerror=alert(1)>'
KEYS = {
    "format", "model", "weights", "versions", "devices", "images", "data", "top1", "ops",
    "left_float", "transitions", "equal", "compared", "first_difference", "nodes", "also",
    "seconds",
}  # fmt: skip


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU6())
        self.depthwise = nn.Conv2d(8, 8, 3, 1, 1, groups=8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.depthwise(self.stem(x)).mean((2, 3)))


@pytest.fixture(scope="module")
def found() -> Exploration:
    """A small network whose every name is hostile, on random data."""
    generator = torch.Generator().manual_seed(1)
    samples = [(torch.randn(1, 3, 9, 9, generator=generator),) for _ in range(3)]
    model = Model(
        Net().eval(),
        samples[0],
        calibration=tuple(samples),
        labels=tuple(f"{NASTY} {i}" for i in range(5)),
        evaluation=((NASTY, samples[1]), ("plain", samples[2])),
        name=NASTY,
    )
    return explore(model, backends=("numba",))


@pytest.fixture(scope="module")
def html(found: Exploration, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report.write_report(found, tmp_path_factory.mktemp("report")).html


def refuse(e: Exploration) -> Exploration:
    """The same exploration, had execution been refused."""
    return replace(
        e, images=(), equal={}, compared={}, nodes=(), other_nodes=(), runs={}, devices={},
        refused=f"backend reference cannot run 1 node: %{NASTY}",
    )  # fmt: skip


def as_imported(e: Exploration) -> Exploration:
    """The same exploration, had the program come in quantized."""
    images = [
        replace(image, output_sqnr_db={IMPORTED: image.output_sqnr_db[e.weights]})
        for image in e.images
    ]
    graph = e.quantized[e.weights]
    return replace(
        e, weights=IMPORTED, quantized={IMPORTED: graph}, images=tuple(images), other_nodes=()
    )


def strict(text: str) -> Any:
    def refused(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refused)


class Elements(HTMLParser):
    """Every element of a page with its attributes, and the text outside of scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.raw = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        last = self.found[-1][0] if self.found else ""
        if last in ("script", "style"):
            self.raw += data
        else:
            self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def test_report_json_has_the_promised_keys_and_is_strict_json(
    found: Exploration, html: Path
) -> None:
    told = strict((html.parent / "report.json").read_text())
    assert told.keys() >= KEYS
    assert told == report.to_json(found)
    assert told["format"] == 1 and told["model"] == NASTY
    assert told["images"] == [NASTY, "plain"]
    assert told["equal"] == {"reference": True, "numba": True}
    assert told["compared"]["numba"]["missing"] == []
    assert told["compared"]["numba"]["nodes"] == len(found.compiled.nodes)
    assert told["first_difference"] is None
    assert told["data"] == {"source": "random data", "samples": 3}
    assert {key: len(classes) for key, classes in told["top1"].items()} == {
        "float": 2, "reference": 2, "numba": 2,
    }  # fmt: skip
    assert len(told["also"]["per-tensor"]["top1"]) == 2
    assert told["also"]["per-tensor"]["mean_sqnr_db"] > 0
    assert set(told["versions"]) >= {"qtoolkit", "python", "numpy", "numba", "torch", "torchao"}
    for node in told["nodes"]:
        assert (node["sqnr"] == "finite") == (node["sqnr_db"] is not None)
        assert node["storage"] == "buffer" and node["layout"] in ("width", "channels")


def test_a_refused_execution_is_told_and_the_rest_is_shown(
    found: Exploration, tmp_path: Path
) -> None:
    refused = refuse(found)
    written = report.write_report(refused, tmp_path / "new")
    told = strict(written.json.read_text())
    assert told["top1"] == {"float": None, "reference": None, "numba": None}
    assert told["equal"] == {"reference": False, "numba": False}
    assert len(told["compared"]["numba"]["missing"]) == len(found.compiled.nodes)
    assert told["ops"] and told["nodes"] == []
    page = Elements(written.html.read_text())
    assert "Execution refused." in page.text and "The compiled graph" in page.text
    assert "refused" in report.table(refused)
    assert report.failures(refused) == (f"execution refused: {refused.refused}",)


def test_a_program_that_came_in_quantized_has_no_other_granularity(
    found: Exploration, tmp_path: Path
) -> None:
    imported = as_imported(found)
    written = report.write_report(imported, tmp_path)
    assert strict(written.json.read_text())["also"] == {}
    assert "per-tensor" not in report.table(imported)
    assert "int8 as imported" in " ".join(Elements(written.html.read_text()).text.split())


def test_the_page_refers_to_nothing_outside_itself(html: Path) -> None:
    page = Elements(html.read_text())
    for tag, attributes in page.found:
        for name in ("src", "href", "xlink:href", "data", "action", "poster", "srcset"):
            value = attributes.get(name) or "#"
            assert value.startswith(("#", "data:")), f"<{tag} {name}={value[:60]}>"
    assert "url(" not in page.raw and "@import" not in page.raw and "http" not in page.raw
    policy = page.named("meta")[2]["content"] or ""
    assert policy.startswith("default-src 'none'")


def test_every_picture_has_words(html: Path) -> None:
    page = Elements(html.read_text())
    assert len(page.named("img")) == 6
    assert all(len(image["alt"] or "") > 20 for image in page.named("img"))
    assert [bool(svg.get("aria-label")) for svg in page.named("svg")] == [True]


def test_names_with_markup_are_text(html: Path) -> None:
    page = Elements(html.read_text())
    assert NASTY in page.text
    assert len(page.named("script")) == 1
    assert not any(name.startswith("on") for _, attributes in page.found for name in attributes)
    assert all(
        (image["src"] or "").startswith("data:image/png;base64,") for image in page.named("img")
    )


def test_random_data_is_said_wherever_an_sqnr_is(found: Exploration, html: Path) -> None:
    table = report.table(found)
    assert "random data" in next(line for line in table.splitlines() if "mean SQNR" in line)
    text = html.read_text()
    assert text.count("<figcaption>Random data.</figcaption>") == 4
    assert "Random data." in text
    known = replace(found, model=replace(found.model, data_source="photographs"))
    assert "random" not in report.table(known)


def test_the_table_names_classes_verdicts_and_bytes(found: Exploration) -> None:
    lines = report.table(found).splitlines()
    assert lines[0].split() == ["float", "per-channel", "per-tensor", "output", "SQNR"]
    told = {line.split("  ")[0]: line for line in lines}
    assert "equal to reference" in told["numba"]
    assert "%mean" in told["left float"]
    assert report.failures(found) == ()
    many = replace(found, images=found.images * 10)
    assert "… and 8 more in report.json" in report.table(many)


def test_a_backend_that_differs_fails_and_names_the_first_node(found: Exploration) -> None:
    first = {"backend": "numba", "node": "conv2d_1", "max_steps": 1}
    spoiled = replace(found, equal={"reference": True, "numba": False}, first_difference=first)
    reason = "numba differs from reference, first at %conv2d_1 (by up to 1 step)"
    assert report.failures(spoiled) == (reason,)
    assert "differs from reference" in report.table(spoiled)
    assert report.to_json(spoiled)["first_difference"] == first


@pytest.mark.parametrize(
    ("count", "told"),
    [(1, "1 byte"), (1023, "1,023 bytes"), (1536, "1.5 KiB"), (3 << 20, "3.0 MiB")],
)
def test_bytes_in_words(count: int, told: str) -> None:
    assert size(count) == told


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = write_text(tmp_path / "report.json", "old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as part:
        part.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_named(found: Exploration, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no/such: no folder there"):
        report.write_report(found, tmp_path / "no" / "such")
    (tmp_path / "report.json").mkdir()
    with pytest.raises(BadInput, match=r"report\.json: cannot be written \(Is a directory\)"):
        report.write_report(found, tmp_path)


def notebook(path: Path, *sources: str) -> Path:
    """A notebook of code cells, the first of them its parameters."""
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    made = nbformat.v4.new_notebook(metadata={"kernelspec": spec})
    made.cells = [nbformat.v4.new_code_cell(source) for source in sources]
    made.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(made, path)
    return path


def test_notebooks_run_with_the_parameters_they_declare_and_failures_are_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "{braces}"
    folder.mkdir()
    good = notebook(folder / "1.ipynb", "model = None", "print(model, 'seen')")
    bad = notebook(folder / "2.ipynb", "n = 1", "n", "raise ValueError('no\\nway')", "n")
    dead = notebook(folder / "3.ipynb", "n = 1", "import os; os._exit(1)")
    told: list[str] = []
    ran = report.run_notebooks(
        [bad, dead, good], tmp_path, {"model": "mlp", "weights": "x"}, lambda s, _: told.append(s)
    )
    assert told == ["notebook 2", "notebook 3", "notebook 1"]
    assert ran[0].failure == (
        f"notebook 2.ipynb: cell [3] raised ValueError: no way; see {tmp_path / '2.ipynb'}"
    )
    assert "3.ipynb: its kernel died" in str(ran[1].failure) and ran[2].failure is None
    outputs = nbformat.read(ran[2].path, 4).cells[-1].outputs
    assert outputs[0].text == "mlp seen\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "1.ipynb",
        "2.ipynb",
        "3.ipynb",
        folder.name,
    ]
    assert capfd.readouterr().out == ""


def test_notebooks_are_chosen_by_word() -> None:
    assert [p.name for p in report.chosen("tour")] == ["00_tour.ipynb"]
    assert report.chosen("none") == ()
    assert report.chosen("all")[0].name == "00_tour.ipynb"
    with pytest.raises(UnknownName, match="choose one of tour, all, none"):
        report.chosen("some")


def test_a_missing_package_is_named_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    report.require([Path("a.ipynb")])
    monkeypatch.setitem(sys.modules, "papermill", None)
    report.require()
    with pytest.raises(MissingDependency, match=r"papermill is not installed.*pip install"):
        report.require([Path("a.ipynb")])


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    with Page(tmp_path / "chromium", 1280, 1000) as tab:
        yield tab


@pytest.mark.browser
@pytest.mark.skipif(installed() is None, reason="no Chromium; apt-get install chromium")
def test_the_page_opens_from_disk_without_a_network_and_sorts(page: Page, html: Path) -> None:
    page.call("Network.enable")
    page.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0,
              uploadThroughput=0)  # fmt: skip
    page.call("Page.navigate", url=html.as_uri())
    page.until("document.readyState === 'complete' && !!document.querySelector('th button')", 30)
    assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
    wide = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert page.evaluate(wide)
    figures = """(() => {
      const table = document.querySelector('table.sortable');
      table.tHead.rows[0].cells[3].querySelector('button').click();
      return [...table.tBodies[0].rows].map(row => row.cells[3].dataset.sort);
    })()"""
    up, down = page.evaluate(figures), page.evaluate(figures)
    shown = [float(x) for x in up if x]
    assert len(shown) > 3 and shown == sorted(shown)
    assert [float(x) for x in down if x] == shown[::-1]
    assert up[-1] == down[-1] == ""
