"""`qtoolkit place`: what it reads, prints and refuses."""

import json
from pathlib import Path

import pytest

import qtoolkit as qt
from qtoolkit.cli import main
from qtoolkit.interop.executorch import examples, live

FOLDER = Path(__file__).parent / "peer" / "placement"
PAIR = str(FOLDER / "conv_cat.static8.json")


def told(capsys: pytest.CaptureFixture[str], *args: str) -> dict:  # type: ignore[type-arg]
    assert main(["place", *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_json_has_the_stated_form(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, PAIR, "--policy", "optimal")
    assert found["format"] == 1 and found["rules"]["oddities"] is True
    (delegate,) = found["delegates"]
    assert set(delegate) == {"nodes", "transitions", "cost", "bound", "pass_ms"}
    assert set(delegate["cost"]) == {"transitions", "operations", "unit"}
    node = next(n for n in delegate["nodes"] if n["name"] == "et_vk_q8ta_conv2d_default")
    assert node["target"] == "et_vk::q8ta_conv2d" and node["repr"][0][0] == "BUFFER"
    (copy,) = delegate["transitions"]
    assert set(copy) == {"source", "users", "from", "to", "bytes"} and copy["bytes"] == 256
    paid = delegate["cost"]["transitions"] + delegate["cost"]["operations"]
    assert delegate["bound"] == pytest.approx(paid)


def test_rules_come_on_top_of_those_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, PAIR, "--rules", "constrain_outputs=never,budget=none")
    assert found["rules"]["constrain_outputs"] == "never" and found["rules"]["budget"] is None
    assert found["rules"]["pick"] == "executorch"
    (copy,) = found["delegates"][0]["transitions"]
    assert copy["from"] == ["BUFFER", "PACKED_INT8_4W4C"]


def test_a_model_is_placed_by_our_kernels_in_our_words(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "mlp", "--storage", "texture")
    (delegate,) = found["delegates"]
    assert found["table"] == "qtoolkit" and found["rules"]["oddities"] is False
    reprs = {tuple(r) for n in delegate["nodes"] for r in n["repr"]}
    assert ("texture_3d", "width") in reprs and ("buffer", "width") in reprs


def test_a_captured_graph_is_placed_by_a_table_of_another_date(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = told(capsys, "quantize-ops", "--table", "executorch-pr12616")
    node = next(n for n in found["delegates"][0]["nodes"] if n["name"] == "quantize_affine")
    assert node["repr"] == [["texture_3d", "width"]] and found["rules"]["engine"] == "proposals"


def test_a_saved_graph_is_placed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pair.qtgraph"
    qt.save(examples.quantized_pair(), path)
    found = told(capsys, str(path), "--table", "executorch-1.5.1")
    assert len(found["delegates"][0]["nodes"]) == 5


def test_why_prints_the_chain_of_an_operand(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["place", PAIR, "--why", "aten_cat_default:-1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("1. demand") and "aten_cat_default" in out.splitlines()[-1]
    found = told(capsys, PAIR, "--why", "%et_vk_q8ta_conv2d_default")
    assert {s["node"] for s in found["why"][0]} == {"et_vk_q8ta_conv2d_default"}


def test_text_lists_nodes_copies_and_cost(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["place", PAIR]) == 0
    out = capsys.readouterr().out
    assert "1 transition, 256 bytes" in out and "default model" in out
    assert "copy of %quantized_decomposed_quantize_per_tensor_default" in out


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ((PAIR, "--as", "nobody"), "--as 'nobody'; choose executorch or qtoolkit"),
        ((PAIR, "--table", "executorch-9"), "--table 'executorch-9'; choose one of qtoolkit"),
        ((PAIR, "--policy", "best"), "placement policy 'best'; choose one of greedy, optimal"),
        ((PAIR, "--rules", "search=wide"), "search='wide'; choose one of readers-first"),
        ((PAIR, "--rules", "speed=9"), "rule 'speed'; the rules are engine"),
        ((PAIR, "--why", "nobody:0"), "no node %nobody"),
        ((PAIR, "--why", "aten_cat_default:99"), "has no operand 99"),
        ((PAIR, "--why", "aten_cat_default:x"), "operands are numbers"),
        (("nothing.json",), "cannot be read as JSON"),
        (("nothing",), "no model 'nothing'"),
        ((PAIR, "--cost", "nothing.json"), "cannot be read as JSON"),
        ((PAIR, "--storage", "disk"), "--storage 'disk'; choose mixed, buffer, texture"),
        (("digits-cnn", "--table", "executorch-1.5.1"), "is not recorded for this date"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    args: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["place", *args]) == 2
    err = capsys.readouterr().err
    assert why in err and err.count("\n") == 1


def test_without_the_package_the_pip_line_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "available", lambda: f"no executorch; run: {live.PIP}")
    assert main(["place", "mlp", "--as", "executorch"]) == 2
    assert "python -m pip install 'qtoolkit[executorch]'" in capsys.readouterr().err
    assert main(["place", PAIR, "--as", "executorch"]) == 0


@pytest.mark.slow
def test_executorchs_eyes_on_a_model_show_no_difference(
    capsys: pytest.CaptureFixture[str],
) -> None:
    missing = live.available()
    if missing is not None:
        pytest.skip(missing)
    found = told(capsys, "digits-cnn", "--as", "executorch")
    assert found["differences"] == [[] for _ in found["delegates"]]
    assert found["delegates"] and isinstance(found["left_to_cpu"], list)


def test_bench_of_another_suite_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "everything"]) == 2
    assert "suite 'everything'; there is transitions" in capsys.readouterr().err
