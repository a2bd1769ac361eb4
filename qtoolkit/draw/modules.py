"""Nodes grouped by the module they come from: the blocks of a network, in order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of consecutive nodes of one module; first and last index them, both included."""

    label: str
    first: int
    last: int


def blocks(paths: Sequence[str]) -> tuple[Block, ...]:
    """Cut a sequence of module paths into blocks.

    A path belongs to the shortest prefix that ends in a number and contains other modules
    ('features.3' of 'features.3.conv.0'), else to the model itself. A node without a path belongs
    to the block it stands in. A stretch of the model itself is named after its own modules.
    """
    containers = {prefix for path in paths for prefix in _prefixes(path)[:-1]}
    keys: list[str] = []
    for path in paths:
        key = next((p for p in _prefixes(path) if p in containers and _numbered(p)), "")
        keys.append(keys[-1] if not path and keys else key)
    return tuple(_cut(keys, paths))


def _cut(keys: Sequence[str], paths: Sequence[str]) -> Iterator[Block]:
    first = 0
    for i in range(1, len(keys) + 1):
        if i == len(keys) or keys[i] != keys[first]:
            yield Block(keys[first] or _own_label(paths[first:i]), first, i - 1)
            first = i


def _own_label(paths: Sequence[str]) -> str:
    """'conv1 … fc' for a stretch of modules that no numbered block holds."""
    tops = list(dict.fromkeys(_prefixes(path)[0] for path in paths if path))
    if not tops:
        return ""
    return tops[0] if len(tops) == 1 else f"{tops[0]} … {tops[-1]}"


def _prefixes(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def _numbered(prefix: str) -> bool:
    return prefix.rpartition(".")[2].isdigit()
