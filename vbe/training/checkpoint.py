"""Checkpoints that a crash cannot spoil: written aside, synced, renamed, checksummed; arrays in `.npz`, no pickle.

The last two are kept. One that is damaged is passed over with a warning.
"""

import hashlib
import io
import json
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Checkpoint(NamedTuple):
    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]  # anything that JSON can hold


def write_aside(path: Path, data: bytes) -> None:
    """Puts `data` at `path` so that after a crash at any moment either all of it is there or nothing new."""
    aside = path.with_name(f".{path.name}.tmp")
    with open(aside, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def save(folder: Path, number: int, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
    """Writes checkpoint `number`; the manifest, written last, is what makes it one."""
    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    data = buffer.getvalue()
    write_aside(folder / f"{number:08d}.npz", data)
    manifest = {"sha256": digest(data), "facts_sha256": _facts_digest(facts), "facts": dict(facts)}
    write_aside(folder / f"{number:08d}.json", json.dumps(manifest, indent=1).encode())
    for old in numbers(folder)[:-2]:
        (folder / f"{old:08d}.json").unlink(missing_ok=True)
        (folder / f"{old:08d}.npz").unlink(missing_ok=True)


def load_newest(folder: Path, check: Callable[[dict[str, Any]], None] = lambda facts: None) -> tuple[int, Checkpoint] | None:
    """The newest checkpoint that is whole, with its number; None if there is none.

    `check` raises a ValueError if what the facts say of other files is not so.
    """
    for number in reversed(numbers(folder)):
        try:
            loaded = _load(folder, number)
            check(loaded.facts)
            return number, loaded
        except (OSError, ValueError, KeyError, TypeError) as error:
            warnings.warn(f"checkpoint {folder / f'{number:08d}'} is damaged and passed over: {error}", stacklevel=2)
    return None


def _load(folder: Path, number: int) -> Checkpoint:
    manifest = json.loads((folder / f"{number:08d}.json").read_bytes())
    data = (folder / f"{number:08d}.npz").read_bytes()
    if digest(data) != manifest["sha256"] or _facts_digest(manifest["facts"]) != manifest["facts_sha256"]:
        raise ValueError("its checksum does not match")
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return Checkpoint(dict(arrays), manifest["facts"])


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _facts_digest(facts: Mapping[str, Any]) -> str:
    return digest(json.dumps(dict(facts), sort_keys=True).encode())


def numbers(folder: Path) -> list[int]:
    """Of all checkpoints that are there, damaged ones too, from the oldest to the newest."""
    return sorted(int(path.stem) for path in folder.glob("[0-9]*.json"))
