"""Voxtral's weights: transformers' audio encoder, and the language model as plain products."""

# torch and transformers are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from transformers import VoxtralForConditionalGeneration

    from voxtui.brains.voxtral.step import Step

LONGEST = 32_768
"""Tokens of context the model was trained on."""


def on_device(numbers: list[int], device: torch.device) -> Tensor:
    """`numbers` as a tensor on `device`; the copy does not wait for it."""
    return torch.tensor(numbers, pin_memory=device.type == "cuda").to(device, non_blocking=True)


class Cache:
    """Keys and values of every layer for one sequence, and what stands at each place."""

    def __init__(self, decoder: Decoder, capacity: int) -> None:
        shape = (len(decoder.layers), 2 * decoder.kv_heads, capacity, decoder.head_size)
        self.both = decoder.embedding.new_zeros(shape)
        """keys, then values: one write for the two of a layer"""
        self.keys, self.values = self.both.chunk(2, dim=1)
        self.held: list[int] = []
        """the elements whose keys and values are here, from the first place on"""

    @property
    def capacity(self) -> int:
        return self.keys.shape[2]

    def keep(self, prompt: list[int]) -> int:
        """Forget all that is not a proper prefix of `prompt`; how many places that leaves.

        What is forgotten stays in memory: it is masked, and overwritten by what comes next.
        """
        most = min(len(self.held), len(prompt) - 1)
        same = most
        if self.held[:most] != prompt[:most]:
            same = next(i for i in range(most) if self.held[i] != prompt[i])
        del self.held[same:]
        return same

    def clear(self) -> None:
        """Forget all, and what is in memory with it: what is masked must still be a number."""
        self.held.clear()
        self.both.zero_()


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    norm: Tensor
    qkv: Tensor
    """query, key and value weights in one: one product instead of three"""
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


class Decoder:
    """The Llama inside, over one Cache.

    Takes the weights out of `model`, whose own language model is of no use afterwards.
    """

    def __init__(self, model: VoxtralForConditionalGeneration) -> None:
        text: Any = model.config.text_config
        language: Any = model.model.language_model
        self.heads: int = text.num_attention_heads
        self.kv_heads: int = text.num_key_value_heads
        self.head_size: int = text.head_dim
        self.eps: float = text.rms_norm_eps
        self.embedding: Tensor = language.embed_tokens.weight.data
        self.head: Tensor = model.lm_head.weight.data
        self._norm: Tensor = language.norm.weight.data
        self.layers = [_taken(layer) for layer in language.layers]
        self.single: Step | None = None
        """what a single place goes through, if not the operations below"""
        self.longest = min(LONGEST, int(text.max_position_embeddings))
        places = torch.arange(self.longest, device=self.embedding.device, dtype=torch.float32)
        rotary: Any = language.rotary_emb
        turns = torch.outer(places, rotary.inv_freq.float())
        cos, sin = turns.cos() * rotary.attention_scaling, turns.sin() * rotary.attention_scaling
        self.cos = torch.cat((cos, cos), dim=-1).to(self.embedding.dtype)
        # Half of a head is turned by the other half, and the first by its negative.
        self.sin = torch.cat((-sin, sin), dim=-1).to(self.embedding.dtype)

    @property
    def weights(self) -> list[Tensor]:
        """What one decode step reads."""
        return [self.head, *(w for x in self.layers for w in (x.qkv, x.out, x.gate_up, x.down))]

    def embed(self, ids: Tensor) -> Tensor:
        return functional.embedding(ids.clamp(min=0), self.embedding)

    def run(self, x: Tensor, places: Tensor, cache: Cache, span: int, masked: bool) -> Tensor:
        """(n, hidden) embeddings at `places` (n,) to hidden states, over the first `span` places.

        Writes their keys and values. `masked`: whether anything within `span` is to be hidden from
        any of them. Nothing here asks the device for a number, so it can be captured.
        """
        if self.single is not None and len(x) == 1:
            return self.single(self, x, places, cache)
        mask = None
        if masked:
            later = torch.arange(span, device=x.device) > places[:, None]
            mask = torch.zeros_like(later, dtype=x.dtype).masked_fill_(later, -torch.inf)
            mask = mask.repeat(self.heads // self.kv_heads, 1)
        cos, sin = self.cos[places][:, None], self.sin[places][:, None]
        for number, layer in enumerate(self.layers):
            h = functional.rms_norm(x, (x.shape[-1],), layer.norm, self.eps)
            qkv = functional.linear(h, layer.qkv)
            mixed = self.attend(qkv, places, cos, sin, cache.both[number], span, mask)
            x = x + functional.linear(mixed, layer.out)
            h = functional.rms_norm(x, (x.shape[-1],), layer.mlp_norm, self.eps)
            gate, up = functional.linear(h, layer.gate_up).chunk(2, dim=-1)
            x = x + functional.linear(functional.silu(gate) * up, layer.down)
        return x

    def logits(self, x: Tensor) -> Tensor:
        """(hidden,) state of one place to (vocabulary,) logits."""
        if self.single is not None and x.dim() == 1:
            return self.single.product(x[None], self.head, norm=self._norm, eps=self.eps)[0]
        return functional.linear(
            functional.rms_norm(x, (x.shape[-1],), self._norm, self.eps), self.head
        )

    def attend(
        self, qkv: Tensor, places: Tensor, cos: Tensor, sin: Tensor,
        both: Tensor, span: int, mask: Tensor | None,
    ) -> Tensor:  # fmt: skip
        """(n, all heads * size) at `places` to what their query heads look up in `both`, to which
        their keys and values are written; changes `qkv`."""
        count = qkv.shape[0]
        qkv = qkv.view(count, -1, self.head_size)
        swapped = qkv.roll(self.head_size // 2, dims=-1)
        turned = slice(self.heads + self.kv_heads)
        qkv[:, turned].mul_(cos).addcmul_(swapped[:, turned], sin)
        query, new = qkv.split((self.heads, 2 * self.kv_heads), dim=1)
        both.index_copy_(1, places, new.transpose(0, 1))
        keys, values = both[None, :, :span].chunk(2, dim=1)
        # The query heads that share a key head are rows of one product: nothing is repeated, and
        # no mask over grouped heads makes torch take its slowest kernel.
        query = query.view(count, self.kv_heads, -1, self.head_size).permute(1, 2, 0, 3)
        mixed = functional.scaled_dot_product_attention(
            query.flatten(1, 2)[None], keys, values, attn_mask=mask
        )
        mixed = mixed.view(self.kv_heads, -1, count, self.head_size).permute(2, 0, 1, 3)
        return mixed.reshape(count, -1)


def _taken(layer: Any) -> Layer:
    """The weights of a transformers layer, which gives its own up: no two copies at a time."""
    attention, mlp = layer.self_attn, layer.mlp
    qkv = torch.cat([p.weight.data for p in (attention.q_proj, attention.k_proj, attention.v_proj)])
    attention.q_proj = attention.k_proj = attention.v_proj = None
    gate_up = torch.cat([mlp.gate_proj.weight.data, mlp.up_proj.weight.data])
    mlp.gate_proj = mlp.up_proj = None
    return Layer(
        layer.input_layernorm.weight.data,
        qkv,
        attention.o_proj.weight.data,
        layer.post_attention_layernorm.weight.data,
        gate_up,
        mlp.down_proj.weight.data,
    )
