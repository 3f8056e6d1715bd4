"""The parts of an epoch, read off made-up traces: every instant belongs to exactly one."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnndist import ranges
from gnndist.training.breakdown import PARTS, EpochParts, epoch_parts, mean_parts, part_of

MAIN, AUTOGRAD = 7, 8


def event(name: str, begin: float, end: float, tid: int = MAIN, **more: Any) -> dict[str, Any]:
    cat = "cpu_op" if name.startswith("aten::") else "user_annotation"
    return {"ph": "X", "cat": cat, "name": name, "tid": tid, "ts": begin, "dur": end - begin} | more


def epoch(begin: float, end: float, number: int = 3) -> dict[str, Any]:
    return event(f"{ranges.EPOCH} {number}", begin, end)


def microseconds(found: EpochParts) -> dict[str, float]:
    return {part: round(1e6 * s, 6) for part, s in found.parts.items() if s}


def test_nested_ranges_fill_the_epoch_without_overlap() -> None:
    events = [
        event("aten::add", 0, 90),  # before the epoch
        epoch(100, 200),
        event("aten::linear", 110, 130),
        event("aten::copy_", 115, 120),  # inside a matrix product: dense
        event(ranges.POST, 130, 132),
        event(ranges.SPARSE, 132, 150),
        event("aten::empty", 133, 134),
        event(ranges.WAIT, 150, 155),
        event("aten::relu", 155, 160),
        event(ranges.REDUCE, 160, 170),
        event("Optimizer.step#Adam.step", 170, 190),
        event("aten::addcmul_", 172, 180),  # inside the step: the optimiser's
        event("aten::mm", 120, 140, tid=AUTOGRAD),  # another thread's time is not this one's
    ]
    (found,) = epoch_parts(events, in_flight=[(130, 155)])
    assert found.epoch == 3
    assert found.epoch_s == pytest.approx(100e-6)
    assert microseconds(found) == {
        "sparse": 18,
        "dense": 20,
        "elementwise": 5,
        "exchange": 7,
        "reduce": 10,
        "optimizer": 20,
        "other": 20,
    }
    assert found.hidden_s == pytest.approx(18e-6)  # 25 in flight, 7 of them exposed


def test_exchanges_in_flight_together_count_once_and_within_their_epoch() -> None:
    events = [epoch(0, 100), event(ranges.WAIT, 40, 50), epoch(100, 150, number=4)]
    first, second = epoch_parts(events, in_flight=[(10, 45), (20, 48), (90, 120)])
    assert first.hidden_s == pytest.approx((38 - 8 + 10) * 1e-6)
    assert second.hidden_s == pytest.approx(20e-6)
    assert second.parts["exchange"] == 0


@st.composite
def nests(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Ranges that nest as a thread's do, some reaching out of the epoch at its end."""
    names = st.sampled_from(
        [
            "aten::mm",
            "aten::add",
            ranges.SPARSE,
            ranges.WAIT,
            ranges.REDUCE,
            "Optimizer.step#x",
            "?",
        ]
    )
    found = []

    def fill(begin: int, end: int, depth: int) -> None:
        cuts = sorted(draw(st.lists(st.integers(begin, end), max_size=6)))
        for a, b in zip(cuts[::2], cuts[1::2], strict=False):
            found.append(event(draw(names), a, b))
            if depth and b - a > 2:
                fill(a, b, depth - 1)

    fill(0, 1000, 2)
    return draw(st.permutations(found))


@settings(deadline=None, max_examples=60)
@given(nests(), st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 300)), max_size=4))
def test_parts_sum_to_the_epoch(events: list[dict[str, Any]], flights: list[Any]) -> None:
    in_flight = [(float(a), float(a + length)) for a, length in flights]
    (found,) = epoch_parts([*events, epoch(0, 1000)], in_flight)
    assert set(found.parts) == set(PARTS)
    assert all(seconds >= 0 for seconds in found.parts.values())
    assert sum(found.parts.values()) == pytest.approx(found.epoch_s, rel=1e-12)
    beside = found.epoch_s - found.parts["exchange"]
    assert 0 <= found.hidden_s <= beside + 1e-15


def test_on_a_device_a_kernel_belongs_to_the_call_it_came_from() -> None:
    def launch(at: float, correlation: int, tid: int = MAIN) -> dict[str, Any]:
        args = {"correlation": correlation}
        return event("cudaLaunchKernel", at, at + 1, tid, cat="cuda_runtime", args=args)

    def kernel(name: str, begin: float, end: float, correlation: int) -> dict[str, Any]:
        args = {"correlation": correlation}
        return event(name, begin, end, 0, cat="kernel", args=args)

    nccl = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
    events = [
        epoch(0, 100),
        event(ranges.SPARSE, 1, 5),
        launch(2, 1),
        event(ranges.POST, 6, 8),
        launch(7, 2),
        event("aten::mm", 10, 14, tid=AUTOGRAD),
        launch(11, 3, tid=AUTOGRAD),
        event(ranges.REDUCE, 15, 17),
        launch(16, 4),
        kernel("csrmm", 10, 30, 1),
        kernel(nccl, 20, 50, 2),  # 10 beside csrmm, 10 exposed, 10 beside gemm
        kernel("gemm", 40, 60, 3),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 60, 75, 4),
        kernel("late", 98, 120, 99),  # its launch is not in the trace; cut at the epoch's end
    ]
    (found,) = epoch_parts(events)
    assert microseconds(found) == {
        "sparse": 20,
        "dense": 20,
        "exchange": 10,
        "reduce": 15,
        "other": 35,
    }
    assert found.hidden_s == pytest.approx(20e-6)


@pytest.mark.parametrize(
    ("name", "outer", "part"),
    [
        ("aten::_sparse_mm_reduce_impl", "other", "sparse"),
        ("aten::scatter_add_", "other", "sparse"),
        ("aten::softmax", "other", "elementwise"),
        ("autograd::engine::evaluate_function: AddBackward0", "other", "other"),
        ("aten::mm", "optimizer", "optimizer"),
        (ranges.WAIT, "sparse", "exchange"),
        (ranges.ELEMENTWISE, "other", "elementwise"),
    ],
)
def test_part_of(name: str, outer: str, part: str) -> None:
    assert part_of(name, outer) == part


def test_mean_of_epochs_still_sums() -> None:
    events = [
        epoch(0, 100),
        event("aten::mm", 0, 50),
        epoch(200, 260, 4),
        event("aten::mm", 200, 210),
    ]
    mean = mean_parts(epoch_parts(events))
    assert mean.epoch_s == pytest.approx(80e-6)
    assert mean.parts["dense"] == pytest.approx(30e-6)
    assert sum(mean.parts.values()) == pytest.approx(mean.epoch_s)
