"""Rows of an input, in windows of bounded size, and the texts in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edgebert.cli.errors import Failure, input_name

if TYPE_CHECKING:
    from edgebert_runtime.errors import EdgebertError

MAX_SHOWN_FIELDS = 12
MISSING = object()


@dataclass(frozen=True)
class Row:
    """A row of the input, for its result: its number from 0, and its fields and id where it has such."""

    index: int
    record: Mapping[str, Any] | None = None
    row_id: Any = MISSING

    @property
    def label(self) -> object:
        """The id of the row, or its number from 1."""
        return self.index + 1 if self.row_id is MISSING else self.row_id


@dataclass(frozen=True)
class Fields:
    """The texts that a command takes from a row.

    Attributes:
        names: The names of their fields by default.
        taker: The option or bundle that takes several texts, for errors.
        several_last: Whether the last one stands for two texts or more: a list, or one field for each.
    """

    names: tuple[str, ...]
    taker: str = ""
    several_last: bool = False

    def check_names(self, names: Sequence[str], taker: str) -> None:
        """Make sure that as many fields are named as the ``taker`` takes.

        Raises:
            Failure: saying how many.
        """
        if names and not (self.several_last and len(names) > len(self.names)) and len(names) != len(self.names):
            expected = " and ".join(self.names)
            raise Failure(f"{taker} takes {len(self.names)} of --field, not {len(names)}: {expected}, in this order")


TEXT = Fields(("text",))


@dataclass(frozen=True)
class Window:
    """Consecutive rows.

    Attributes:
        first: The number of the first row, from 0.
        items: The rows: a text, a tuple of texts, or an object with fields.
        places: The line, row or number of each, from 1.
        size: The part of the whole input, in its unit: bytes, or rows.
        source: The name of their file, None for arguments.
        unit: The word for a place: line, row or text. None where the only text is all of its file.
        name_argument: Returns the words for the text of an error, where arguments are more than a text each.
    """

    first: int
    items: Sequence[Any]
    places: Sequence[int]
    size: int
    source: str | None
    unit: str | None = "line"
    name_argument: Callable[[EdgebertError], str] | None = None

    def place(self, number: int) -> str:
        """Return the words for the row with this number in the window."""
        if self.source is None:
            return f"text {self.places[number]}"
        return self.source if self.unit is None else f"{self.unit} {self.places[number]} of {self.source}"

    def text_name(self, error: EdgebertError) -> str:
        """Return the words for the text that an error of a call with these rows is about."""
        if self.name_argument is not None:
            return self.name_argument(error)
        return input_name(error, self.place(error.index or 0))

    def parts(self, max_rows: int) -> Iterator[Window]:
        """Yield the rows again, at most so many at once."""
        for start in range(0, len(self.items), max_rows):
            end = min(start + max_rows, len(self.items))
            size = self.size * end // len(self.items) - self.size * start // len(self.items)
            items, places = self.items[start:end], self.places[start:end]
            yield replace(self, first=self.first + start, items=items, places=places, size=size)

    def rows(self, id_field: str | None) -> list[Row]:
        """Return the rows for their results.

        Raises:
            Failure: naming a row without this id.
        """
        if not self.items or not isinstance(self.items[0], Mapping):
            return [Row(index) for index in range(self.first, self.first + len(self.items))]
        ids = [MISSING] * len(self.items) if id_field is None else [self.value(n, id_field) for n in self.numbers()]
        return [Row(self.first + n, record, ids[n]) for n, record in enumerate(self.items)]

    def columns(self, fields: Fields, names: Sequence[str]) -> list[list[Any]]:
        """Return a list for each field that the command takes, with a text for each row; ``names`` are the user's.

        Raises:
            Failure: naming the row, and its field, that holds no text.
        """
        names = names or fields.names
        rows = [self.texts(number, fields, names) for number in self.numbers()]
        return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in fields.names]

    def numbers(self) -> range:
        """Return the numbers of the rows in the window."""
        return range(len(self.items))

    def texts(self, number: int, fields: Fields, names: Sequence[str]) -> Sequence[Any]:
        """Return the texts of a row, a list of the last ones where it stands for several."""
        item, count = self.items[number], len(fields.names)
        if isinstance(item, Mapping):
            texts = [self.text(number, name, fields.several_last and name == names[-1]) for name in names]
        elif isinstance(item, tuple):
            return item
        elif count == 1:
            return (item,)
        else:
            texts = item.split("\t")
            if len(texts) != count and not (fields.several_last and len(texts) > count):
                tabs = {1: "no tab", 2: "1 tab"}.get(len(texts), f"{len(texts) - 1} tabs")
                takes = "two texts with one tab" if count == 2 and not fields.several_last else "texts with tabs"
                raise Failure(f"{self.place(number)} has {tabs}; {fields.taker} takes {takes} between them")
        if not fields.several_last:
            return texts
        last: list[Any] = []
        for text in texts[count - 1 :]:
            last += text if isinstance(text, list) else [text]
        return (*texts[: count - 1], last)

    def text(self, number: int, name: str, may_be_list: bool = False) -> Any:
        """Return the text in a field of a row, or the list of texts."""
        value = self.value(number, name)
        texts = value if may_be_list and isinstance(value, list) else [value]
        if not all(isinstance(text, str) for text in texts):
            kind = "null" if value is None else f"{value!r:.40}"
            raise Failure(f"{self.place(number)} has the field {name!r} = {kind}, not a text")
        return value

    def value(self, number: int, name: str) -> Any:
        """Return the value of a field of a row; dots lead into objects and lists."""
        record = self.items[number]
        if (value := lookup(record, name)) is not MISSING:
            return value
        shown = [*map(str, record)][:MAX_SHOWN_FIELDS] + ["..."] * (len(record) > MAX_SHOWN_FIELDS)
        raise Failure(
            f"{self.place(number)} has no field {name!r}, but {', '.join(shown) or 'none at all'}; "
            "name the right one with --field or --id"
        )


def lookup(record: Mapping[str, Any], name: str) -> Any:
    """Return the value of the field with this name, or at the end of this path with dots; ``MISSING`` if none."""
    value: Any = record.get(name, MISSING)
    if value is not MISSING or "." not in name:
        return value
    value = record
    for part in name.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return MISSING
    return value
