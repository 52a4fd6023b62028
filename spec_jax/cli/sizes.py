"""Sizes as a user reads them."""


def byte_size(count: int) -> str:
    """Bytes in the unit that leaves one to three digits before the point.

    Example:
      >>> byte_size(512), byte_size(24_986_624), byte_size(45_000_000_000)
      ('512 B', '25.0 MB', '45.0 GB')
    """
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
