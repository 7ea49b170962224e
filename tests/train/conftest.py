"""One tiny base model for all trainings, and a stage for the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import stage

__all__ = ["stage"]


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory in Hugging Face format."""
    import torch

    from tests.train import tiny

    torch.set_num_threads(1)
    return tiny.base(tmp_path_factory.mktemp("base"), context=8192)
