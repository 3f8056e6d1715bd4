"""What runs came to: one page of curves, times and traffic, and lists of runs."""

from gnndist.report.page import report
from gnndist.report.reading import find_runs, read_run, read_runs
from gnndist.report.record import RunRecord

__all__ = ["RunRecord", "find_runs", "read_run", "read_runs", "report"]
