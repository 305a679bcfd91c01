"""How long a test waits for something that happens at once, before it fails."""

SECONDS = 120.0
"""It bounds a failure only. A shared machine may stand still for more than half a minute."""
