"""The beginning that several prompts share."""

from __future__ import annotations

from dataclasses import dataclass

from edgebert_runtime.decoders.kv_cache import Floats
from edgebert_runtime.errors import InputError


@dataclass(frozen=True)
class Prefix:
    """The beginning that several prompts share, computed once.

    :meth:`~edgebert_runtime.tasks.generator.Generator.prefix` makes it.
    """

    ids: tuple[int, ...]
    past: tuple[Floats, ...]


def check_prefix(prefix: Prefix | None) -> Prefix | None:
    """Return the prefix of a call.

    Raises:
        InputError: if it is another object.
    """
    if prefix is None or isinstance(prefix, Prefix):
        return prefix
    raise InputError("is not a Prefix", option="prefix", value=prefix, hint="make it with prefix(text)")
