"""Peak figures of TPU chips, as their maker publishes them, and the roofline."""

import dataclasses

GB = 10**9
GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Chip:
    """A chip's peak figures.

    Attributes:
      name: as topologies are called, without their shape.
      memory: bytes of HBM.
      bandwidth: bytes a second to and from it.
      operations: of bfloat16, a second.
      source: where these are published.
      matrix_units: of 128 x 128 multipliers, also published there; None where a chip
        has others.
      config: libtpu's name of a configuration in which a chip is one device; None
        where it is anyway.
    """

    name: str
    memory: int
    bandwidth: float
    operations: float
    source: str
    matrix_units: int | None
    config: str | None = None

    @property
    def clock(self) -> float | None:
        """Hertz, by which the matrix units' multiply-adds are all operations."""
        if self.matrix_units is None:
            return None
        return self.operations / (2 * 128 * 128 * self.matrix_units)

    def roofline(self, bytes_moved: float, operations: float) -> float:
        """The fewest seconds that moving and computing may take, each at its peak."""
        return max(bytes_moved / self.bandwidth, operations / self.operations)


_DOCS = "https://cloud.google.com/tpu/docs/"

CHIPS = {
    chip.name: chip
    for chip in (
        Chip("v4", 32 * GIB, 1200 * GB, 275e12, _DOCS + "v4", 8, "megacore"),
        Chip("v5e", 16 * GB, 819 * GB, 197e12, _DOCS + "v5e", 4),
        Chip("v5p", 95 * GB, 2765 * GB, 459e12, _DOCS + "v5p", 8, "megacore"),
        Chip("v6e", 32 * GB, 1640 * GB, 918e12, _DOCS + "v6e", None),
    )
}


def chip_of(topology: str) -> Chip:
    """The chip of a topology, such as `v4:2x2x1`.

    Raises:
      ValueError: if it is none of `CHIPS`, or the topology has no shape.
    """
    name, colon, shape = topology.partition(":")
    sizes = shape.split("x")
    if name not in CHIPS or not colon or not all(size.isdigit() for size in sizes):
        raise ValueError(
            f"want a topology such as v4:2x2x1 or v5e:2x2, of {', '.join(CHIPS)}, "
            f"got {topology!r}"
        )
    return CHIPS[name]
