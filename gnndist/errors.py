"""Errors a user can cause. The command line prints each as one line and exits with code 2.

GnndistError (a ValueError)
├── DataError      a source file or array is missing, malformed or contradicts itself
├── StoreError     a store is missing, cut short, altered or of another format version
├── ConfigError    an option has a value that is not allowed
└── RunError       a run directory is missing, occupied or does not fit its store

JobFailed (a RuntimeError)   the ranks of a job failed; the message says which, where and why
└── JobStopped               they were told to stop
"""

FAILED, USER_MISTAKE, STOPPED, INTERRUPTED = 1, 2, 75, 130
"""Exit codes: a rank failed or training diverged; something the user can put right; stopped by
SIGTERM or SIGINT with everything saved (EX_TEMPFAIL: run it again with --resume); interrupted
with nothing to save."""


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


class JobFailed(RuntimeError):
    """The ranks of a job failed."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code
        """what the command line exits with"""


class JobStopped(JobFailed):
    """The ranks of a job were told to stop, and have."""

    def __init__(self, message: str, code: int = STOPPED) -> None:
        super().__init__(message, code)
