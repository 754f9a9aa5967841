"""An extension of Griffe: docstrings in reStructuredText's inline markup, as MkDocs reads them."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Module, Object

# :class:`~package.module.Name` or :meth:`name`
ROLE = re.compile(r":(?:class|func|meth|mod|data|attr):`~?([\w.]+)`")
# A table of reStructuredText, from its first line of "=" to its last.
TABLE = re.compile(r"(?:^=[= ]+=\n)(?:.*\n)*?(?:^=[= ]+=\n)(?:.*\n)*?^=[= ]+=$", flags=re.M)


class Roles(Extension):
    """Shows roles as code, keeps tables as they are written, and ends paragraphs before code with one colon."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring:
            text = TABLE.sub(lambda match: f"```text\n{ROLE.sub(last_name, match[0])}\n```", obj.docstring.value)
            obj.docstring.value = re.sub(r"^::$", "", re.sub(r"::$", ":", ROLE.sub(last_name, text), flags=re.M))

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Rewrite the docstring of a package, which is no member of another."""
        self.on_object(obj=pkg)


def last_name(role: re.Match[str]) -> str:
    """Return the last part of a dotted name as code."""
    return f"`{role[1].rpartition('.')[2]}`"
