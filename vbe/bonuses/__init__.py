"""Value bonuses: one file per method, each a factory of `vbe.types.Bonus`."""

from vbe.bonuses.none import none
from vbe.bonuses.vbe import vbe

__all__ = ["none", "vbe"]
