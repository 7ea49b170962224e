"""Putting an examined adapter into the package."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from conductor_cli.models.llama.gguf import check_model_file
from conductor_cli.models.llama.lora import check_adapter, unpack_adapter
from conductor_cli.models.weights.registry import read_record
from tests.tiny_gguf import lora, make
from training.planner.ship import round_adapter, ship


def examination(directory: Path, adapter: Path) -> Path:
    """The figures of an examination of this adapter."""
    result = {
        "easy in one step": "20 of 20",
        "first worker is the best for the skill": "41 of 60",
        "mean characters": 120,
        "examined": "2026-11-29",
        "model_sha256": "1" * 64,
        "adapter_sha256": hashlib.sha256(adapter.read_bytes()).hexdigest(),
    }
    directory.mkdir()
    (directory / "figures.json").write_text(json.dumps(result))
    return directory


def test_what_was_examined_ships_with_its_figures(tmp_path: Path) -> None:
    adapter = lora(tmp_path / "adapter.gguf", rank=16)
    rounded = tmp_path / "rounded.gguf"
    round_adapter(adapter, rounded)
    (tmp_path / "out").mkdir()
    path = ship(adapter, examination(tmp_path / "examined", rounded), tmp_path / "out")
    record = read_record(path)
    assert record.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert record.figures == {
        "easy questions in one step": "20 of 20",
        "first worker as the cards say": "41 of 60",
    }
    unpack_adapter(path, tmp_path / "installed.gguf")
    assert (tmp_path / "installed.gguf").read_bytes() == rounded.read_bytes()
    base = make(tmp_path / "base.gguf")
    check_adapter(rounded, check_model_file(base), base)


def test_figures_of_another_adapter_are_refused(tmp_path: Path) -> None:
    examined = examination(tmp_path / "examined", lora(tmp_path / "other.gguf", seed=2, rank=16))
    adapter = lora(tmp_path / "adapter.gguf", rank=16)
    with pytest.raises(ValueError, match="the examination of another adapter"):
        ship(adapter, examined, tmp_path)
    assert not (tmp_path / "conductor-0.5b.gguf").exists()
