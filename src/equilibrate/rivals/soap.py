"""SOAP (Vyas et al. 2024) from a maintained package, `pytorch-optimizer`; imported when asked for.

The package takes seconds to import and is no part of this library: it is the extra `wins`. Pages
are drawn without it.
"""

from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.optim import Optimizer


class MissingRival(RuntimeError):
    """Raised where a rival's package is not installed; the text says what to do."""


def soap() -> type[Optimizer]:
    """Return the class, or raise `MissingRival`, naming the extra to install."""
    try:
        from pytorch_optimizer import SOAP
    except ImportError as error:
        raise MissingRival(
            "SOAP comes from the package pytorch-optimizer: pip install 'equilibrate[wins]', or "
            "leave SOAP out with --fighters"
        ) from error
    found: type[Optimizer] = SOAP
    return found


def make_soap(parameters: Iterable[Tensor], **settings: Any) -> Optimizer:
    """Return the optimizer, importing its package now."""
    return soap()(parameters, **settings)
