"""Value bonuses: one file per method, each a factory of `vbe.types.Bonus`."""

from vbe.bonuses.acb import acb
from vbe.bonuses.intrinsic import RewardBonus, intrinsic
from vbe.bonuses.none import none
from vbe.bonuses.rnd import rnd
from vbe.bonuses.vbe import vbe

__all__ = ["RewardBonus", "acb", "intrinsic", "none", "rnd", "vbe"]
