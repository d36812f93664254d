"""`llmtrace`: the commands put together."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from . import classify, demo, doctor, job, reading, serve

app = typer.Typer(
    name="llmtrace",
    help="One trace id for a training job; when it breaks, the thirty seconds before, from every rank, with the culprit named.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

RAW = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""For `run`: what follows the command's name is the command's, dashes and all."""

app.command("run", context_settings=RAW)(job.run)
app.command("runs")(reading.runs)
app.command("incidents")(reading.incidents)
app.command("context")(reading.context)
app.command("classify")(classify.classify)
app.command("serve")(serve.serve)
app.command("doctor")(doctor.doctor)
app.command("off")(job.off)
app.command("agent")(job.agent)
app.command("demo")(demo.demo)


def _say_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"llmtrace {version('llmtrace')}")
        raise typer.Exit()


@app.callback()
def root(version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_say_version, help="Print the version.")] = False) -> None:
    """One trace id for a training job; when it breaks, the thirty seconds before, from every rank, with the culprit named."""


def main() -> None:
    """The entry point. SIGPIPE ends us as it ends any tool in a pipe (Python ignores it), so `| head` and a left `less` are quiet."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    app()
