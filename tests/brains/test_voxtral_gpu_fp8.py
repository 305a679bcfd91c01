"""Weights of one byte on a real GPU. Needs torch, transformers, numpy and pytest, nothing else:

python -m pytest -c /dev/null --noconftest tests/brains/test_voxtral_gpu_fp8.py
"""

import pytest
import torch

from voxtui.bench.voxtral.measure import BOTH, FP8, GRAPHS, PLAIN, Bench, Clock, capture
from voxtui.bench.voxtral.systems import Ours, noise, random_model, taken, tiny_config
from voxtui.brains.voxtral import quantized
from voxtui.brains.voxtral.ears import Ears
from voxtui.brains.voxtral.quantized import Fp8Weight

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]

GPU = torch.device("cuda")

TOKENS = 24


@pytest.fixture(scope="module")
def model():
    """In float32, where two ways of the same arithmetic pick the same tokens."""
    return random_model(tiny_config(), GPU, torch.float32)


def test_captured_work_over_fp8_weights_says_what_it_says_without_capture(model):
    decoder, ears = taken(model)
    quantized.quantise(decoder)
    plain = Ours("plain", decoder, ears, 1024)
    captured = Ours("captured", decoder, Ears(ears.encoder), 1024)
    capture(captured)
    said = noise(2)
    assert list(plain.tokens((), said, TOKENS)) == list(captured.tokens((), said, TOKENS))


@pytest.mark.parametrize(
    ("rows", "columns"), [(6144, 3072), (3072, 4096), (16_384, 3072), (3072, 8192)]
)
def test_the_fp8_kernel_says_what_the_plain_product_says(rows, columns):
    from voxtui.brains.voxtral.fp8_kernel import single

    torch.manual_seed(0)
    weight = Fp8Weight(torch.randn(rows, columns, device=GPU), None)
    x = torch.randn(1, columns, device=GPU, dtype=torch.bfloat16)
    wanted = quantized.plain(x.double(), weight.values, weight.scales)
    found = single(x, weight.values, weight.scales)
    assert (found - wanted).norm() < 1e-2 * wanted.norm()


def test_every_kind_of_our_loop_is_measured():
    bench = Bench(GPU, tiny=True, repeats=1, clock=Clock(600))
    assert not [row for row in bench._kinds() if "failed" in row]
    assert list(bench.ours) == [PLAIN, GRAPHS, FP8, BOTH]
    assert not [row for row in bench._speculation() if "failed" in row]
