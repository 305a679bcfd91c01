"""A step by kernels of our own: what they compute, and what then is captured."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import Tensor

from benchmarks.voxtral.torch_products import linear
from tests.brains.voxtral.taped import TapeRecorder
from tests.brains.voxtral.tiny_voxtral import model
from voxtui.brains.voxtral.decoder import Cache, Decoder, DecodeStep
from voxtui.brains.voxtral.generate import ReplyGenerator, Sampler
from voxtui.brains.voxtral.prompt import EOS
from voxtui.brains.voxtral.weights import parts, quantise

REPOSITORY = Path(__file__).parents[3]

needs_triton = pytest.mark.skipif(not find_spec("triton"), reason="Triton is not installed")

PROMPT = [1, 3, *range(1000, 1100), 4]


def slow_attend(
    qkv: Tensor, position: Tensor, cos: Tensor, sin: Tensor, kv: Tensor, heads: int
) -> Tensor:
    """Compute `kernels.attend` one position after the other, without its code."""
    key_heads, size, here = kv.shape[0] // 2, kv.shape[2], int(position)
    query, new = qkv.view(-1, size).split((heads, 2 * key_heads))

    def turned(x: Tensor) -> Tensor:
        return x * cos[here] + torch.cat((x[:, size // 2 :], x[:, : size // 2]), -1) * sin[here]

    kv[:key_heads, here] = turned(new[:key_heads])
    kv[key_heads:, here] = new[key_heads:]
    found: list[Tensor] = []
    for number, q in enumerate(turned(query)):
        head = number * key_heads // heads
        keys, values = kv[head, : here + 1], kv[key_heads + head, : here + 1]
        found.append((keys @ q / size**0.5).softmax(0) @ values)
    return torch.cat(found)[None]


class StepOf:
    """`kernels.KernelStep` without Triton: the same order of operations, by these functions."""

    def __init__(self, attend: Callable[..., Tensor], product: Callable[..., Tensor]) -> None:
        self.attend, self.product = attend, product

    def __call__(self, decoder: Decoder, x: Tensor, position: Tensor, cache: Cache) -> Tensor:
        product, eps = self.product, decoder.eps
        for number, layer in enumerate(decoder.layers):
            qkv = product(x, layer.qkv, norm=layer.norm, eps=eps)
            mixed = self.attend(
                qkv, position, decoder.cos, decoder.sin, cache.kv[number], decoder.heads
            )
            x = product(mixed, layer.out, added=x)
            h = product(x, layer.gate_up, norm=layer.mlp_norm, eps=eps, gated=True)
            x = product(h, layer.down, added=x)
        return x


def loop_with(single: DecodeStep | None, fp8: bool = False) -> ReplyGenerator:
    decoder, embedder = parts(model())
    if fp8:
        quantise(decoder)
    decoder.decode_step = single
    return ReplyGenerator(
        decoder, embedder, Sampler(decoder.head.shape[0], EOS, torch.device("cpu")), 700
    )


def reply(loop: ReplyGenerator, tokens: int = 12) -> list[int | None]:
    return list(loop.reply(PROMPT, [], tokens))


@pytest.mark.parametrize("fp8", [False, True])
def test_a_step_of_parts_equals_the_plain_step(fp8: bool) -> None:
    plain = reply(loop_with(None, fp8))
    assert len(set(plain)) > 3
    assert reply(loop_with(StepOf(slow_attend, linear), fp8)) == plain


@pytest.mark.slow
def test_one_captured_step_serves_all_lengths_if_the_device_reads_the_position() -> None:
    def captured(loop: ReplyGenerator) -> list[tuple[str | int, ...]]:
        for _ in loop.capture(TapeRecorder()):
            pass
        return [name for name in loop.graphs.replays if name[0] == "step"]

    def attend(qkv: Tensor, position: Tensor, cos: Tensor, sin: Tensor, kv: Tensor, heads: int):
        """Compute `slow_attend` without reading the position back."""
        return qkv[:, : heads * kv.shape[2]] * 1.0

    assert captured(loop_with(None)) == [("step", 512, True), ("step", 700, True)]
    single = StepOf(attend, linear)
    loop = loop_with(single)
    assert captured(loop) == [("step", 700, True)]
    assert reply(loop) == reply(loop_with(single))


# The kernels.


def run(code: str, **environment: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
        env=os.environ | environment,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@needs_triton
def test_the_product_equals_torch() -> None:
    """Triton's interpreter stores what a bfloat16 is stored as, and can multiply it."""
    code = """
import itertools, torch
from benchmarks.voxtral.torch_products import linear
from voxtui.brains.voxtral.weights import Fp8Weight
from voxtui.brains.voxtral.kernels import KernelStep
by_kernel = KernelStep().product
torch.manual_seed(0)
for rows, columns in ((6, 8), (36, 1000), (130, 3072)):
    for dtype, off in ((torch.float32, 1e-5), (torch.bfloat16, 1e-2)):
        for small, normed, gated, adds in itertools.product((False, True), repeat=4):
            weight = torch.randn(rows, columns).to(dtype)
            x, norm = torch.randn(1, columns).to(dtype), torch.randn(columns).to(dtype)
            added = torch.randn(1, rows // 2 if gated else rows).to(dtype)
            exact = Fp8Weight(weight) if small else weight.double()
            options = dict(eps=1e-5, gated=gated)
            found = by_kernel(
                x, exact if small else weight, norm=norm if normed else None,
                added=added if adds else None, **options,
            )
            wanted = linear(
                x.double(), exact, norm=norm.double() if normed else None,
                added=added.double() if adds else None, **options,
            )
            assert found.dtype == dtype
            assert (found - wanted).norm() < off * wanted.norm(), (rows, dtype, small, gated)
print("equal")
"""
    assert run(code, TRITON_INTERPRET="1") == "equal\n"


@needs_triton
def test_attention_equals_torch_at_every_fill_of_the_cache() -> None:
    """In half precision: Triton's interpreter has no product of bfloat16."""
    code = """
import torch
from tests.brains.voxtral.test_kernels import slow_attend
from voxtui.brains.voxtral.kernels import attend
torch.manual_seed(0)
for dtype, off in ((torch.float32, 1e-5), (torch.float16, 2e-3)):
    for key_heads, group, size in ((2, 2, 16), (1, 4, 128)):
        for position in (0, 1, 31, 32, 33, 699):
            kv = torch.randn(2 * key_heads, 700, size).to(dtype)
            kv[:, position:] = torch.nan  # what was never written is never looked at
            cos, sin = torch.randn(2, 700, size).to(dtype)
            qkv = torch.randn(1, key_heads * (group + 2) * size).to(dtype)
            exact = kv.double()
            wanted = slow_attend(
                qkv.double(), torch.tensor([position]), cos.double(), sin.double(), exact,
                group * key_heads,
            )
            found = attend(qkv, torch.tensor([position]), cos, sin, kv, group * key_heads)
            assert (found - wanted).norm() < off * wanted.norm(), (dtype, size, position)
            written, there = kv[:, : position + 1], exact[:, : position + 1]
            assert (written - there).norm() < off * there.norm()
            assert kv[:, position + 1 :].isnan().all()
qkv[0, :size] = torch.nan
assert attend(qkv, torch.tensor([9]), cos, sin, kv, group).isnan()[0, :size].all()
print("equal")
"""
    assert run(code, TRITON_INTERPRET="1") == "equal\n"


@needs_triton
def test_a_reply_by_kernels_is_the_plain_one() -> None:
    code = """
from tests.brains.voxtral.test_kernels import loop_with, reply
from voxtui.brains.voxtral import kernels
kernels.BLOCK = (512, 1024, 4)  # the interpreter takes its time for every block
for fp8 in (False, True):
    plain = reply(loop_with(None, fp8), 4)
    assert reply(loop_with(kernels.KernelStep(), fp8), 4) == plain
    assert len(plain) == 4
print("equal")
"""
    assert run(code, TRITON_INTERPRET="1") == "equal\n"


@needs_triton
@pytest.mark.parametrize("capability", [80, 89, 90])
def test_the_kernels_compile_for_the_gpus_that_may_have_them(capability: int) -> None:
    code = f"""
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from voxtui.brains.voxtral import kernels as k

def compiled(fn, kinds, **fixed):
    source = ASTSource(
        fn=fn,
        signature=kinds | dict.fromkeys(fixed, "constexpr"),
        constexprs={{(len(kinds) + i,): value for i, value in enumerate(fixed.values())}},
        attrs={{
            (i,): [["tt.divisibility", 16]] for i, t in enumerate(kinds.values()) if t != "fp32"
        }},
    )
    options = dict(num_warps=4, num_stages=3)
    made = triton.compile(source, target=GPUTarget("cuda", {capability}, 32), options=options)
    assert made.asm["cubin"]
    return made.asm["ptx"]

half, single = "*bf16", "*fp32"
for weight in (half, "*fp8e4nv")[: 1 + ({capability} > 80)]:
    small = weight != half
    for columns, normed, gated, added in (
        (3072, True, False, False), (3072, True, True, False), (8192, False, False, True),
    ):
        ptx = compiled(
            k.product_kernel,
            dict(x=half, weight=weight, scales=single, norm=half, added=half, y=half,
                 rows="i32", eps="fp32"),
            columns=columns, SCALED=small, NORMED=normed, GATED=gated, ADDED=added,
            ROWS=k.BLOCK[0], COLUMNS=k.BLOCK[1],
        )
        assert "ld.global.v4" in ptx  # 16 bytes at a time
        assert not small or "cvt.rn.f16x2.e4m3x2" in ptx  # the GPU's own conversion
ptx = compiled(
    k.attend_parts_kernel,
    dict(qkv=half, position="*i64", cos=half, sin=half, kv=half, mixed=single, weights=single,
         capacity="i32", scale="fp32"),
    KEY_HEADS=8, HEADS=4, SIZE=128, GROUP=k.GROUP, SPLITS=k.CUT[0], PLACES=k.CUT[1],
)
assert "mma" in ptx and "cp.async" in ptx  # tensor cores; the next positions are read ahead
compiled(
    k.attend_sum_kernel, dict(mixed=single, weights=single, y=half),
    HEADS=4, SIZE=128, SPLITS=k.CUT[0],
)
print("compiled")
"""
    assert run(code) == "compiled\n"
