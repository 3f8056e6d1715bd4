"""The model of an epoch, on steps small enough to work out by hand."""

from typing import Any

import numpy as np
import pytest
import torch
from fixed_rates import BYTE_S, FLOP_S, FixedRates, step_of

from gnndist.errors import ConfigError
from gnndist.inspection.costs import Costs
from gnndist.inspection.counts import Messages, ViewCounts
from gnndist.inspection.network import Network, parse_bandwidth, parse_latency
from gnndist.inspection.operations import (
    Arrive,
    Depart,
    Operation,
    Product,
    RankSizes,
    Reduce,
    Size,
    Stream,
)
from gnndist.inspection.simulate import Epoch, simulate
from gnndist.inspection.wire import measured_wire

WIDTH = 100
"""bytes of a message"""


class NoLocality:
    """No sparse products here."""


def sizes(rows: list[int], pairs: list[list[int]]) -> RankSizes:
    """Ranks of so many vertices that send each other so many messages."""
    ranks = len(rows)
    none = np.zeros(ranks, np.int64)
    messages = Messages(pairs=np.array(pairs), send_entries=none, receive_entries=none)
    view = ViewCounts(
        rows=np.array(rows),
        columns=np.array(rows),
        local_edges=none,
        cut_edges=none,
        unlooped=none,
        senders=none,
        receivers=none,
        boundary=none,
        plain=messages,
        cover=messages,
    )
    return RankSizes(whole=view, views=[view])


def predict(
    operations: list[Operation], of: RankSizes, network: Network, rates: FixedRates | None = None
) -> Epoch:
    trace = step_of(operations)
    rates = rates or FixedRates()
    locality: Any = NoLocality()
    costs = Costs(
        rates=rates,
        locality=locality,
        wire=measured_wire(rates),
        dtype=torch.float32,
        overhead_s=0.0,
    )
    return simulate(trace, of, costs, network)


def product(flops: float) -> Product:
    """So many operations a vertex."""
    return Product(rows=Size("vertices", 0), flops=flops, k=1, n=1, inner=False)


def depart(backward: bool = False) -> Depart:
    return Depart(exchange=1, view=0, cover=True, backward=backward, message_bytes=WIDTH)


PAIR = sizes([10, 30], [[0, 1000], [1000, 0]])
HOSTS = Network(bandwidth=1e6, latency=0.01)


def test_a_rank_uses_all_cores_of_its_host_and_waits_for_the_slowest() -> None:
    epoch = predict([product(1e6), Reduce(nbytes=8)], PAIR, HOSTS)
    # 2 cores share 10 and 30 million operations at 1 GFLOP/s.
    assert epoch.work_s["dense"].tolist() == pytest.approx([5e-3, 15e-3])
    ring = 2 * (1e-4 + 0.01 + 4 / 1e6)
    assert epoch.epoch_s == pytest.approx(15e-3 + ring)
    assert epoch.reduce_s.tolist() == pytest.approx([10e-3 + ring, ring])


def test_ranks_of_one_host_share_its_cores() -> None:
    four = sizes([10, 10, 10, 10], np.zeros((4, 4), int).tolist())
    epoch = predict([product(1e6)], four, Network(ranks_per_host=4))
    assert epoch.work_s["dense"].tolist() == pytest.approx([20e-3] * 4)  # 40 M on two cores
    alone = predict([product(1e6)], four, Network(ranks_per_host=1))
    assert alone.epoch_s == pytest.approx(5e-3)


def test_an_idle_neighbour_leaves_its_core() -> None:
    uneven = sizes([100, 0, 0, 0], np.zeros((4, 4), int).tolist())
    epoch = predict([product(1e6)], uneven, Network(ranks_per_host=4))
    assert epoch.epoch_s == pytest.approx(0.1)  # one thread a rank: a core of its own suffices


def test_a_message_takes_the_link_and_the_latency() -> None:
    epoch = predict([depart(), Arrive(exchange=1)], PAIR, HOSTS)
    assert epoch.wait_s.tolist() == pytest.approx([0.11, 0.11])  # 100 kB at 1 MB/s and 10 ms


def test_work_meanwhile_hides_a_message() -> None:
    operations = [depart(), product(1e7), Arrive(exchange=1)]
    epoch = predict(operations, PAIR, HOSTS)
    # Rank 0 works for 50 ms of the 110, rank 1 for 150.
    assert epoch.wait_s.tolist() == pytest.approx([0.06, 0.0])
    assert epoch.epoch_s == pytest.approx(0.15)


def test_a_message_leaves_when_both_ranks_are_there() -> None:
    epoch = predict([product(1e7), depart(), Arrive(exchange=1)], PAIR, HOSTS)
    # Rank 0 is there after 50 ms, rank 1 after 150.
    assert epoch.wait_s.tolist() == pytest.approx([0.21, 0.11])


def test_backward_goes_the_other_way() -> None:
    one_way = sizes([10, 10], [[0, 1000], [0, 0]])
    forward = predict([depart(), Arrive(exchange=1)], one_way, HOSTS)
    backward = predict([depart(backward=True), Arrive(exchange=1)], one_way, HOSTS)
    assert forward.wait_s.tolist() == pytest.approx([0.0, 0.11])
    assert backward.wait_s.tolist() == pytest.approx([0.11, 0.0])


def test_ranks_of_a_host_share_its_link() -> None:
    pairs = [[0, 0, 1000, 0], [0, 0, 0, 1000], [0, 0, 0, 0], [0, 0, 0, 0]]
    epoch = predict(
        [depart(), Arrive(exchange=1)],
        sizes([1] * 4, pairs),
        Network(bandwidth=1e6, latency=0.0, ranks_per_host=2),
    )
    assert epoch.wait_s.tolist() == pytest.approx([0.0, 0.0, 0.2, 0.2])


def test_messages_within_a_host_do_not_use_the_link() -> None:
    epoch = predict(
        [depart(), Arrive(exchange=1)],
        PAIR,
        Network(bandwidth=1.0, latency=5.0, ranks_per_host=2),
        FixedRates(latency=1e-3),
    )
    assert epoch.wait_s.tolist() == pytest.approx([1.1e-3, 1.1e-3])  # 100 kB at 1 GB/s, 1 ms


def test_messages_cost_their_ranks_time() -> None:
    star = sizes([1] * 4, [[0, 1, 1, 1], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]])
    epoch = predict([depart(), Arrive(exchange=1)], star, HOSTS, FixedRates(message_s=1e-3))
    assert epoch.work_s["transport"].tolist() == pytest.approx([6e-3, 2e-3, 2e-3, 2e-3])


def test_elementwise_operations_take_their_bytes() -> None:
    stream = Stream(traffic={Size("vertices", 0): 1e6, None: 1e12}, fused=True)
    epoch = predict([stream], PAIR, HOSTS)  # constants are no work of the graph's
    assert epoch.work_s["elementwise"].tolist() == pytest.approx(
        [1e7 * BYTE_S / 2, 3e7 * BYTE_S / 2]
    )


def test_one_rank_reduces_nothing() -> None:
    alone = sizes([10], [[0]])
    epoch = predict([product(1e6), Reduce(nbytes=1000)], alone, HOSTS)
    assert epoch.epoch_s == pytest.approx(10 * 1e6 * FLOP_S / 2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10Gbit", 1.25e9),
        ("200 Mbit/s", 25e6),
        ("25gbit", 3.125e9),
        ("1.25GB", 1.25e9),
        ("100Mb", 12.5e6),
        ("100MB/s", 100e6),
        ("9600bit", 1200),
    ],
)
def test_bandwidths(text: str, expected: float) -> None:
    assert parse_bandwidth(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("50us", 50e-6), ("0.2 ms", 2e-4), ("1s", 1.0), ("0", 0.0), ("7ns", 7e-9)],
)
def test_latencies(text: str, expected: float) -> None:
    assert parse_latency(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "fast", "-1Gbit", "0Gbit", "10", "10Gbits", "1.2.3Gbit"])
def test_bandwidths_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="10Gbit"):
        parse_bandwidth(text)


@pytest.mark.parametrize("text", ["", "soon", "-1us", "50", "1.2.3s", "5 min"])
def test_latencies_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="50us"):
        parse_latency(text)


def test_a_host_holds_at_least_a_rank() -> None:
    with pytest.raises(ConfigError, match="0 ranks a host"):
        Network(ranks_per_host=0)
    assert Network(ranks_per_host=3).host(7) == [0, 0, 0, 1, 1, 1, 2]
