"""The command line: ``edgebert``, or ``python -m edgebert``.

A command checks its options, calls the library and prints. Its module is imported when it is asked for, and imports
nothing heavier than click; NumPy, ONNX Runtime and torch wait until the command runs.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from edgebert import __version__
from edgebert.cli.errors import boundary
from edgebert.cli.logging_options import log_to_stderr, logging_options, unwrapped
from edgebert.cli.param_types import nearest
from edgebert.cli.standard_streams import replace_closed_streams

# The folder of each command's module, in the order of use.
COMMANDS = {
    **dict.fromkeys(("export", "quantize", "verify", "info"), "edgebert.cli.commands"),
    **dict.fromkeys(
        (
            "embed",
            "classify",
            "rerank",
            "choose",
            "tag",
            "answer",
            "fill-mask",
            "generate",
            "translate",
            "score",
            "tokens",
        ),
        "edgebert.cli.commands.tasks",
    ),
    **dict.fromkeys(("bench", "compare", "doctor"), "edgebert.cli.commands"),
}


class LazyGroup(click.Group):
    """A group that imports commands on demand, and reports each error in one line."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += logging_options()
        self.help = unwrapped(self.help)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands, in the order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command: its module has its name, with underscores."""
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(f"{COMMANDS[cmd_name]}.{name}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is asked for; an error suggests the nearest."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}.{nearest(args[0], list(COMMANDS))}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command inside the error boundary."""
        with boundary(ctx):
            replace_closed_streams()
            return super().invoke(ctx)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True, "max_content_width": 100},
)
@click.version_option(__version__, prog_name="edgebert")
@click.pass_context
def main(ctx: click.Context) -> None:
    r"""Take a Transformer trained in PyTorch and run it anywhere ONNX Runtime runs.

    \b
    Example:
        edgebert export all-MiniLM-L6-v2/ minilm/
        edgebert embed minilm/ "A text." "Another text."

    A bundle has one task, and the task its command: embed, classify, rerank, choose, tag, answer, fill-mask, generate,
    or translate, with score beside the last two.

    Results go to standard output, everything else to standard error.

    \b
    Exit codes:
        0    done
        1    failed: one line on standard error says why
        2    wrong usage: an unknown command or option, or a value that it cannot take
        130  interrupted with Ctrl-C; 143 terminated; 141 the reader of the output went away
    """
    ctx.with_resource(log_to_stderr(ctx))
