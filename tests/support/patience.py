"""How long a test waits for another process: much longer than that takes on the busiest machine.

The limit only ends what hangs. No test measures time with it.
"""

from __future__ import annotations

PATIENCE = 1800  # seconds
