"""A buffer is used again exactly when nobody holds it."""

from pathlib import Path

import torch
from graphs import awkward

from gnndist.buffers import SMALLEST, BufferPool
from gnndist.comm import SingleComm
from gnndist.store import write_store
from gnndist.training.config import TrainConfig
from gnndist.training.loop import Trainer

SHAPE = (300, 100)


def test_a_tensor_its_views_and_autograd_keep_the_buffer() -> None:
    pool = BufferPool()
    first = pool.empty(SHAPE, torch.float32)
    address = first.data_ptr()
    assert pool.empty(SHAPE, torch.float32).data_ptr() != address
    row = first[3]
    del first
    assert pool.empty(SHAPE, torch.float32).data_ptr() != address
    row.requires_grad_()
    product = row * row
    del row
    assert pool.empty(SHAPE, torch.float32).data_ptr() != address
    del product
    assert pool.empty(SHAPE, torch.float32).data_ptr() == address


def test_a_buffer_fits_other_types_and_smaller_shapes() -> None:
    pool = BufferPool()
    address = pool.empty((300, 100), torch.float32).data_ptr()
    again = pool.empty((140, 100), torch.float64)
    assert again.data_ptr() == address
    assert again.shape == (140, 100)
    assert not again._is_view()
    del again
    assert pool.empty((100, 100), torch.float32).data_ptr() != address  # too much would be wasted
    assert pool.empty((3, 3), torch.float32).nbytes < SMALLEST
    assert pool.nbytes < 2 * 300 * 100 * 4


def test_an_epoch_takes_no_new_large_buffer(tmp_path: Path) -> None:
    store = write_store(awkward(vertices=400), tmp_path / "store")
    config = TrainConfig(layers=3, hidden=64)
    trainer = Trainer.create(store, config, SingleComm(), torch.device("cpu"))
    trainer.step(1)
    trainer.step(2)
    held = trainer.graph.buffers.nbytes
    assert held > 0
    for epoch in range(3, 8):
        trainer.step(epoch)
    assert trainer.graph.buffers.nbytes == held
