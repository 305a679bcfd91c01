"""Judge whether two computations of the same logits are equal up to rounding.

The bound follows from the floating-point types and the number of operations:

1. A stored value has a relative error of at most u, the unit roundoff of its type; each term of a
   sum in float32 adds at most v = 2^-24. Independent errors of mean zero add up to sqrt(m) * u for
   m of them, not to m * u (N. Higham and T. Mary, SIAM J. Sci. Comput. 41, 2019, A2815).
2. A layer stores a value ROUNDINGS times one after the other, and sums the inner lengths of its
   products. The last norm and the product for the logits store three more.
3. A layer passes the relative error of its input on. Norms make it independent of scale, and a
   product with weights enlarges an unrelated error as much as the vector itself. Two functions
   enlarge it: SiLU times its other factor by at most 1.6, and a softmax by the size of its scores.
   They have room, because u is the largest rounding error: its root mean square is u / sqrt(3).
4. Both computations round, so their difference has sqrt(2) times the error of one. The relative
   error of the last state is thus r = sqrt(2 * (m * u^2 + n * v^2)).
5. A logit is the product of a row of weights with that state. So its error has a standard deviation
   of r times the root mean square of the logits.
6. Of N normal errors the largest exceeds sqrt(2 * ln(2 * N / p)) deviations with a probability of
   at most p. That factor times the deviation is the bound.
"""

# torch is typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from voxtui.brains.voxtral.decoder import Decoder, on_device
from voxtui.brains.voxtral.generate import ReplyGenerator

ROUNDINGS = 20
"""Stored values of a layer in sequence. Attention: norm, joined product, rotation (2), scores,
weights, mixture, product, sum. The rest: norm, product, SiLU, gate, product, sum. Five more: cuBLAS
may store the parts of each of the four products, and fp8 weights are scaled after a product."""

LAST_ROUNDINGS = 3

COMPARISONS = 131_072 * 4096
"""Logits that one trial compares, at most."""

FALSE_ALARM = 1e-6
"""Probability that rounding alone exceeds the bound in one trial."""

DEVIATIONS = math.sqrt(2 * math.log(2 * COMPARISONS / FALSE_ALARM))

FLOAT32_ROUNDOFF = 2.0**-24


def relative_bound(decoder: Decoder, context: int, encoder_layers: int = 0) -> float:
    """Return the bound of a logit's difference behind `context` tokens, per RMS of the logits.

    `encoder_layers`: of the audio encoder, if the context holds sound.
    """
    dtype, layers = decoder.embedding.dtype, len(decoder.layers)
    width, inner = decoder.embedding.shape[1], decoder.layers[0].down.shape[1]
    mixed = decoder.heads * decoder.head_size
    terms = layers * (2 * width + mixed + inner + decoder.head_size + context) + width
    roundings = (layers + encoder_layers) * ROUNDINGS + LAST_ROUNDINGS
    unit = torch.finfo(dtype).eps / 2
    variance = 2 * (roundings * unit**2 + terms * FLOAT32_ROUNDOFF**2)
    return DEVIATIONS * math.sqrt(variance)


@dataclass(slots=True)
class Comparison:
    """Compares the logits of a path with those of the plain one, step by step."""

    steps: int = 0
    worst: float = 0.0
    """largest difference so far, as a share of the bound"""
    flips: int = 0
    """steps with another likeliest token, where the two best lie within twice the bound"""
    why: str = ""
    """how the path differs; empty: it is equal so far"""

    def add(self, plain: Tensor, other: Tensor, relative: float) -> bool:
        """Compare (vocabulary,) float32 logits. Return True while the path is equal.

        `relative`: see relative_bound. Waits for the device.
        """
        best = plain.topk(2)
        error, rms, gap, flipped, finite = torch.stack((
            (plain - other).abs().max(),
            plain.square().mean().sqrt(),
            best.values[0] - best.values[1],
            (best.indices[0] != other.argmax()).float(),
            other.isfinite().all().float(),
        )).tolist()  # fmt: skip
        self.steps += 1
        bound = relative * rms
        if not finite:
            self.why = f"A logit of step {self.steps} is not a number."
            return False
        self.worst = max(self.worst, error / bound)
        if flipped and gap > 2 * bound:
            self.why = f"Step {self.steps} has another likeliest token."
        elif error > bound:
            self.why = f"The logits of step {self.steps} differ by {error / bound:.1f} bounds."
        else:
            self.flips += bool(flipped)
        return not self.why


def compare_last(loop: ReplyGenerator, plain: Decoder, encoder_layers: int) -> Comparison:
    """Compute the last token of `loop` again, by its own path and by `plain`, and compare."""
    token, position = loop.repeat_last()
    device = plain.embedding.device
    comparison = Comparison()
    with torch.inference_mode():
        x = plain.embed(on_device([token], device))
        hidden = plain.run(x, on_device([position], device), loop.cache, position + 1, False)
        logits = plain.logits(hidden[0]).float()
        relative = relative_bound(plain, position + 1, encoder_layers)
        comparison.add(logits, loop.sampler.logits, relative)
    return comparison
