import dataclasses

import numpy as np
import pytest

from spec_jax.partitioning import make_mesh
from spec_jax.partitioning.mesh import _tiled


@dataclasses.dataclass(frozen=True)
class Chip:
    id: int
    process_index: int
    coords: tuple[int, int, int]
    core_on_chip: int = 0


@dataclasses.dataclass(frozen=True)
class Core:
    id: int
    process_index: int


def chips(x, y):
    return [
        Chip(i, i // 4, (i % x, i // x, 0))
        for i in np.random.default_rng(0).permutation(x * y).tolist()
    ]


def test_a_submesh_is_a_block_of_neighbours():
    grid = _tiled(chips(4, 4), (2, 2, 1, 1))
    assert grid.shape == (4, 4)
    for block in grid:
        spread = np.ptp([chip.coords for chip in block], axis=0)
        assert spread.tolist() == [1, 1, 0]
    assert len({chip.id for chip in grid.ravel()}) == 16


def test_elsewhere_a_submesh_is_of_hosts_and_their_devices():
    devices = [Core(100 * host + i, host) for host in (1, 0) for i in (3, 1, 2, 0)]
    grid = _tiled(devices, (2, 2))
    assert [[one.id for one in row] for row in grid] == [
        [0, 1, 100, 101],
        [2, 3, 102, 103],
    ]
    assert [one.id for one in _tiled(devices, (1, 4))[1]] == [100, 101, 102, 103]


@pytest.mark.parametrize("submesh", [(3, 1, 1, 1), (2, 2), (0, 1, 1, 1)])
def test_a_submesh_must_divide(submesh):
    with pytest.raises(ValueError, match=r"divide those of the devices \(4, 4, 1, 1\)"):
        make_mesh(1, submesh, chips(4, 4))


@pytest.mark.parametrize("partitions", [0, 3])
def test_partitions_must_divide(partitions):
    devices = [Core(i, 0) for i in range(8)]
    with pytest.raises(ValueError, match=f"divides the 8 devices, got {partitions}"):
        make_mesh(partitions, devices=devices)
