"""The Vulkan runtime: which device, opening and closing it, memory, threads, what is missing."""

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from threading import Barrier
from typing import Any
from weakref import ref

import numpy as np
import pytest

import qtoolkit as qt
from qtoolkit.backends.vulkan import KERNELS, Device, DeviceInfo, devices, load_on
from qtoolkit.backends.vulkan.binding import Parts, structure_type
from qtoolkit.backends.vulkan.device import Instance, chosen
from qtoolkit.backends.vulkan.engine import VulkanEngine
from qtoolkit.backends.vulkan.memory import BLOCK, Arena
from qtoolkit.backends.vulkan.pipelines import Pipelines
from qtoolkit.backends.vulkan.recording import Recording
from qtoolkit.errors import UnknownName, VulkanError
from qtoolkit.graph import DType, Graph, Node, Ref, TensorType

Array = np.ndarray[Any, Any]
ROOT = Path(__file__).parent.parent
SITE = Path(np.__file__).parent.parent
LAVAPIPE = "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json"
SWIFTSHADER = "/usr/lib/chromium/vk_swiftshader_icd.json"
SHAPE = (2, 5, 7, 33)
CLAMP: dict[str, int] = {"X_TEXTURE": 0, "Y_TEXTURE": 0}
BINDINGS = ("uniform", "storage", "storage")


@cache
def clamps(storage: str = "buffer") -> Graph:
    """Two clamps, one after the other: the second waits for the first."""
    kind = TensorType(SHAPE, DType.INT8)
    nodes = (
        Node("x", "input", (), (kind,)),
        Node("y", "q8_clamp", (Ref("x"), -90, 100), (kind,), ("y",)),
        Node("z", "q8_clamp", (Ref("y"), -50, 127), (kind,), ("z",)),
    )
    graph = Graph(nodes, ("x",), (Ref("z"),)).check()
    return qt.compile(graph, backend="vulkan", storage=storage).result


def codes(seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-128, 128, SHAPE).astype(np.int8)


def load(device: Device, storage: str = "buffer") -> VulkanEngine:
    graph = clamps(storage)
    kernels = {
        n.name: next(k for k in KERNELS[n.op] if n.kernel == f"vulkan:{k.name}")
        for n in graph.nodes
        if n.op != "input"
    }
    return load_on(device, graph, kernels)


def result(engine: VulkanEngine, x: Array) -> Array:
    (output,) = engine.graph.outputs
    assert isinstance(output, Ref)
    return engine.run({"x": x})[0][output.node]


def right(engine: VulkanEngine, seed: int = 0) -> bool:
    x = codes(seed)
    return np.array_equal(result(engine, x), x.clip(-50, 100))


def python(code: str, *flags: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run code in an interpreter of its own."""
    found = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    command = [sys.executable, *flags, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, env=found, timeout=120)


@pytest.fixture
def device() -> Iterator[Device]:
    """A device under validation, which must have nothing to say, also as it closes."""
    opened = Device(validation=True)
    yield opened
    opened.close()
    assert opened.messages == []


# Choosing a device.


def test_a_device_is_chosen_by_index_and_by_any_part_of_its_name() -> None:
    first = devices()[0]
    for choice in (0, "0", first.name, first.name[2:7].upper(), f" {first.name[:4].lower()} "):
        with Device(choice) as opened:
            assert opened.info == first


@pytest.mark.parametrize("choice", [99, -1, "99", "-1", "no such", "", " ", "²"])
def test_an_unknown_device_is_refused_with_a_list_of_what_there_is(choice: int | str) -> None:
    names = "; ".join(f"{d.index} = {d.name}" for d in devices())
    with pytest.raises(UnknownName) as refused:
        Device(choice)
    assert names in str(refused.value) and "\n" not in str(refused.value)


def test_a_refused_device_leaves_no_instance_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Instance] = []
    plain = Instance.__init__

    def noted(self: Instance, validation: bool = False) -> None:
        made.append(self)
        plain(self, validation)

    monkeypatch.setattr(Instance, "__init__", noted)
    with pytest.raises(UnknownName):
        Device("no such", validation=True)
    assert [(i.handle, i.messages) for i in made] == [(None, [])]


def listed(*named: tuple[str, str]) -> list[tuple[DeviceInfo, Any]]:
    return [
        (DeviceInfo(i, name, kind, kind == "CPU", ""), None) for i, (name, kind) in enumerate(named)
    ]


def test_without_a_choice_a_gpu_comes_before_software_and_a_discrete_one_first() -> None:
    lavapipe, arc, rtx = ("llvmpipe", "CPU"), ("Arc", "integrated GPU"), ("4090", "discrete GPU")
    assert chosen(listed(lavapipe, arc, rtx), None) == 2
    assert chosen(listed(lavapipe, arc), None) == 1
    assert chosen(listed(lavapipe, ("new", "other")), None) == 1
    assert chosen(listed(lavapipe), None) == 0


def test_digits_that_are_no_index_are_looked_for_in_names() -> None:
    found = listed(("llvmpipe", "CPU"), ("RTX 4090", "discrete GPU"))
    assert chosen(found, "4090") == 1 and chosen(found, "0") == 0
    with pytest.raises(UnknownName):
        chosen(found, 4090)


@pytest.mark.parametrize("icd", [LAVAPIPE, SWIFTSHADER])
def test_software_is_called_software(icd: str) -> None:
    if not Path(icd).is_file():
        pytest.skip(f"{icd} is not installed")
    told = python(
        "from qtoolkit.backends.vulkan import Device\nwith Device() as d: print(d, d.info.cpu)",
        VK_ICD_FILENAMES=icd,
    )
    assert "(software on the CPU)" in told.stdout and told.stdout.endswith("True\n"), told.stderr


def test_a_device_of_an_older_vulkan_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[Device.__module__], "API", (1, 99))
    with pytest.raises(VulkanError, match="offers Vulkan 1.., the shaders need 1.99: install"):
        Device()


# Opening, running, closing.


@pytest.mark.parametrize("storage", ["buffer", "texture"])
def test_a_graph_runs_and_closes_without_a_message(device: Device, storage: str) -> None:
    engine = load(device, storage)
    assert right(engine) and right(engine, 1)
    engine.close()
    engine.close()


def test_closing_a_device_twice_is_fine_and_frees_open_engines_first(device: Device) -> None:
    engines = [load(device), load(device, "texture")]
    assert all(right(e) for e in engines)
    device.close()
    device.close()
    assert not any(e.open for e in engines) and not device.holders
    for engine in engines:
        engine.close()


@pytest.mark.parametrize("closed", ["engine", "device"])
def test_a_closed_engine_refuses_to_run(device: Device, closed: str) -> None:
    engine = load(device)
    assert right(engine)
    (engine if closed == "engine" else device).close()
    with pytest.raises(VulkanError, match="is closed; load the graph again"):
        right(engine)
    for recording in engine.recordings:
        with pytest.raises(VulkanError, match="is closed"):
            recording.submit()


def test_nothing_is_made_from_a_closed_device(device: Device) -> None:
    device.close()
    with pytest.raises(VulkanError, match="is closed; open a Device again"):
        load(device)


def test_an_engine_left_to_the_collector_frees_its_memory(device: Device) -> None:
    load(device).close()
    before = len(device.holders)
    for _ in range(3):
        engine = load(device, "texture")
        assert right(engine)
        del engine
        gc.collect()
        assert len(device.holders) == before


def test_an_engine_collected_while_the_device_is_busy_is_freed_at_the_next_use(
    device: Device,
) -> None:
    load(device).close()
    before = len(device.holders)
    kept = [load(device)]
    with device.lock, ThreadPoolExecutor(1) as pool:
        pool.submit(kept.clear).result(timeout=10)  # it does not wait for the lock
    assert device.abandoned and len(device.holders) > before
    with load(device).device.lock:
        assert not device.abandoned


def test_a_device_left_to_the_collector_closes_with_its_engines() -> None:
    device = Device(validation=True)
    engine = load(device)
    assert right(engine)
    messages, gone = device.messages, ref(device)
    del device, engine
    gc.collect()
    gc.collect()  # what its engine held goes in the first round
    assert gone() is None and messages == []


def test_what_is_open_as_python_ends_does_no_harm() -> None:
    told = python(
        "import sys; sys.path.insert(0, 'tests')\n"
        "from test_vulkan_device import *\n"
        "kept = Device(validation=True); engine = load(kept); assert right(engine)\n"
        "dropped = load(Device(validation=True)); assert right(dropped)\n"
        "print('done')"
    )
    assert (told.returncode, told.stdout) == (0, "done\n"), told.stderr
    assert told.stderr == ""


def test_an_open_that_fails_half_way_frees_what_it_made(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = Arena(device)
    with monkeypatch.context() as planted:
        planted.setattr(device, "memory_types", ())
        for make in (lambda: arena.buffer(64, "storage"), lambda: arena.image((2, 2, 2), True)):
            with pytest.raises(VulkanError, match="no memory of a fitting type"):
                make()
        with pytest.raises(VulkanError, match="no memory of a fitting type"):
            load(device)
    assert right(load(device))


# Structs, pipelines and devices under a busy garbage collector.


def test_every_struct_knows_its_type_or_has_none() -> None:
    vk = Parts().vk
    assert structure_type("ApplicationInfo") == vk.VK_STRUCTURE_TYPE_APPLICATION_INFO == 0
    wanted = vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2
    assert structure_type("PhysicalDeviceProperties2") == wanted
    assert structure_type("BufferCopy") is None
    with pytest.raises(AttributeError):
        structure_type("BaseInStructure")  # has a field sType, but no type of its own


@pytest.fixture
def busy_collector() -> Iterator[None]:
    """The collector runs at nearly every allocation, on what is made from now on."""
    gc.collect()
    gc.freeze()
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def rss() -> int:
    """Bytes of memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def grown(repeat: Callable[[int], None], times: int) -> int:
    """Bytes that memory grows by in the second half of `times` calls."""
    for i in range(times // 2):
        repeat(i)
    before = rss()
    for i in range(times // 2, times):
        repeat(i)
    return rss() - before


@pytest.mark.usefixtures("busy_collector")
def test_five_hundred_pipelines_under_the_collector() -> None:
    # lavapipe of Mesa 22 keeps 0.7 MB of each destroyed pipeline until its device is closed.
    def create(i: int) -> None:
        with Device() as device:
            for j in range(50):
                pipelines = Pipelines(device)
                pipelines.pipeline("q8_clamp", CLAMP, BINDINGS, (i, -j))
                gc.collect(0)
                pipelines.close()
            assert right(load(device))

    assert grown(create, 10) < 16 << 20


@pytest.mark.usefixtures("busy_collector")
def test_runs_and_validation_hold_under_the_collector(device: Device) -> None:
    for i in range(5):
        engine = load(device, ("buffer", "texture")[i % 2])
        assert right(engine, i)
        engine.close()


OPENINGS = """
import gc, sys; sys.path.insert(0, "tests")
from test_vulkan_device import Device, gc, grown, load, right
gc.collect(); gc.freeze(); gc.set_threshold(1, 1, 1)
def open_and_close(i):
    with Device() as device:
        gc.collect(0)
        if i % 50 == 0:
            assert right(load(device))
print(grown(open_and_close, 500))
"""


@pytest.mark.parametrize("icd", [LAVAPIPE, SWIFTSHADER])
def test_five_hundred_devices_are_opened_under_the_collector(icd: str) -> None:
    if not Path(icd).is_file():
        pytest.skip(f"{icd} is not installed")
    told = python(OPENINGS, VK_ICD_FILENAMES=icd)
    assert told.returncode == 0, told.stderr
    assert int(told.stdout) < 64 << 20


# Threads.


def at_once(*works: Callable[[], bool]) -> list[bool]:
    """What works return that start at the same time, each in a thread of its own."""
    start = Barrier(len(works))

    def run(work: Callable[[], bool]) -> bool:
        start.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(run, works))


def often(engine: VulkanEngine, seeds: Sequence[int]) -> Callable[[], bool]:
    return lambda: all(right(engine, seed) for seed in seeds)


def test_one_engine_is_run_by_two_threads_in_turn_and_at_once(device: Device) -> None:
    engine = load(device)
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        assert all(p.submit(right, engine, i).result() for i, p in enumerate((one, other, one)))
    assert all(at_once(often(engine, range(20)), often(engine, range(20, 40))))


def test_two_engines_of_a_device_are_run_at_once(device: Device) -> None:
    one, other = load(device), load(device, "texture")
    assert all(at_once(often(one, range(20)), often(other, range(20, 40))))


def test_engines_are_made_and_closed_by_two_threads_at_once(device: Device) -> None:
    def work() -> bool:
        for seed in range(5):
            engine = load(device, ("buffer", "texture")[seed % 2])
            if not right(engine, seed):
                return False
            engine.close()
        return True

    assert all(at_once(work, work))


def test_devices_are_opened_and_closed_by_two_threads_at_once() -> None:
    def work() -> bool:
        for seed in range(5):
            with Device() as opened:
                if not right(load(opened), seed):
                    return False
        return True

    assert all(at_once(work, work))


# Limits.


def test_a_texture_beyond_the_limit_is_refused_with_the_limit_and_the_remedy(
    device: Device,
) -> None:
    device.limits = replace(device.limits, texture_extent=4)
    told = "exceeds 4, the maxImageDimension3D of .*; compile for this device, or with storage="
    with pytest.raises(VulkanError, match=told):
        load(device, "texture")


def test_a_buffer_beyond_the_limit_is_refused_with_the_limit_and_the_remedy(
    device: Device,
) -> None:
    device.limits = replace(device.limits, buffer_range=100)
    told = "a buffer of [0-9]+ bytes exceeds the 100 bytes .*; use smaller tensors"
    with pytest.raises(VulkanError, match=told):
        load(device)


def test_memory_that_is_not_there_is_told_in_bytes() -> None:
    with Device() as device:
        arena = Arena(device)
        with pytest.raises(VulkanError, match="VK_ERROR_OUT_OF_.*_MEMORY"):
            arena.buffer(1 << 46, "staging")
        arena.close()


@pytest.mark.parametrize("storage", ["buffer", "texture"])
@pytest.mark.parametrize("groups", [1, 2, 3, 9])
def test_a_dispatch_with_more_groups_than_the_limit_is_split_into_rows(
    device: Device, groups: int, storage: str
) -> None:
    device.limits = replace(device.limits, groups=groups)
    assert right(load(device, storage))


def test_timestamps_may_wrap_around(device: Device) -> None:
    device.limits = replace(device.limits, timestamp_bits=20)
    engine = load(device)
    for _ in range(20):
        _, seconds = engine.run({"x": codes()})
        assert all(0 <= s < (1 << 20) * 1e-9 * device.limits.timestamp_period
                   for s in seconds.values())  # fmt: skip


# Memory.


def test_many_buffers_and_images_come_from_few_allocations(device: Device) -> None:
    arena = Arena(device)
    made = [arena.buffer(size, "storage") for size in range(1, 40_000, 200)]
    images = [arena.image((3, 5, n), real=bool(n % 2)) for n in range(1, 20)]
    staging = [arena.buffer(1000 + n, "staging", host=True) for n in range(50)]
    assert len(made) + len(images) + len(staging) == 269
    names = [name for name, _ in arena.handles.made]
    assert names.count("vkFreeMemory") <= 3 and arena.allocated <= 3 * BLOCK
    for i, buffer in enumerate(staging):
        assert buffer.mapped is not None and buffer.mapped.size == buffer.size
        buffer.mapped[:] = i
    assert all(b.mapped is not None and (b.mapped == i).all() for i, b in enumerate(staging))
    arena.close()
    arena.close()
    assert not arena.handles.made and arena.handles not in device.holders


def test_a_buffer_larger_than_a_block_has_an_allocation_of_its_own(device: Device) -> None:
    arena = Arena(device)
    arena.buffer(BLOCK + 1, "storage")
    arena.buffer(64, "storage")
    arena.buffer(64, "storage")
    assert [name for name, _ in arena.handles.made].count("vkFreeMemory") == 2
    arena.close()


# Validation.


@pytest.mark.parametrize("storage", ["buffer", "texture"])
def test_a_missing_barrier_is_caught(storage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recording, "between_dispatches", lambda self: None)
    with Device(validation=True) as device:
        result(load(device, storage), codes())
        assert any("SYNC-HAZARD" in message for message in device.messages)


def test_a_leak_is_told() -> None:
    device = Device(validation=True)
    Arena(device).handles.made.clear()
    arena = Arena(device)
    arena.buffer(64, "storage")
    arena.handles.made.clear()
    device.close()
    assert any("vkDestroyDevice" in m for m in device.messages)


# What is not there.


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folders with all installed packages: without vulkan, or with one that finds no loader."""

    @cache
    def make(kind: str) -> Path:
        folder = tmp_path_factory.mktemp(kind)
        for path in SITE.iterdir():
            if not path.name.startswith("vulkan"):
                (folder / path.name).symlink_to(path)
        if kind == "no_loader":
            shutil.copytree(SITE / "vulkan", folder / "vulkan")
            source = folder / "vulkan" / "_vulkan.py"
            source.write_text(source.read_text().replace("'libvulkan.so.1'", "'libnowhere.so.1'"))
        return folder

    return make


UNAVAILABLE = "from qtoolkit import backends; print(backends.unavailable('vulkan'))"
DOCTOR = "import sys; from qtoolkit.cli import main; sys.argv[1:] = ['doctor']; sys.exit(main())"
APT = "sudo apt-get install libvulkan1 mesa-vulkan-drivers"
PIP = "python -m pip install 'qtoolkit[vulkan]'"


@pytest.mark.parametrize(
    ("kind", "said", "remedy"),
    [
        ("no_package", "needs the package vulkan", PIP),
        ("no_loader", "no Vulkan loader (libvulkan.so.1)", APT),
        ("no_driver", "no Vulkan driver", APT),
        ("no_driver_folder", "no Vulkan driver", APT),
        ("broken_driver", "no Vulkan driver", APT),
    ],
)
def test_what_is_missing_is_one_line_that_says_what_to_install(
    kind: str, said: str, remedy: str, site: Callable[[str], Path], tmp_path: Path
) -> None:
    flags: tuple[str, ...] = ()
    env: dict[str, str] = {}
    if kind in ("no_package", "no_loader"):
        flags, env = ("-S",), {"PYTHONPATH": f"{ROOT}:{site(kind)}"}
    elif kind == "no_driver":
        env = {"VK_ICD_FILENAMES": str(tmp_path / "none.json")}
    elif kind == "no_driver_folder":
        env = {"VK_DRIVER_FILES": str(tmp_path), "VK_ICD_FILENAMES": str(tmp_path)}
    else:
        broken = tmp_path / "icd.json"
        broken.write_text(
            '{"file_format_version": "1.0.0",'
            ' "ICD": {"library_path": "/nowhere/lib.so", "api_version": "1.3.0"}}'
        )
        env = {"VK_ICD_FILENAMES": str(broken)}
    told = python(UNAVAILABLE, *flags, **env)
    assert told.returncode == 0, told.stderr
    (line,) = told.stdout.splitlines()
    assert said in line and line.endswith(remedy)
    if kind in ("no_package", "no_loader", "no_driver"):
        found = python(DOCTOR, *flags, **env)
        assert found.returncode == 0, found.stderr
        assert "Vulkan       no device" in found.stdout and remedy in found.stdout


def test_a_missing_validation_layer_is_one_line_that_says_what_to_install(tmp_path: Path) -> None:
    told = python(
        "from qtoolkit.backends.vulkan import Device\n"
        "from qtoolkit.errors import MissingDependency\n"
        "try: Device(validation=True)\n"
        "except MissingDependency as missing: print(missing)",
        VK_LAYER_PATH=str(tmp_path),
    )
    assert told.stdout.endswith("sudo apt-get install vulkan-validationlayers\n"), told.stderr
