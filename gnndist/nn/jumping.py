"""Jumping knowledge: the outputs of all layers in one (Xu et al., ICML 2018)."""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from gnndist.nn.arguments import at_least, one_of

Mode = Literal["cat", "max", "lstm"]


class JumpingKnowledge(nn.Module):
    """One representation a vertex from those of all layers (Xu et al. 2018, section 4).

    Called with the layers' outputs, each [n, F] for the same vertices: ``jump(outputs)``. It works
    vertex by vertex, so nothing is exchanged. Names and state_dict are torch_geometric's.

    Parameters
    ----------
    mode:
        cat: one beside the other, [n, layers · F]; max: element-wise maximum, [n, F]; lstm: a
        sum weighted by attention from a bidirectional LSTM over the layers, [n, F].
    channels, num_layers:
        F and the number of layers, for lstm only.

    Raises
    ------
    ValueError
        another mode, or lstm without channels and num_layers.
    """

    def __init__(
        self, mode: Mode, channels: int | None = None, num_layers: int | None = None
    ) -> None:
        super().__init__()
        one_of(get_args(Mode), mode=mode)
        self.mode = mode
        self.lstm: nn.LSTM | None = None
        self.att: nn.Linear | None = None
        if mode == "lstm":
            if channels is None or num_layers is None:
                raise ValueError(
                    f"channels = {channels}, num_layers = {num_layers}: mode lstm needs both"
                )
            at_least(1, channels=channels, num_layers=num_layers)
            width = max((num_layers * channels) // 2, 1)
            self.lstm = nn.LSTM(channels, width, bidirectional=True, batch_first=True)
            self.att = nn.Linear(2 * width, 1)

    def reset_parameters(self) -> None:
        """The LSTM's and the attention's own initialisation."""
        if self.lstm is not None and self.att is not None:
            self.lstm.reset_parameters()
            self.att.reset_parameters()

    def forward(self, outputs: Sequence[Tensor]) -> Tensor:
        if self.mode == "cat":
            return torch.cat(list(outputs), dim=-1)
        stacked = torch.stack(list(outputs), dim=1)
        if self.lstm is None or self.att is None:
            return stacked.amax(dim=1)
        if len(stacked) == 0:  # torch's LSTM refuses a rank without vertices
            return stacked.sum(dim=1)
        scores: Tensor = self.att(self.lstm(stacked)[0]).softmax(dim=1)
        return (stacked * scores).sum(dim=1)

    def extra_repr(self) -> str:
        return self.mode
