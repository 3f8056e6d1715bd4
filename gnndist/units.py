"""Bytes, seconds and counts as people read them."""

_BYTES = ("B", "kB", "MB", "GB", "TB", "PB")


def size(count: float) -> str:
    """Bytes to three figures: ``7.28 kB``, ``19.4 MB``."""
    unit = 0
    while count >= 999.5 and unit < len(_BYTES) - 1:
        count /= 1000
        unit += 1
    return f"{count:.3g} {_BYTES[unit]}"


def duration(seconds: float) -> str:
    """Seconds to three figures: ``5.97 ms``, ``1.64 s``, ``12 min``, ``3.1 h``."""
    if seconds < 0.9995:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 119.5:
        return f"{seconds:.3g} s"
    if seconds < 119.5 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def counted(count: int, noun: str) -> str:
    """``1 rank``, ``2 ranks``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
