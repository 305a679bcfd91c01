"""Voxtral's language model as plain matrix products, and its KV cache."""

# torch and transformers are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from transformers import VoxtralForConditionalGeneration
LONGEST = 32_768
"""Maximum tokens of context in the model's training."""


class DecodeStep(Protocol):
    """One token through all layers, in place of the decoder's own operations. See kernels.py."""

    @property
    def product(self) -> Callable[..., Tensor]: ...

    def __call__(self, decoder: Decoder, x: Tensor, position: Tensor, cache: Cache) -> Tensor: ...


def on_device(numbers: list[int], device: torch.device) -> Tensor:
    return torch.tensor(numbers, pin_memory=device.type == "cuda").to(device, non_blocking=True)


class Cache:
    """Keys and values of every layer for one sequence, and its prompt ids."""

    def __init__(self, decoder: Decoder, capacity: int) -> None:
        shape = (len(decoder.layers), 2 * decoder.kv_heads, capacity, decoder.head_size)
        self.kv = decoder.embedding.new_zeros(shape)
        """keys, then values, so that one write stores both of a layer"""
        self.keys, self.values = self.kv.chunk(2, dim=1)
        self.held: list[int] = []
        """the prompt ids whose keys and values are stored, from the first position on"""

    @property
    def capacity(self) -> int:
        return self.keys.shape[2]

    def truncate_to_common_prefix(self, prompt: list[int]) -> int:
        """Keep the longest common prefix with `prompt`, but not all of it. Return its length.

        The memory after it is not cleared: it is masked, and later tokens overwrite it.
        """
        most = min(len(self.held), len(prompt) - 1)
        same = most
        if self.held[:most] != prompt[:most]:
            same = next(i for i in range(most) if self.held[i] != prompt[i])
        del self.held[same:]
        return same

    def clear(self) -> None:
        """Empty the cache and zero its memory, because masked values must still be numbers."""
        self.held.clear()
        self.kv.zero_()


@dataclass(frozen=True, slots=True, eq=False)
class DecoderLayer:
    norm: Tensor
    qkv: Tensor
    """query, key and value weights joined: one product instead of three"""
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


class Decoder:
    """The Llama decoder of Voxtral, over one Cache.

    Takes the weights out of `model`, whose own language model is unusable afterwards.
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
        self.layers = [extract_weights(layer) for layer in language.layers]
        self.decode_step: DecodeStep | None = None
        """the computation of a single position in place of the operations below, if any"""
        self.longest = min(LONGEST, int(text.max_position_embeddings))
        positions = torch.arange(self.longest, device=self.embedding.device, dtype=torch.float32)
        rotary: Any = language.rotary_emb
        turns = torch.outer(positions, rotary.inv_freq.float())
        cos, sin = turns.cos() * rotary.attention_scaling, turns.sin() * rotary.attention_scaling
        self.cos = torch.cat((cos, cos), dim=-1).to(self.embedding.dtype)
        # Rotary embedding: each half of a head is combined with the other, the first negated.
        self.sin = torch.cat((-sin, sin), dim=-1).to(self.embedding.dtype)

    @property
    def weights(self) -> list[Tensor]:
        return [self.head, *(w for x in self.layers for w in (x.qkv, x.out, x.gate_up, x.down))]

    def embed(self, ids: Tensor) -> Tensor:
        return functional.embedding(ids.clamp(min=0), self.embedding)

    def run(self, x: Tensor, positions: Tensor, cache: Cache, span: int, masked: bool) -> Tensor:
        """Compute (n, hidden) states of embeddings at `positions` (n,). Stores keys and values.

        Attends to the first `span` positions, with a causal mask within them if `masked`. Copies
        nothing back from the device, so that it can be captured.
        """
        if self.decode_step is not None and len(x) == 1:
            return self.decode_step(self, x, positions, cache)
        mask = None
        if masked:
            later = torch.arange(span, device=x.device) > positions[:, None]
            mask = torch.zeros_like(later, dtype=x.dtype).masked_fill_(later, -torch.inf)
            mask = mask.repeat(self.heads // self.kv_heads, 1)
        cos, sin = self.cos[positions][:, None], self.sin[positions][:, None]
        for number, layer in enumerate(self.layers):
            h = functional.rms_norm(x, (x.shape[-1],), layer.norm, self.eps)
            qkv = functional.linear(h, layer.qkv)
            mixed = self.attend(qkv, positions, cos, sin, cache.kv[number], span, mask)
            x = x + functional.linear(mixed, layer.out)
            h = functional.rms_norm(x, (x.shape[-1],), layer.mlp_norm, self.eps)
            gate, up = functional.linear(h, layer.gate_up).chunk(2, dim=-1)
            x = x + functional.linear(functional.silu(gate) * up, layer.down)
        return x

    def logits(self, x: Tensor) -> Tensor:
        """Compute (vocabulary,) logits from the (hidden,) state of one position."""
        if self.decode_step is not None and x.dim() == 1:
            return self.decode_step.product(x[None], self.head, norm=self._norm, eps=self.eps)[0]
        return functional.linear(
            functional.rms_norm(x, (x.shape[-1],), self._norm, self.eps), self.head
        )

    def attend(
        self, qkv: Tensor, positions: Tensor, cos: Tensor, sin: Tensor,
        kv: Tensor, span: int, mask: Tensor | None,
    ) -> Tensor:  # fmt: skip
        """Store keys and values in `kv`, and return the attention of the query heads.

        `qkv`: (n, all heads * size) at `positions`; changed in place.
        """
        count = qkv.shape[0]
        qkv = qkv.view(count, -1, self.head_size)
        swapped = qkv.roll(self.head_size // 2, dims=-1)
        turned = slice(self.heads + self.kv_heads)
        qkv[:, turned].mul_(cos).addcmul_(swapped[:, turned], sin)
        query, new = qkv.split((self.heads, 2 * self.kv_heads), dim=1)
        kv.index_copy_(1, positions, new.transpose(0, 1))
        keys, values = kv[None, :, :span].chunk(2, dim=1)
        # The query heads that share a key head are rows of one product. This repeats no keys, and
        # avoids the slow kernel that torch chooses for a mask over grouped heads.
        query = query.view(count, self.kv_heads, -1, self.head_size).permute(1, 2, 0, 3)
        mixed = functional.scaled_dot_product_attention(
            query.flatten(1, 2)[None], keys, values, attn_mask=mask
        )
        mixed = mixed.view(self.kv_heads, -1, count, self.head_size).permute(2, 0, 1, 3)
        return mixed.reshape(count, -1)


def extract_weights(layer: Any) -> DecoderLayer:
    """Remove the weights from a transformers layer, so that no two copies exist."""
    attention, mlp = layer.self_attn, layer.mlp
    qkv = torch.cat([p.weight.data for p in (attention.q_proj, attention.k_proj, attention.v_proj)])
    attention.q_proj = attention.k_proj = attention.v_proj = None
    gate_up = torch.cat([mlp.gate_proj.weight.data, mlp.up_proj.weight.data])
    mlp.gate_proj = mlp.up_proj = None
    return DecoderLayer(
        layer.input_layernorm.weight.data,
        qkv,
        attention.o_proj.weight.data,
        layer.post_attention_layernorm.weight.data,
        gate_up,
        mlp.down_proj.weight.data,
    )
