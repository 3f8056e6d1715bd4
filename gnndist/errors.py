"""Errors a user can cause. The command line prints each as one line and exits with code 2.

GnndistError (a ValueError)
├── DataError      a source file or array is missing, malformed or contradicts itself
├── StoreError     a store is missing, cut short, altered or of another format version
├── ConfigError    an option has a value that is not allowed
└── RunError       a run directory is missing, occupied or does not fit its store
"""


class GnndistError(ValueError):
    """Something the user can put right; the message names the value and what is allowed."""


class DataError(GnndistError):
    """A source of a graph is missing, malformed or contradicts itself."""


class StoreError(GnndistError):
    """A store is missing, cut short, altered or of another format version."""


class ConfigError(GnndistError):
    """An option has a value that is not allowed."""


class RunError(GnndistError):
    """A run directory is missing, occupied or does not fit its store."""
