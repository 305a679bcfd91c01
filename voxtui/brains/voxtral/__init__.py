"""Voxtral-Mini-3B: audio in, text out, with transformers' weights and our own loop."""
