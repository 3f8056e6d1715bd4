"""Optional packages: imported when first needed, with one clear line when missing."""

import importlib
from types import ModuleType

from gnndist.errors import GnndistError


def need(module: str, extra: str, purpose: str) -> ModuleType:
    """Import and return `module`, or say which extra brings it.

    Raises
    ------
    GnndistError
        naming the package, what needs it and how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise GnndistError(
            f"{purpose} needs the package {package!r}, which does not import ({error}); "
            f"install it with: pip install 'gnndist[{extra}]'"
        ) from error
