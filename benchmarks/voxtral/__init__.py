"""Our Voxtral loop beside transformers' `generate`: the same random weights, in one run.

    python -m benchmarks.voxtral [--tiny] [--repeats N] [--seconds N] [--json OUT]
    python -m benchmarks.voxtral --accuracy MODEL CLIP.wav...

Needs torch, transformers and numpy, but no checkpoint, tokenizer or network. It uses the true 3B
shape with random weights and a fixed number of tokens. Without a CUDA GPU, or with `--tiny`, it
rehearses with 0.4 million weights. TTFT counts from the samples in host memory to the first token
in host memory. Our cache holds the instruction and the past, as after a key press. `generate` is
timed from the samples too, with its features. Floors follow from the shape and from the ceilings of
memory bandwidth and matrix products, which the same run measures.
"""
