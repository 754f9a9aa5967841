"""Every error that edgebert raises on purpose, and its warning.

::

    EdgebertError
    ├── BundleError             a folder that is not a usable bundle
    │   ├── IntegrityError      a file that is missing, damaged or not the one that was exported
    │   └── UnsafeBundleError   a bundle with foreign operators, or with files outside its folder
    ├── CheckpointError         a checkpoint folder that cannot be read, or does not fit its own config
    ├── ConfigError             a config.json with impossible or unsupported values
    ├── TokenizerError          tokenizer files that are missing, malformed or do not fit the model
    ├── InputError(ValueError)  a text, id, array or option that cannot be used
    │   └── LimitError          one that is larger than a limit
    ├── DeviceError             the device asked for is not there
    ├── ExportError             a graph or a bundle that could not be made
    │   └── ParityError         a graph that does not compute what the reference computes
    ├── QuantizationError       nothing to quantize, or a result below a threshold
    ├── QueueFullError          too much work waits already; it says when to come back
    ├── DeadlineError           a request took longer than it was given
    └── ForkError               an engine used in a process forked after it was loaded

``except EdgebertError`` catches them all. ``ReferenceWarning`` is the only warning. A message is one line: the problem,
the value, the place and the remedy.

An error names options and inputs in fields, not in its message. Python and the command line each make their own
sentence of them::

    raise InputError("is not between 1 and 512", option="max_tokens", value=0)
    # max_tokens=0 is not between 1 and 512
    # --max-tokens 0 is not between 1 and 512

    raise LimitError("has 9 tokens, the limit is 8", index=3, hint="raise {max_tokens}", options={"max_tokens": ...})
    # text 3 has 9 tokens, the limit is 8; raise max_tokens
    # line 4 of texts.txt has 9 tokens, the limit is 8; raise --max-tokens

    raise InputError("has no effect with {do_sample}", option="num_beams", value=4, options={"do_sample": True})
    # num_beams=4 has no effect with do_sample=True
    # --num-beams 4 has no effect with --do-sample
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

MAX_VALUE_CHARACTERS = 60


class EdgebertError(Exception):
    """Base of every error below.

    ``str(error)`` is the sentence for Python: the option or the input, the message, and the hint after a semicolon.

    Attributes:
        message: The predicate of the sentence, or a whole sentence where no field names the subject.
        option: The parameter that the message is about.
        value: Its value; ``...`` leaves the value out.
        index: The number of the input in the call, from 0.
        item: The name of one input, ``"text"`` unless given. Without an index it is the subject as it stands.
        part: A part of the input: its name, or its name and number, such as ``("choice", 1)``.
        hint: The remedy.
        options: Values of further options that message and hint name as ``{name}``; ``...`` leaves a value out.
    """

    def __init__(
        self,
        message: str = "",
        *,
        option: str | None = None,
        value: object = ...,
        index: int | None = None,
        item: str | None = None,
        part: str | tuple[str, int] | None = None,
        hint: str | None = None,
        options: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.option, self.value = option, value
        self.index, self.item, self.part = index, item, part
        self.hint, self.options = hint, dict(options or {})

    def __str__(self) -> str:
        """Return the sentence for Python."""
        return self.sentence(python_option, python_place)

    def sentence(self, option_name: Callable[[str, object], str], place_name: Callable[[EdgebertError], str]) -> str:
        """Return the sentence, with options and inputs in the words of the caller, in one printable line.

        Args:
            option_name: Returns the words for an option with this name and value.
            place_name: Returns the words for the input that ``index``, ``item`` and ``part`` name.
        """
        text = f"{self.message}; {self.hint}" if self.hint else self.message
        for name, value in self.options.items():
            text = text.replace(f"{{{name}}}", option_name(name, value))
        if self.index is not None or self.item is not None:
            text = f"{place_name(self)} {text}"
        elif self.option is not None:
            text = f"{option_name(self.option, self.value)} {text}"
        return text if text.isprintable() else one_line(text)


def one_line(text: str) -> str:
    """Return a text as one line, with characters that cannot be printed escaped."""
    folded = " ".join(line.strip() for line in text.splitlines() if line.strip())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in folded)


def python_option(name: str, value: object) -> str:
    """Return an option as a keyword of a call: ``max_tokens=0``."""
    return name if value is ... else f"{name}={value!r:.{MAX_VALUE_CHARACTERS}}"


def python_place(error: EdgebertError) -> str:
    """Return the input that an error is about, counted from 0: ``choice 1 of question 0``."""
    item = error.item or "text"
    place = item if error.index is None else f"{item} {error.index}"
    if error.part is None:
        return place
    return f"{error.part if isinstance(error.part, str) else '{} {}'.format(*error.part)} of {place}"


class BundleError(EdgebertError):
    """The folder is not a bundle that this version can use."""


class IntegrityError(BundleError):
    """A file of the bundle is missing, damaged, or not the one its manifest lists."""


class UnsafeBundleError(BundleError):
    """The bundle has operators or files that an edgebert export never contains."""


class CheckpointError(EdgebertError):
    """The checkpoint folder is incomplete, damaged, or disagrees with its config."""


class ConfigError(EdgebertError):
    """A config.json holds impossible or unsupported values."""


class TokenizerError(EdgebertError):
    """Tokenizer files are missing, malformed, or emit ids that the model does not have."""


class InputError(EdgebertError, ValueError):
    """A text, id, array or option cannot be used as given."""


class LimitError(InputError):
    """An input is larger than a limit of the model or of the caller."""


class DeviceError(EdgebertError):
    """The device asked for cannot be used on this machine."""


class ExportError(EdgebertError):
    """A graph or bundle could not be made."""


class ParityError(ExportError):
    """The exported graph does not compute what the reference computes."""


class QuantizationError(EdgebertError):
    """Nothing could be quantized, or the result falls short of what was asked for."""


class QueueFullError(EdgebertError):
    """Too much work waits already. ``retry_after`` is in seconds."""

    def __init__(self, message: str = "", *, retry_after: int = 0, **fields: Any) -> None:
        super().__init__(message, **({"hint": f"try again in {retry_after} s"} if retry_after else {}) | fields)
        self.retry_after = retry_after


class DeadlineError(EdgebertError):
    """A request took longer than it was given."""


class ForkError(EdgebertError):
    """An engine was used in a process forked after it was loaded."""


class ReferenceWarning(UserWarning):
    """A bundle gives another result than transformers or sentence-transformers on the same folder."""
