"""Recorded shapes → operations in terms of a plan's sizes."""

from collections.abc import Mapping

from gnndist.inspection.operations import (
    Amount,
    Arrive,
    Depart,
    Gather,
    Operation,
    Product,
    Reduce,
    Size,
    StepTrace,
    Stream,
)
from gnndist.inspection.recorder import Event, Recorder, Shape

SMALL = 4096
"""bytes below which an array of unknown size is not worth a word"""


def read_step(
    recorder: Recorder, sizes: Mapping[Size, int], *, layers: int, layered: bool, parameters: int
) -> StepTrace:
    """The second of the two steps that a recorder saw.

    Parameters
    ----------
    sizes:
        what each size of the recorded rank's plans was; where two are equal the first one named
        is taken for both.
    """
    reading = _Reading(sizes)
    start, middle, stop = recorder.marks
    steady = [reading.operation(event) for event in recorder.events[middle:stop]]
    sent = [e for e in recorder.events[middle:stop] if e.sent is not None]
    before = [e for e in recorder.events[start:middle] if e.sent is not None]
    once = [reading.depart(event) for event in before[: len(before) - len(sent)]]
    memory = [
        reading.amount([(shape, nbytes) for shape, nbytes in alive.items()])
        for alive in recorder.live[middle:stop]
    ]
    return StepTrace(
        layers=layers,
        layered=layered,
        operations=steady,
        once=once,
        memory=memory,
        parameters=parameters,
        unexplained=sorted(reading.unexplained),
    )


class _Reading:
    def __init__(self, sizes: Mapping[Size, int]) -> None:
        self._sizes = sizes
        self._by_number: dict[int, Size] = {}
        order = {"vertices": 0, "owned": 2}
        for size, number in sorted(sizes.items(), key=lambda item: order.get(item[0].kind, 1)):
            if number > 2:
                self._by_number.setdefault(number, size)
        self.unexplained: set[str] = set()

    def size(self, number: int) -> Size | None:
        return self._by_number.get(number)

    def operation(self, event: Event) -> Operation:
        if event.sent is not None:
            return self.depart(event)
        if event.name == "arrive":
            return Arrive(exchange=event.exchange)
        if event.name == "reduce":
            return Reduce(nbytes=event.nbytes)
        if event.edges is not None:
            return Gather(
                entries=self.size(event.edges),
                width=event.width,
                itemsize=event.itemsize,
                table=self.size(event.table),
                kernel=event.name,
            )
        if event.product is not None:
            return self._product(event.product)
        return Stream(traffic=self.amount(event.arrays), fused="." in event.name)

    def depart(self, event: Event) -> Depart:
        """Which plan's exchange this is, and in which direction."""
        assert event.sent is not None
        for size, number in self._sizes.items():
            if size.kind != "sent":
                continue
            sent, received = number, self._sizes[size._replace(kind="received")]
            if event.sent in ((sent, received), (received, sent)):
                return Depart(
                    exchange=event.exchange,
                    view=size.view,
                    cover=size.cover,
                    backward=event.sent == (received, sent),
                    message_bytes=event.nbytes,
                )
        raise AssertionError(f"an exchange of {event.sent} messages is in no plan")

    def amount(self, arrays: list[tuple[Shape, int]] | tuple[()] | object) -> Amount:
        """Bytes by size."""
        found: dict[Size | None, float] = {}
        assert isinstance(arrays, list | tuple)
        for shape, nbytes in arrays:
            size = next((s for d in shape if (s := self.size(d)) is not None), None)
            each = nbytes / self._sizes[size] if size is not None else float(nbytes)
            found[size] = found.get(size, 0.0) + each
            if size is None and nbytes > SMALL:
                self.unexplained.add(str(shape))
        return found

    def _product(self, product: tuple[int, int, int]) -> Product:
        m, k, n = product
        outer, inner, last = (self.size(d) for d in product)
        rows = outer or inner or last
        number = next((d for d in product if self.size(d) is not None), 1)
        widths = [d for d in product if d != number] if rows is not None else [k, n]
        k_width, n_width = (*widths, 1, 1)[:2]
        return Product(
            rows=rows,
            flops=2.0 * m * k * n / number,
            k=k_width,
            n=n_width,
            inner=outer is None and inner is not None,
        )
