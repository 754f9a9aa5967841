"""The commands of the CLI by the tasks that they run."""

from __future__ import annotations

from edgebert_runtime.task_specs import TASKS

# The command of each task, and the tasks of commands beside those.
VERBS = {name: spec.verb for name, spec in TASKS.items()}
ALSO = {
    verb: tuple(name for name, spec in TASKS.items() if verb in spec.other_verbs)
    for each in TASKS.values()
    for verb in each.other_verbs
}
