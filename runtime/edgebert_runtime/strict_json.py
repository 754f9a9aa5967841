"""JSON as the standard has it: Python's own reader takes NaN and infinities as well."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any


def loads(text: str, pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Parse JSON; ``pairs_hook`` makes an object of its pairs.

    Raises:
        ValueError: if it is no JSON, naming the key where NaN or an infinity stands.
        RecursionError: if it is nested too deeply.
    """

    def refuse(constant: str) -> Any:
        match = re.search(rf'"([^"\\]*)"\s*:\s*(?:\[[^\]"]*)?{re.escape(constant)}', text)
        where = f"the key {match[1]!r:.80} is" if match else "it holds"
        raise ValueError(f"{where} {constant}, which is no number in JSON")

    return json.loads(text, object_pairs_hook=pairs_hook, parse_constant=refuse)
