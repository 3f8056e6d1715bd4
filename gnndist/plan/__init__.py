"""From a store to what each rank owns, sends and receives. No processes, no torch."""

from gnndist.plan.build import NEARLY_ALL, RankPlan, RankRows, assemble, build_all, request
from gnndist.plan.matrix import Matrix

__all__ = ["NEARLY_ALL", "Matrix", "RankPlan", "RankRows", "assemble", "build_all", "request"]
