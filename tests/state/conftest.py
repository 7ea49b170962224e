"""The database server that tests of the shared state use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.state.cluster import Cluster, cluster


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    with cluster() as server:
        yield server
