"""What the documentation shows: its code blocks, and the commands in them with the lines that stand below."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def blocks(text: str, language: str) -> list[str]:
    """Return the code blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.S | re.M)


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Return each command of the console blocks with the lines that stand below it."""
    found: list[tuple[str, list[str]]] = []
    for line in "".join(blocks(text, "console")).splitlines():
        if line.startswith("$ "):
            found.append((line[2:].split("  #")[0].strip(), []))
        else:
            found[-1][1].append(line)
    return found


def run(command: str, folder: Path) -> list[str]:
    """Run a command as a reader would, with our own interpreter first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout.rstrip().splitlines()
