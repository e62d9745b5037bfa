"""What the paper proves, where it is a number that one can use."""

import math
from statistics import NormalDist

from vbe.types import UsageError


def optimistic_bonus_scale(*, ensemble_size: int, num_features: int, max_value: float, failure_probability: float) -> float:
    """The bonus scale c with which VBE starts out optimistic: q(s, a) + c b(s, a) > max_value at any state and action.

    This holds with probability 1 - failure_probability over the initial weights, if these are independent draws from
    N(0, 1 / num_features) and the last layer's features have unit length (the paper's proposition on optimistic initial values).
    The condition is

        c >= sqrt(n / pi) (max_value - z / sqrt(n)) / sqrt(log(k / 2) - log log(2 / failure_probability))

    with z the lower failure_probability / 2 quantile of N(0, 1). The paper prints the last term without its square root; its own
    proof has it. Without, c comes out too small wherever the term is above 1.

    Args:
      ensemble_size: k. There is such a c only if it is above 2 log(2 / failure_probability).
      num_features: n, how many features the last layer has.
      max_value: what shall be exceeded, such as the largest return that there can be.
      failure_probability: how probable it may be that it is not.

    Returns:
      The least c of the condition; 0 where the values alone are large enough.

    Raises:
      UsageError: if an argument is impossible, or the ensemble too small.

    Example:
      >>> c = optimistic_bonus_scale(ensemble_size=20, num_features=50, max_value=1.0, failure_probability=0.1)
      >>> round(c, 2)
      4.48
    """
    for name, count in {"ensemble_size": ensemble_size, "num_features": num_features}.items():
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise UsageError(f"{name}={count!r}: must be an integer of at least 1")
    if not math.isfinite(max_value):
        raise UsageError(f"max_value={max_value!r}: must be a finite number")
    if not 0 < failure_probability < 1:
        raise UsageError(f"failure_probability={failure_probability!r}: must be above 0 and below 1")
    least = 2 * math.log(2 / failure_probability)
    if ensemble_size <= least:
        raise UsageError(
            f"ensemble_size={ensemble_size!r}: must be above {least:.2f}, which is 2 log(2 / failure_probability), "
            "to be certain of optimism"
        )
    quantile = NormalDist().inv_cdf(failure_probability / 2)
    excess = math.log(ensemble_size / 2) - math.log(math.log(2 / failure_probability))
    return max(0.0, math.sqrt(num_features / math.pi) * (max_value - quantile / math.sqrt(num_features)) / math.sqrt(excess))
