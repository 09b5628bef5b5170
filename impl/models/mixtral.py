"""Mixtral: Llama whose blocks have several networks, of which each token goes through two.

Tensors have the names and shapes of the checkpoints that Hugging Face publishes, such as
`model.layers.0.block_sparse_moe.experts.0.w1.weight`.
"""
from __future__ import annotations

import os
from dataclasses import dataclass

from impl import Tensor, nn
from impl.models.checkpoint import read_folder
from impl.models.llama import Llama, LlamaBlock, LlamaConfig

__all__ = ["Mixtral", "MixtralConfig", "load"]


@dataclass(frozen=True)
class MixtralConfig(LlamaConfig):
    """Sizes of a network, with the names of `config.json`; those of Mixtral 8x7B."""

    vocab_size: int = 32000
    max_position_embeddings: int = 32768
    rope_theta: float = 1e6
    num_local_experts: int = 8
    num_experts_per_tok: int = 2


class Expert(nn.Module):
    """Two layers on each token alone, of which the first one has a gate."""

    def __init__(self, config: MixtralConfig) -> None:
        size, wide = config.hidden_size, config.intermediate_size
        self.w1, self.w3 = (nn.Linear(size, wide, bias=False) for _ in range(2))
        self.w2 = nn.Linear(wide, size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(self.w1(x).silu() * self.w3(x))


class Experts(nn.Module):
    """The networks, and what says how much of each one a token gets: of all but the best, nothing.

    Shapes may not depend on values, so each network sees all tokens. That is exact, and it costs
    as much as if each token went through all.
    """

    def __init__(self, config: MixtralConfig) -> None:
        self.chosen = config.num_experts_per_tok
        self.gate = nn.Linear(config.hidden_size, config.num_local_experts, bias=False)
        self.experts = nn.ModuleList([Expert(config) for _ in range(config.num_local_experts)])

    def shares(self, x: Tensor) -> Tensor:
        """(..., networks): how much of each one, 1 in all."""
        best = self.gate(x).softmax(-1).topk(self.chosen)
        part = best.values / best.values.sum(-1, keepdim=True)
        networks = Tensor.arange(len(self.experts), device=x.device)
        return (best.indices.unsqueeze(-1) == networks).where(part.unsqueeze(-1), 0.0).sum(-2)

    def forward(self, x: Tensor) -> Tensor:
        shares = self.shares(x)
        results = [expert(x) * shares[..., number:number + 1]
                   for number, expert in enumerate(self.experts)]
        return Tensor.stack(*results).sum(0)


class MixtralBlock(LlamaBlock):
    """Attention and networks, each added to what comes in."""

    def make_fed(self, config: MixtralConfig) -> None:
        self.block_sparse_moe = Experts(config)

    def fed(self, x: Tensor) -> Tensor:
        return self.block_sparse_moe(x)


class Mixtral(Llama):
    """Scores of the next token at each place."""

    block = MixtralBlock

    def __init__(self, config: MixtralConfig | None = None) -> None:
        super().__init__(config or MixtralConfig())


def load(path: str | os.PathLike[str], places: int | None = None) -> Mixtral:
    """The network of a checkpoint: a folder of Hugging Face.

    Args:
        places: how long texts may become, if that is less than what the checkpoint says.

    Raises:
        ArgumentError: it is a checkpoint of something else, or `config.json` is missing.
    """
    config, state = read_folder(path, "mixtral", MixtralConfig)
    if places is not None:
        config["max_position_embeddings"] = min(places, config["max_position_embeddings"])
    config["tie_word_embeddings"] = "lm_head.weight" not in state
    model = Mixtral(MixtralConfig(**config))
    model.load_state_dict(state)
    return model


if __name__ == "__main__":
    from impl.models.command import write_on
    write_on("impl.models.mixtral", load, gguf=False)
