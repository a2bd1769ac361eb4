"""What pictures hold: their lines, bars, boxes and words, not their pixels."""

from types import SimpleNamespace
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest

from build import Builder, quantized_conv, tensor
from qtoolkit import draw
from qtoolkit.backends.vulkan.tensors import representations
from qtoolkit.comparison import Comparison, compare
from qtoolkit.draw import palette
from qtoolkit.draw.choice import channel_ranges, granularity
from qtoolkit.draw.frame import caption_of
from qtoolkit.draw.lanes import HEIGHT, lay_out
from qtoolkit.draw.modules import blocks
from qtoolkit.draw.roles import role_counts
from qtoolkit.draw.texels import memory_order
from qtoolkit.errors import BadInput, ShapeError, UnknownName
from qtoolkit.execution import Run
from qtoolkit.graph import DType, Graph, Node, Ref, TensorType, Where
from qtoolkit.passes.fuse import fuse
from qtoolkit.pipeline import compile
from qtoolkit.trace import run_pass

matplotlib.use("agg")
SHAPE = (1, 3, 5, 5)


@pytest.fixture(autouse=True)
def _closed_figures():
    yield
    matplotlib.pyplot.close("all")


def float_run() -> Run:
    b = Builder()
    x = b.input("x", *SHAPE)
    w = b.const("conv.weight", np.ones((3, 3, 3, 3), np.float32))
    y = b.op("conv", "aten.conv2d.default", (x, w, None, (1, 1), (1, 1), (1, 1), 1), tensor(*SHAPE))
    graph = b.graph(b.op("act", "aten.relu.default", (y,), tensor(*SHAPE)))
    values = np.random.default_rng(1).uniform(0, 8, SHAPE).astype(np.float32)
    return Run("torch", "torch on a CPU", graph, {"x": values, "conv": values, "act": values}, {})


def int8_run(error: object = 0, per_channel: bool = True, backend: str = "numba") -> Run:
    """The fused conv, its codes those nearest to the float run's values, `error` codes off."""
    graph = run_pass("fuse", fuse, quantized_conv(per_channel=per_channel)).after
    truth = float_run()["act"]
    codes = np.clip(np.rint(truth / np.float32(0.04)) - 128 + error, -128, 127).astype(np.int8)
    real = ((codes.astype(np.float32) + 128) * np.float32(0.04)).astype(np.float32)
    values = {"x": truth, "q": codes, "conv": codes, "dqy": real}
    seconds = {"q": 0.001, "conv": 0.006, "dqy": 0.003}
    return Run(backend, "an 8-bit abacus", graph, values, seconds)


def against_float(error: object = 0, per_channel: bool = True) -> Comparison:
    return compare(float_run(), int8_run(error, per_channel))


def summary(name: str, db: float | None, sqnr: str = "finite", op: str = "q8_conv2d", at: str = ""):
    return SimpleNamespace(name=name, op=op, origin=(name,), where=at, sqnr=sqnr, sqnr_db=db)


def line(ax, label):
    return next(drawn for drawn in ax.lines if drawn.get_label() == label)


def words(ax) -> str:
    texts = [*(t.get_text() for t in ax.texts), ax.get_title(loc="left"), ax.get_xlabel()]
    return "\n".join(texts)


def test_no_role_shares_its_colour_with_another():
    told = [
        palette.PER_CHANNEL,
        palette.PER_TENSOR,
        palette.INT8,
        palette.COPY,
        palette.BORDER,
        palette.ERROR,
        *(color for backend, color in palette.BACKEND.items() if backend != "torch"),
    ]
    assert len(set(told)) == len(told)
    # torch runs the float program.
    assert palette.BACKEND["torch"] == palette.BACKEND["float"] == palette.FLOAT


def test_drawing_leaves_the_global_style_alone():
    before = dict(matplotlib.rcParams)
    draw.error(against_float(error=1))
    draw.graph(int8_run().graph)
    assert dict(matplotlib.rcParams) == before


def test_channel_scales_are_drawn_largest_first_with_the_tensor_scale_as_a_line():
    ax = draw.channel_scales(quantized_conv(), "conv")
    assert np.allclose(line(ax, "per-channel scale").get_ydata(), [0.03, 0.02, 0.01])
    reach = channel_ranges(quantized_conv(), "conv")
    assert np.allclose(line(ax, "per-tensor scale").get_ydata(), reach.max() / 127)


def test_channel_scales_keep_the_channels_order_when_asked():
    ax = draw.channel_scales(quantized_conv(), "conv", order="channel")
    assert np.allclose(line(ax, "per-channel scale").get_ydata(), [0.01, 0.02, 0.03])


def test_channel_scales_take_both_granularities_from_two_graphs_in_either_order():
    channel, whole = quantized_conv(), quantized_conv(per_channel=False)
    for graphs in ((channel, whole), (whole, channel)):
        ax = draw.channel_scales(graphs[0], "conv", graphs[1])
        assert np.allclose(line(ax, "per-tensor scale").get_ydata(), 0.01)
        assert len(line(ax, "per-channel scale").get_ydata()) == 3


def test_channel_scales_of_a_float_graph_say_what_to_give_instead():
    with pytest.raises(UnknownName, match=r"%conv has no quantized weights.*q/dq graph"):
        draw.channel_scales(float_run().graph, "conv")


def test_default_node_is_one_and_the_same_before_and_after_fusing():
    q = quantized_conv()
    assert draw.default_node(q) == draw.default_node(int8_run().graph) == "conv"
    assert np.allclose(channel_ranges(q, "conv") * 0.05, channel_ranges(int8_run().graph, "conv"))


def test_default_node_prefers_a_depthwise_conv():
    b = Builder()
    x = b.input("x", 1, 4, 5, 5)
    wide = b.const("wide", np.geomspace(1, 1000, 4, dtype=np.float32).reshape(4, 1, 1, 1))
    dense = np.broadcast_to(np.geomspace(1, 1e6, 4, dtype=np.float32)[:, None, None, None],
                            (4, 4, 1, 1))  # fmt: skip
    one = ((1, 1), (0, 0), (1, 1))
    y = b.op("dw", "aten.conv2d.default", (x, wide, None, *one, 4), tensor(1, 4, 5, 5))
    z = b.op("pw", "aten.conv2d.default", (y, b.const("dense", dense), None, *one, 1),
             tensor(1, 4, 5, 5))  # fmt: skip
    assert draw.default_node(b.graph(z)) == "dw"


def test_default_node_of_a_graph_without_weights_says_so():
    b = Builder()
    x = b.input("x", 1, 4)
    graph = b.graph(b.op("y", "aten.relu.default", (x,), tensor(1, 4)))
    with pytest.raises(UnknownName, match="name a node"):
        draw.default_node(graph)


def test_granularity_is_read_from_the_graph():
    assert granularity(quantized_conv()) == granularity(int8_run().graph) == "per-channel"
    assert granularity(quantized_conv(per_channel=False)) == "per-tensor"
    assert granularity(int8_run(per_channel=False).graph) == "per-tensor"


def test_sqnr_draws_each_node_once_and_a_line_for_each_gain():
    ours = [summary("a", 20.0), summary("b", 10.0), summary("c", 5.0)]
    theirs = [summary("a", 12.0), summary("b", 11.0), summary("c", 5.0)]
    ax = draw.sqnr(ours, theirs)
    assert list(line(ax, "per-channel").get_ydata()) == [20, 10, 5]
    assert list(line(ax, "per-tensor").get_ydata()) == [12, 11, 5]
    gains = [drawn for drawn in ax.lines if drawn.get_gid() == "gain"]
    assert [g.get_color() for g in gains] == [
        palette.PER_CHANNEL,
        palette.PER_TENSOR,
        palette.PER_CHANNEL,
    ]
    assert "a +8" in words(ax)
    assert "1 of 3 values" in caption_of(ax)


def test_sqnr_marks_exact_and_no_signal_and_leaves_both_out_of_the_mean():
    nodes = [summary("a", 20.0), summary("b", None, "exact"), summary("c", None, "no signal")]
    ax = draw.sqnr(nodes, labels=("per-tensor", ""))
    assert list(line(ax, "per-tensor: exact").get_xdata()) == [1]
    assert list(line(ax, "per-tensor: no signal").get_xdata()) == [2]
    assert "mean 20.0 dB" in words(ax)
    assert "exact" in words(ax)
    assert "no signal" in words(ax)


def test_sqnr_of_comparisons_names_device_rounding_and_data():
    ax = draw.sqnr(against_float(), against_float(2, per_channel=False), data="random data")
    told = caption_of(ax)
    assert "numba on an 8-bit abacus" in told
    assert "ties to even" in told
    assert "random data" in told
    assert {"per-channel", "per-tensor"} <= {drawn.get_label() for drawn in ax.lines}


def test_sqnr_of_many_nodes_names_modules_instead():
    nodes = [summary(f"n{i}", 20.0 + i, at=f"blocks.{i // 10}.conv net.py:1") for i in range(30)]
    ax = draw.sqnr(nodes)
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "1", "2"]
    assert "blocks" in ax.get_xlabel()


def test_sqnr_labels_never_cover_one_another():
    rng = np.random.default_rng(0)
    ours = [summary(f"conv2d_{i}", 30 + rng.normal()) for i in range(70)]
    theirs = [summary(f"conv2d_{i}", 20 + 3 * rng.normal()) for i in range(70)]
    ax = draw.sqnr(ours, theirs)
    labels = [t for t in ax.texts if t.get_gid() == "label"]
    boxes = [matplotlib.text.Text.get_window_extent(t) for t in labels]
    assert len(boxes) >= 3
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_sqnr_of_nothing_says_what_to_compare():
    with pytest.raises(BadInput, match="compare a float run with an int8 run"):
        draw.sqnr([])


def test_error_histogram_counts_in_steps_and_shows_the_rounding_band():
    error = np.zeros(SHAPE, int)
    error[0, 0, 0, 0] = 2
    ax = draw.error(against_float(error), "conv")
    heights = [p.get_height() for p in ax.patches if p.get_gid() != "rounding"]
    assert np.isclose(sum(heights), 100)
    band = next(p for p in ax.patches if p.get_gid() == "rounding")
    assert (band.get_x(), band.get_width()) == (-0.5, 1.0)
    assert "steps of the output scale" in ax.get_xlabel()
    assert "rounding alone: 0.29" in caption_of(ax)
    assert "against torch" in caption_of(ax)


def test_error_of_equal_runs_says_that_they_are_equal():
    ax = draw.error(compare(int8_run(backend="reference"), int8_run()), "conv")
    assert "All 75 values are equal" in caption_of(ax)


def test_error_map_shows_where_the_largest_error_is():
    error = np.zeros(SHAPE, int)
    error[0, 2, 1, 3] = 4
    ax = draw.error_map(against_float(error), "conv")
    cells = np.asarray(ax.images[0].get_array())
    assert cells.shape == (5, 5)
    assert np.unravel_index(cells.argmax(), cells.shape) == (1, 3)
    assert "steps of the output scale" in ax.child_axes[0].get_ylabel()


def test_error_map_can_show_every_channel_apart():
    ax = draw.error_map(against_float(1), "conv", channels="grid")
    assert ax.images[0].get_array().shape == (11, 11)
    with pytest.raises(UnknownName, match="'max' or 'grid'"):
        draw.error_map(against_float(1), "conv", channels="mean")


def test_blocks_follow_numbered_containers_and_name_the_rest():
    paths = ["stem", "", "layers.0.conv", "layers.0.relu", "layers.0", "layers.1.conv", "fc"]
    assert [(b.label, b.first, b.last) for b in blocks(paths)] == [
        ("stem", 0, 1),
        ("layers.0", 2, 4),
        ("layers.1", 5, 5),
        ("fc", 6, 6),
    ]


def test_leaves_of_a_plain_sequential_are_one_block():
    assert [b.label for b in blocks(["0", "1", "2"])] == ["0 … 2"]
    assert blocks([]) == ()


def residual() -> Graph:
    """Eight ops in one block, the last of which adds what the first gave."""
    kind = TensorType((1, 4), DType.INT8)
    nodes = [Node("x", "input", (), (kind,))]
    for i in range(8):
        where = Where(f"blocks.0.m{i}")
        nodes.append(
            Node(f"n{i}", "aten.clone.default", (Ref(nodes[-1].name), None), (kind,), where=where)
        )
    args = (Ref("n7"), Ref("n0"), 1.0, 0, 1.0, 0, 1.0, 1.0, 0, -128, 127)
    nodes.append(Node("sum", "q8_add", args, (kind,), where=Where("blocks.0")))
    return Graph(tuple(nodes), ("x",), (Ref("sum"),)).check()


def test_no_two_boxes_cover_each_other_and_every_edge_is_a_wire():
    graph = residual()
    picture = lay_out(graph)
    spans = [(b.x, b.y, b.x + b.width, b.y + HEIGHT) for b in picture.boxes]
    for i, a in enumerate(spans):
        assert a[2] <= picture.width
        assert a[3] <= picture.height
        assert not any(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
                       for b in spans[:i])  # fmt: skip
    assert {(w.source, w.target) for w in picture.wires} == {
        (ref.node, n.name) for n in graph.nodes for ref in n.refs()
    }
    assert [w.skip for w in picture.wires if w.target == "sum"] == [False, True]


def test_wires_run_around_boxes_and_never_through_them():
    picture = lay_out(residual())
    for wire in picture.wires:
        for (x0, y0), (x1, y1) in zip(wire.points, wire.points[1:], strict=False):
            for b in picture.boxes:
                inside_x = max(x0, x1) > b.x + 1e-6 and min(x0, x1) < b.x + b.width - 1e-6
                inside_y = max(y0, y1) > b.y + 1e-6 and min(y0, y1) < b.y + HEIGHT - 1e-6
                assert not (inside_x and inside_y), (wire, b)


def test_an_op_between_dequantize_and_quantize_counts_as_int8():
    counts = role_counts(quantized_conv())
    # The conv and its relu; the dequantize of the weight is part of the conv.
    assert (counts["int8"], counts["float"], counts["border"]) == (2, 0, 4)


def test_an_op_left_float_is_filled_with_the_warning_colour():
    graph = run_pass("fuse", fuse, quantized_conv(activation="aten.sigmoid.default")).after
    assert role_counts(graph)["float"] >= 1
    ax = draw.graph(graph)
    conv = next(p for p in ax.patches if p.get_gid() == "conv")
    assert matplotlib.colors.to_hex(conv.get_facecolor()).upper() == palette.FLOAT
    assert f"float  {role_counts(graph)['float']}" in words(ax)


def test_graph_has_a_box_per_node_and_says_how_many_are_float():
    ax = draw.graph(int8_run().graph)
    drawn = {p.get_gid() for p in ax.patches if p.get_gid()}
    assert drawn == {"x", "q", "conv", "dqy"}
    assert "int8  1" in words(ax)
    assert "float  0" in words(ax)
    assert "3 nodes" in caption_of(ax)


def test_graph_svg_is_well_formed_and_escapes_what_it_is_given():
    kind = TensorType((1,), DType.INT8)
    evil = Where("a<script>alert(1)</script>&\"'")
    nodes = (Node("x", "input", (), (kind,)), Node("y", "evil<op>", (Ref("x"),), (kind,), (), evil))
    text = draw.graph_svg(Graph(nodes, ("x",), (Ref("y"),)))
    root = ElementTree.fromstring(text)
    assert root.get("role") == "img"
    assert "unsupported 1" in root.get("aria-label")
    assert "<script>" not in text
    assert any("evil<op>" in (t.text or "") for t in root.iter("{http://www.w3.org/2000/svg}title"))


def test_timing_by_op_adds_up_and_by_node_is_sorted():
    ax = draw.timing(int8_run())
    labels = [t.get_text() for t in ax.get_yticklabels()]
    assert labels == ["conv 3×3", "dequantize", "quantize"]
    assert [round(p.get_width(), 6) for p in ax.patches] == [6, 3, 1]
    assert "60 %" in words(ax)
    assert "10.0 ms in all" in caption_of(ax)
    by_node = draw.timing(int8_run(), by="node", top=1)
    assert [t.get_text() for t in by_node.get_yticklabels()] == ["conv", "2 others"]
    with pytest.raises(UnknownName, match="'op' or 'node'"):
        draw.timing(int8_run(), by="layer")


def classifier(name: str, logits: list[float]) -> Run:
    b = Builder()
    graph = b.graph(b.input("x", 1, 3, 4, 4))
    values = {"x": np.array([logits], np.float32)}
    return Run(name, "a CPU", graph, values, {})


def test_photo_shows_the_image_and_the_classes_in_order():
    x = np.random.default_rng(0).normal(size=(1, 3, 4, 4)).astype(np.float32)
    ax = draw.photo(x, classifier("torch", [0.0, 3.0, 1.0]), ["ant", "bee", "cat"], top=2)
    image = ax.images[0].get_array()
    assert image.shape == (4, 4, 3)
    assert (image.min(), image.max()) == (0, 1)
    side = ax.child_axes[0]
    assert [t.get_text() for t in side.texts if "%" not in t.get_text()] == ["bee", "cat"]
    assert "torch: bee" in caption_of(ax)


def test_photo_of_what_is_no_image_and_has_no_labels():
    runs = {"float": classifier("torch", [1.0, 0.0]), "numba": classifier("numba", [0.0, 1.0])}
    ax = draw.photo(np.arange(10, dtype=np.float32).reshape(1, 10), runs)
    assert ax.images[0].get_array().shape == (3, 4)
    assert caption_of(ax) == "float: class 0 · numba: class 1"


def test_everything_draws_on_axes_it_is_given():
    figure, axes = matplotlib.pyplot.subplots(2, 3)
    spots = iter(axes.flat)
    comparison = against_float(1)
    assert draw.channel_scales(quantized_conv(), ax=(ax := next(spots))) is ax
    assert draw.sqnr(comparison, ax=(ax := next(spots))) is ax
    assert draw.error(comparison, "conv", ax=(ax := next(spots))) is ax
    assert draw.error_map(comparison, "conv", ax=(ax := next(spots))) is ax
    assert draw.graph(int8_run().graph, ax=(ax := next(spots))) is ax
    assert draw.timing(int8_run(), ax=(ax := next(spots))) is ax
    assert matplotlib.pyplot.get_fignums() == [figure.number]


SIZES = [(1, 6, 2, 3), (2, 5, 1, 3), (2, 3, 5), (3, 5), (7,), (2, 8, 3, 4)]


@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_every_cell_lies_once_in_every_representation(shape):
    kind = TensorType(shape, DType.FLOAT32)
    places = representations(kind)
    assert len(places) == {4: 6, 3: 4, 2: 4, 1: 2}[len(shape)]
    for place in places:
        cells = memory_order(kind, place)
        found = sorted(cells[cells >= 0].tolist())
        assert found == list(range(kind.numel)), place
        # The cells of a texel follow each other along the packed axis.
        step = {"width": 1, "height": shape[-1], "channels": int(np.prod(shape[2:]))}
        for texel in cells.reshape(-1, 4):
            real = texel[texel >= 0]
            assert (np.diff(real) == step[place.layout.name.lower()]).all()


def test_layouts_shows_each_cell_in_each_representation():
    ax = draw.layouts((1, 5, 2, 3))
    cells = [p for p in ax.patches if p.get_gid() == "cell"]
    assert len(cells) == 6 * 30
    titles = [t.get_text() for t in ax.texts if t.get_gid() == "representation"]
    assert titles == [str(r) for r in representations(TensorType((1, 5, 2, 3), DType.FLOAT32))]
    for bad in ((1, 30, 30, 30), (0, 3), (1, 1, 1, 1, 1)):
        with pytest.raises(ShapeError, match="give up to four axes and 1 to 400 cells"):
            draw.layouts(bad)


def test_placement_fills_boxes_by_storage_and_layout_and_counts_them():
    trace = compile(quantized_conv(), backend="vulkan", storage="texture")
    ax = draw.placement(trace)
    boxes = {p.get_gid(): p for p in ax.patches if p.get_gid()}
    for node in trace.result.nodes:
        if node.reps and node.name in boxes and node.op != "input":
            place = node.reps.outputs[0].only
            names = place.storage.name.lower(), place.layout.name.lower()
            shown = matplotlib.colors.to_hex(boxes[node.name].get_facecolor()).upper()
            assert shown == palette.place_colour(*names), node.name
    assert "textures" in caption_of(ax) and "compiled for vulkan" in caption_of(ax)
    with pytest.raises(UnknownName, match="not placed"):
        draw.placement(quantized_conv())


def test_error_maps_count_the_codes_that_differ():
    truth, same = against_float(), compare(float_run(), int8_run(backend="vulkan"))
    ax = draw.error_maps(truth, same)
    assert "0 of 75 codes differ" in caption_of(ax)
    off = np.zeros(SHAPE, np.int64)
    off[0, 1, 2, 3] = 3
    other = compare(float_run(), int8_run(off, backend="vulkan"))
    ax = draw.error_maps(truth, other)
    assert "1 of 75 codes differ" in caption_of(ax)
    between = [part.images[0].get_array() for part in ax.child_axes if part.images][2]
    assert np.count_nonzero(between) == 1 and between[2, 3] == pytest.approx(3, abs=1e-4)
