"""Options in, one call per command, an exit code out (`dpbench.errors.ExitCode`)."""

import errno
import os
import sys
import traceback
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

from dpbench import __version__
from dpbench.cli.terminal import complain, guarded_streams, show_lines
from dpbench.errors import ExitCode, ReportedError, WrongInputError
from dpbench.text.outside import printable, quoted

_WRONG_PATH = (errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.ENOTDIR, errno.EISDIR, errno.ENOENT)
_REPORT = "this is an error in dpbench; please report it with the traceback, which --debug or DPBENCH_DEBUG=1 prints"
_COMMANDS = {
    "compare": ("compare.compare", "Compare the variants that this machine can run."),
    "sweep": ("compare.sweep", "Measure a sweep file, and go on where it stopped."),
    "init": ("init.init", "Write a gate's settings for this repository, and a workflow for its CI."),
    "list": ("list_names.list_names", "List variants and their parameters, workloads and metrics."),
    "counts": ("counts.counts", "Count exactly what one training step does."),
    "report": ("report.report", "Print what records say, and write a page of them."),
    "project": ("project.project", "Project step times on described machines."),
    "trace": ("trace.trace", "Show where the time of one step goes."),
    "gate": ("gate.gate", "Judge whether a commit is slower than another."),
    "elastic": ("elastic.elastic", "Train under torchrun while workers fail, leave and join."),
    "doctor": ("doctor.doctor", "Report what this machine is, and what disturbs measuring."),
    "export": ("export.export", "Write records as CSV, Parquet, or JSON for github-action-benchmark."),
    "asv-machine": ("asv.asv_machine", "Write this machine into asv's machine file."),
}
"""By command its function and the line in the help."""
_EXAMPLES = {
    "compare": "--variants 'tuned[dispatch=threads],naive' --devices 'cpu*4'",
    "sweep": "benchmarks/sweeps/quick.toml",
    "init": "--ci github",
    "counts": "--workloads transformer/tiny\n\n    dpbench counts --script train.py --nproc-per-node 2 -- --epochs 1",
    "report": "results/runs/*.jsonl",
    "project": "convnet/base --machine 8xV100-pcie,4xA100-nvswitch --batch 256",
    "trace": "mlp/small --devices 'sim*4' --variants torch_dp,tuned",
    "gate": "--base main --budget 5m",
    "elastic": "--nproc-per-node 2 --plan kill@12:1,leave@30:0,join@40",
    "doctor": "--quick",
    "export": "results/runs/*.jsonl --to csv --output cases.csv",
}
"""The words of each command's example in its help."""
_FOLDERS = dict.fromkeys(("compare", "sweep", "elastic", "project"), ("results", "runs"))
_FOLDERS |= {"trace": ("output", "runs"), "gate": ("results", "")}
"""The option for a command's folder, and its name in the project's folder of results."""


class _Lazy(TyperCommand):
    """Imported when it is called: together, the modules of the commands take a second."""

    def make_context(self, *args: Any, **more: Any) -> Any:
        return load_command(str(self.name)).make_context(*args, **more)


def load_command(name: str) -> Any:
    from dpbench.cli.options import Command, grouped  # help and completion of the commands' names do without

    module, _, function = _COMMANDS[name][0].partition(".")
    only = typer.Typer(add_completion=False, rich_markup_mode=None)
    epilog = f"Example:\n\n    dpbench {name} {_EXAMPLES.get(name, '')}"
    only.command(name, cls=Command, epilog=epilog)(grouped(getattr(import_module(f"dpbench.cli.{module}"), function)))
    command = typer.main.get_command(only)
    for param in command.params:
        param.process_value = partial(_plain, param.opts[0], param.process_value)  # type: ignore[method-assign]
    return command


def _plain(name: str, process: Callable[..., Any], ctx: Any, text: Any) -> Any:
    """Strip the text; raise WrongInputError for control characters. A path keeps both."""
    value = process(ctx, text.strip() if isinstance(text, str) else text)
    if not isinstance(text, str) or isinstance(value, Path):
        return process(ctx, text)
    if not text.isprintable():
        raise WrongInputError(f"{name}: {quoted(text)} has what cannot be printed; allowed: printable characters")
    return value


app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)
for _name, (_, _line) in _COMMANDS.items():
    app.command(_name, cls=_Lazy, short_help=_line)(lambda: None)


@app.callback(invoke_without_command=True)
def _before(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print the traceback of an error in dpbench.")] = False,  # noqa: ARG001  # `_run` reads it
) -> None:
    """Benchmark data parallelism in PyTorch: which variant is fastest on this machine, and how far from the limit."""
    if version:
        show_lines([f"dpbench {__version__}"])
        raise typer.Exit
    if context.invoked_subcommand is not None:
        try:
            Path.cwd()
        except OSError as error:
            raise WrongInputError(f"current directory: {error.strerror}; allowed: one that exists") from error
        context.default_map = {context.invoked_subcommand: project_defaults(context.invoked_subcommand)}


def project_defaults(command: str | None) -> dict[str, str]:
    """What the project's pyproject.toml sets for a command, as text of the command line. Raise WrongInputError."""
    from dpbench.cases.project_file import find_project_table  # help and completion do without its imports

    project = find_project_table(Path.cwd()) if command in _FOLDERS else None
    if project is None or command is None:
        return {}
    path, table = project
    options = table.compare if command == "compare" else {}
    texts = {key: ",".join(map(str, it if isinstance(it, list) else [it])) for key, it in options.items()}
    option, name = _FOLDERS[command]
    return texts if table.results is None else texts | {option: str(path.parent / table.results / name)}


def main() -> NoReturn:
    with guarded_streams() as out:
        code = _run(sys.argv[1:])
        out.flush()
        if out.lost is not None and code != ExitCode.INTERRUPTED:
            complain(f"standard output: cannot be written: {out.lost.strerror}")
            code = ExitCode.FAILED
    sys.exit(code)


def _run(words: list[str]) -> int:
    debugs = "--debug" in words or os.environ.get("DPBENCH_DEBUG", "0") not in ("", "0")
    words = [word for word in words if word != "--debug"] or ["--help"]
    try:
        code: int = app(words, standalone_mode=False, prog_name="dpbench") or ExitCode.OK
        if code != ExitCode.INTERRUPTED:  # typer turns a KeyboardInterrupt into this code
            return code
        raise KeyboardInterrupt
    except (KeyboardInterrupt, typer.Abort):
        complain("interrupted; what was recorded so far is kept")
        return ExitCode.INTERRUPTED
    except ReportedError as error:
        line, code = str(error), error.exit_code
    except typer.TyperException as error:
        named = f"dpbench {words[0]}" if words[0] in _COMMANDS else "dpbench"
        of_command = getattr(getattr(error, "ctx", None), "command_path", named)
        line = error.format_message()
        line += f"{'' if line.endswith(('.', '?')) else '.'} Allowed: what `{of_command} --help` lists."
        code = ExitCode.WRONG_INPUT
    except Exception as error:
        if isinstance(error, OSError) and error.filename and error.errno in _WRONG_PATH:
            line, code = f"{error.filename!r}: {error.strerror}; allowed: a path that can be used", ExitCode.WRONG_INPUT
        else:
            line, code = f"{type(error).__name__}: {error}; {_REPORT}", ExitCode.FAILED
        if debugs:
            sys.stderr.write(printable(traceback.format_exc()))
    complain(line)
    return code
