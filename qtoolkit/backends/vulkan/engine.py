"""A compiled graph on a device: memory placed, constants uploaded, commands recorded once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.backends.vulkan.descriptors import Launch, Resource, bindings
from qtoolkit.backends.vulkan.device import Device
from qtoolkit.backends.vulkan.dispatch import (
    Alias,
    Blob,
    Bound,
    Constant,
    Dispatch,
    HostCall,
    Operand,
)
from qtoolkit.backends.vulkan.memory import Arena
from qtoolkit.backends.vulkan.recording import Copy, Recording
from qtoolkit.backends.vulkan.tensors import Kind, Placed, pack, unpack
from qtoolkit.graph import Graph, Node, Ref, value_name

Array = NDArray[Any]
ALIGNMENT = 16  # of copies: a texel


@dataclass(slots=True)
class Segment:
    """Nodes that run in one submission, or one node on the host."""

    nodes: list[Node] = field(default_factory=list)
    host: HostCall | None = None
    uploads: dict[str, tuple[Placed, Copy]] = field(default_factory=dict)
    downloads: dict[str, tuple[Placed, Copy]] = field(default_factory=dict)
    recording: Recording | None = None


class VulkanEngine:
    """Runs a graph whose nodes are bound; holds all its memory until `close`.

    Every value is read back: a Run keeps them all.
    """

    def __init__(self, device: Device, graph: Graph, bound: Mapping[str, Bound]) -> None:
        self.device, self.graph, self.bound = device, graph, bound
        self.name = str(device)
        with device.lock:
            self.arena = Arena(device)
            self.recordings: list[Recording] = []
            self.resources: dict[str, Resource] = {}
            self.placed: dict[str, Placed] = {}
            self.blobs: dict[int, Resource] = {}
            self.open = True
            device.children.add(self)
            try:
                self._build()
            except BaseException:
                self.close()
                raise

    def run(self, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, float]]:
        """Every value by name, and seconds for each node by the device's clock."""
        values: dict[str, Array] = dict(inputs)
        seconds: dict[str, float] = {}
        with self.device.lock:
            for segment in self.segments:
                if segment.host is not None:
                    self._run_on_host(segment, values, seconds)
                else:
                    self._run_on_device(segment, values, seconds)
        return values, seconds

    def close(self) -> None:
        """Free everything; a second call does nothing."""
        with self.device.lock:
            if self.open:
                self.open = False
                self.device.children.discard(self)
                for recording in self.recordings:
                    recording.close()
                self.arena.close()

    def _run_on_host(
        self, segment: Segment, values: dict[str, Array], seconds: dict[str, float]
    ) -> None:
        (node,) = segment.nodes
        assert segment.host is not None
        operands = [values[value_name(ref)] for ref in node.refs()]
        start = perf_counter()
        result = segment.host.run(*operands)
        seconds[node.name] = perf_counter() - start
        for i, value in enumerate(result if isinstance(result, tuple) else (result,)):
            values[value_name(Ref(node.name, i))] = value

    def _run_on_device(
        self, segment: Segment, values: dict[str, Array], seconds: dict[str, float]
    ) -> None:
        staging, recording = self.staging.mapped, segment.recording
        assert staging is not None and recording is not None
        for name, (placed, copy) in segment.uploads.items():
            raw = pack(values[name], placed).reshape(-1).view(np.uint8)
            staging[copy.offset : copy.offset + copy.size] = raw
        recording.submit()
        seconds |= dict.fromkeys((n.name for n in segment.nodes), 0.0) | recording.seconds()
        if segment.downloads:
            first = min(copy.offset for _, copy in segment.downloads.values())
            end = max(copy.offset + copy.size for _, copy in segment.downloads.values())
            raw = staging[first:end].copy()
            for name, (placed, copy) in segment.downloads.items():
                at = copy.offset - first
                values[name] = unpack(raw[at : at + copy.size], placed)
        for dispatch in (d for node in segment.nodes for d in self._dispatches(node)):
            if dispatch.check is not None:
                dispatch.check(values)
        for node in segment.nodes:
            alias = self.bound.get(node.name)
            if isinstance(alias, Alias):
                values[node.name] = values[alias.of.value].reshape(node.type.sizes)

    def _build(self) -> None:
        self.device.pipelines.look_again()
        self.segments = self._segments()
        self._place_values()
        there: set[str] = set()
        ends = [self._plan_copies(segment, there) for segment in self.segments]
        self.staging = self.arena.buffer(max([16, *ends]), "staging", host=True)
        launches = [
            {n.name: self._launches(n) for n in segment.nodes if self._dispatches(n)}
            for segment in self.segments
        ]
        self._upload_constants()
        for segment, each in zip(self.segments, launches, strict=True):
            if segment.host is None:
                self._record(segment, each)

    def _segments(self) -> list[Segment]:
        """Consecutive nodes of the device together, every host call by itself."""
        found: list[Segment] = []
        for node in self.graph.nodes:
            bound = self.bound.get(node.name)
            if isinstance(bound, HostCall):
                found.append(Segment([node], bound))
            elif bound is not None:
                if not found or found[-1].host is not None:
                    found.append(Segment())
                found[-1].nodes.append(node)
        return found

    def _dispatches(self, node: Node) -> tuple[Dispatch, ...]:
        bound = self.bound[node.name]
        return bound if isinstance(bound, tuple) else ()

    def _place_values(self) -> None:
        """Memory for every value that a shader reads or writes."""
        for segment in self.segments:
            for node in segment.nodes:
                bound = self.bound[node.name]
                if isinstance(bound, Alias):
                    self._value(bound.of)
                    self.resources[node.name] = self.resources[bound.of.value]
                for dispatch in self._dispatches(node):
                    for operand in dispatch.operands.values():
                        if isinstance(operand, Placed):
                            self._value(operand)

    def _value(self, placed: Placed) -> None:
        if placed.value not in self.resources:
            self.resources[placed.value] = self._memory_of(placed)
            self.placed[placed.value] = placed

    def _memory_of(self, placed: Placed) -> Resource:
        if placed.texture:
            return self.arena.image(placed.extents, placed.kind is Kind.REALS)
        return self.arena.buffer(placed.nbytes, "storage")

    def _plan_copies(self, segment: Segment, there: set[str]) -> int:
        """What goes up before a segment and down after it; how many bytes of staging that takes.

        there: the values that are on the device already, added to.
        """
        if segment.host is not None:
            return 0
        made = {value_name(Ref(n.name, i)) for n in segment.nodes for i in range(len(n.types))}
        end = 0
        for node in segment.nodes:
            bound = self.bound[node.name]
            read = [bound.of] if isinstance(bound, Alias) else []
            read += [
                o
                for d in self._dispatches(node)
                for o in d.operands.values()
                if isinstance(o, Placed)
            ]
            for placed in read:
                name = placed.value
                if name in there:
                    continue
                there.add(name)
                copies = segment.downloads if name in made else segment.uploads
                copies[name] = placed, Copy(self.resources[name], end, placed.nbytes)
                end += -(-placed.nbytes // ALIGNMENT) * ALIGNMENT
        return end

    def _launches(self, node: Node) -> list[Launch]:
        pipelines, made = self.device.pipelines, []
        for dispatch in self._dispatches(node):
            resources = tuple(self._resource(o) for o in dispatch.operands.values())
            pipeline = pipelines.pipeline(
                dispatch.shader,
                dispatch.defines(self.device.features),
                bindings(resources),
                dispatch.constants,
            )
            made.append(Launch(pipeline, resources, dispatch.params, dispatch.texels))
        return made

    def _resource(self, operand: Operand) -> Resource:
        if isinstance(operand, Placed):
            return self.resources[operand.value]
        if id(operand) not in self.blobs:
            if isinstance(operand, Constant):
                self.blobs[id(operand)] = self._memory_of(operand.placed)
            else:
                self.blobs[id(operand)] = self.arena.buffer(operand.data.nbytes, "storage")
        return self.blobs[id(operand)]

    def _upload_constants(self) -> None:
        """Constants to the device and images into their layout, in one submission of its own."""
        blobs: dict[int, bytes | Array] = {}
        for node in self.graph.nodes:
            for dispatch in self._dispatches(node) if node.name in self.bound else ():
                for o in dispatch.operands.values():
                    if isinstance(o, Blob):
                        blobs[id(o)] = o.data
                    elif isinstance(o, Constant):
                        blobs[id(o)] = pack(o.array, o.placed)
        copies: list[Copy] = []
        raws: list[NDArray[np.uint8]] = []
        end = 0
        for key, data in blobs.items():
            raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
            raws.append(raw)
            if raw.size:
                copies.append(Copy(self.blobs[key], end, raw.size))
                end += -(-raw.size // ALIGNMENT) * ALIGNMENT
        arena = Arena(self.device)
        recording = Recording(self.device, arena)
        try:
            staging = arena.buffer(end, "staging", host=True)
            assert staging.mapped is not None
            for copy, raw in zip(copies, (r for r in raws if r.size), strict=True):
                staging.mapped[copy.offset : copy.offset + copy.size] = raw

            def write() -> None:
                if self.arena.images:
                    recording.ready_images(self.arena.images)
                recording.uploads(staging, copies)
                recording.after_uploads()

            recording.record(write)
            recording.submit()
        finally:
            recording.close()
            arena.close()

    def _record(self, segment: Segment, launches: Mapping[str, list[Launch]]) -> None:
        recording = Recording(self.device, self.arena)
        self.recordings.append(recording)
        segment.recording = recording

        def write() -> None:
            recording.uploads(self.staging, [copy for _, copy in segment.uploads.values()])
            recording.after_uploads()
            recording.launches(launches)
            recording.before_downloads()
            recording.downloads(self.staging, [copy for _, copy in segment.downloads.values()])

        recording.record(write)
