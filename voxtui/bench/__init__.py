"""Measurements of turns: the same engine as the screen, and the times of past turns."""
