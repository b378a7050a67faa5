"""The native part. Without it the package can be imported, but not used."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from ._native import Error, TaskClosed, __version__

    _native: ModuleType | None
    _missing: ImportError | None
else:
    try:
        from . import _native
        from ._native import Error, TaskClosed, __version__

        _missing = None
    except ImportError as _error:  # a source tree, or a platform without a wheel
        _native, _missing, __version__ = None, _error, "unknown"

        class Error(RuntimeError):
            """An error that the server reports."""

        class TaskClosed(Error):
            """The turn is over."""


__all__ = ["Error", "TaskClosed", "__version__", "check"]


def check() -> None:
    """Checks that the native part is loaded.

    Raises:
        Error: the native part is missing or cannot be loaded.
    """
    if _native is None:
        raise Error(
            f"the native part of peregrine cannot be loaded ({_missing}): install a wheel for this "
            "platform, or build one with `pip install .` in the source tree, which needs Rust"
        ) from _missing
