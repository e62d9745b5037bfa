"""What episodes that may not end by themselves share."""

from numbers import Integral
from typing import Any

from vbe.types import UsageError


def check_time_limit(time_limit: Any) -> int:
    if not (isinstance(time_limit, Integral) and not isinstance(time_limit, bool) and int(time_limit) > 0):
        raise UsageError(f"time_limit={time_limit!r}: must be a positive integer, in steps")
    if int(time_limit) >= 2**31:
        raise UsageError(f"time_limit={time_limit!r}: must be below 2**31")
    return int(time_limit)
