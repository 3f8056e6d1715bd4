"""What runs came to: one page of curves, times and traffic, and lists of runs."""

from gnndist.report.page import report
from gnndist.report.record import RunRecord, find_runs, read_run, read_runs

__all__ = ["RunRecord", "find_runs", "read_run", "read_runs", "report"]
