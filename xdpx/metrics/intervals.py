"""How far a score may be from what it would be on endless data."""

from __future__ import annotations

import math

Z95 = 1.959964
"""Of the standard normal distribution, 95 % lie within so many standard deviations."""


def share_interval(share: float, total: int) -> tuple[float, float]:
    """Return the ends of the 95 % interval of a share that was counted, such as accuracy; never outside [0, 1].

    Args:
        share: in [0, 1].
        total: of the rows it was counted on, 1 or more.

    Source: Wilson, Journal of the American Statistical Association 22 (1927), the score interval. It holds where few
    rows or shares near 0 and 1 make the usual one far too narrow.
    """
    spread = Z95**2 / total
    middle = share + spread / 2
    reach = Z95 * math.sqrt(share * (1 - share) / total + spread / (4 * total))
    return max(0.0, (middle - reach) / (1 + spread)), min(1.0, (middle + reach) / (1 + spread))
