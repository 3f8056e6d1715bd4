"""Recorded shapes → operations in terms of a plan's sizes."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from torch import Tensor

from gnndist.inspection.held import Held
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
    recorder: Recorder,
    arrays: Sequence[Held],
    sizes: Mapping[Size, int],
    *,
    layers: int,
    layered: bool,
    parameters: Sequence[Tensor],
) -> StepTrace:
    """The second of the two steps that a recorder saw, an evaluation between them.

    Parameters
    ----------
    arrays:
        what the rank's graph holds in the end.
    sizes:
        what each size of the recorded rank's plans was; where two are equal the first one named
        is taken for both.
    """
    widths = {width for parameter in parameters for width in parameter.shape}
    reading = _Reading(sizes, widths)
    first, _, evaluation, second = (recorder.events[a:b] for a, b in pairwise(recorder.marks))
    sent, sent_before = (
        [event for event in part if event.sent is not None] for part in (second, first)
    )
    tensors = {storage.address for storage in recorder.storages}
    return StepTrace(
        layers=layers,
        layered=layered,
        operations=[reading.operation(event) for event in second],
        once=[reading.depart(event) for event in sent_before[: len(sent_before) - len(sent)]],
        evaluation=[reading.operation(event) for event in evaluation],
        memory=[reading.amount(alive.items()) for alive in recorder.live],
        buffers=[
            (id(memory), reading.amount([(memory.shape, memory.nbytes)]), taken)
            for memory, taken in recorder.buffers
        ],
        graph_memory=reading.held(array for array in arrays if array.address not in tensors),
        parameters=sum(parameter.numel() for parameter in parameters),
        unexplained=sorted(reading.unexplained),
    )


class _Reading:
    def __init__(self, sizes: Mapping[Size, int], widths: set[int]) -> None:
        self._sizes = sizes
        self._by_number: dict[int, Size] = {}
        order = {"vertices": 0, "owned": 2}
        for size, number in sorted(sizes.items(), key=lambda item: order.get(item[0].kind, 1)):
            if number > 2 and number not in widths:
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
                heads=event.heads,
                itemsize=event.itemsize,
                table=self.size(event.table),
                rows=self.size(event.rows),
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

    def amount(self, arrays: Iterable[tuple[Shape, int]]) -> Amount:
        """Bytes by size, from shapes and bytes."""
        found: dict[Size | None, float] = {}
        for shape, nbytes in arrays:
            size = next((s for d in shape if (s := self.size(d)) is not None), None)
            each = nbytes / self._sizes[size] if size is not None else float(nbytes)
            found[size] = found.get(size, 0.0) + each
            if size is None and nbytes > SMALL:
                self.unexplained.add(str(shape))
        return found

    def held(self, arrays: Iterable[Held]) -> Amount:
        """Bytes by size; an index of rows has one number more than there are rows."""
        return self.amount(
            ((length if self.size(length) is not None else length - 1,), nbytes)
            for length, nbytes, _ in arrays
        )

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
