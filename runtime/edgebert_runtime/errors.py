"""Every error that edgebert raises on purpose.

::

    EdgebertError
    ├── BundleError             a folder that is not a usable bundle
    │   ├── IntegrityError      a file that is missing, damaged or not the one that was exported
    │   └── UnsafeBundleError   a bundle that asks for what no bundle may: foreign operators, files outside its folder
    ├── CheckpointError         a checkpoint folder that cannot be read, or does not fit its own config
    ├── ConfigError             a config.json with impossible or unsupported values
    ├── TokenizerError          tokenizer files that are missing, malformed or do not fit the model
    ├── InputError(ValueError)  a text, id, array or option that cannot be used
    │   └── LimitError          one that is larger than a limit
    ├── DeviceError             the device asked for is not there
    ├── ExportError             a graph or a bundle that could not be made
    │   └── ParityError         a graph that does not compute what the reference computes
    ├── QuantizationError       nothing to quantize, or a result below the threshold asked for
    └── ForkError               an engine used in a process forked after it was loaded

A caller who wants one net writes ``except EdgebertError``. A message is one line: what happened, with which value,
where, and how to fix it.
"""

from __future__ import annotations


class EdgebertError(Exception):
    """Base of every error below."""


class BundleError(EdgebertError):
    """The folder is not a bundle that this version can use."""


class IntegrityError(BundleError):
    """A file of the bundle is missing, damaged, or not the one its manifest lists."""


class UnsafeBundleError(BundleError):
    """The bundle names operators or files that an edgebert export never contains."""


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


class ForkError(EdgebertError):
    """An engine was used in a process forked after it was loaded."""
