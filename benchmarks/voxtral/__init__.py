"""Our Voxtral loop beside transformers' `generate`: the same random weights, in one run.

    python -m benchmarks.voxtral [--tiny] [--repeats N] [--json OUT]
    python -m benchmarks.voxtral --accuracy MODEL CLIP.wav...

No checkpoint, no tokenizer and no network, and no package but torch, transformers and numpy: the
true 3B shape with random weights and a fixed number of tokens; without a CUDA GPU, or with
`--tiny`, a rehearsal with 0.4 million weights. TTFT counts from the samples being in host memory to
the first token in host memory; the instruction and the past are in our cache as they are when a key
went down, and `generate` is timed from the samples too, its features included. Floors are what the
shape counts up to at the ceilings of memory bandwidth and matrix products measured in the same run.
"""
