"""Measurements: front ends that drive the same engine as the screen and report what they saw."""
