"""`geartrain`: the command line. Commands are in `geartrain.commands`; here errors and signals become exit statuses.

0 is done; 2 means that the command, the config, a file or its header is wrong; 1 that something failed later; a signal
gives 128 and its number.
"""

from __future__ import annotations

import logging
import os
from typing import Any

import click

from geartrain.commands import evaluate, jobs, key, roles, simulate, standing, tools, train
from geartrain.errors import GeartrainError
from geartrain.launch.lifeline import bind_to_parent
from geartrain.launch.signals import StopRequested

_INTERRUPTED = 130

log = logging.getLogger("geartrain")


class Commands(click.Group):
    """Every command leaves through here."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except GeartrainError as error:
            click.echo(f"error: {' '.join(error.message.split())}", err=True)  # always one line
            ctx.exit(error.exit_status)
        except StopRequested as stop:
            ctx.exit(stop.exit_status)
        except BrokenPipeError:
            raise  # click ends quietly when nobody reads the output
        except OSError as error:
            log.info("the operating system refused something", exc_info=True)  # for the logs of roles
            click.echo(f"error: {error}", err=True)
            ctx.exit(1)
        except KeyboardInterrupt:
            ctx.exit(_INTERRUPTED)


def _hyphens(name: str) -> str:
    return name.replace("_", "-")


@click.group(cls=Commands, context_settings={"token_normalize_func": _hyphens, "help_option_names": ["-h", "--help"]})
@click.version_option(package_name="geartrain", message="geartrain %(version)s")
def command() -> None:
    """Train click-through-rate models on the hardware you really have."""


for family in (train, evaluate, roles, standing, jobs, key, simulate, tools):
    for each in family.COMMANDS:
        command.add_command(each)


def main() -> None:
    """Entry point of the console script, and of every role's process that a launcher starts."""
    bind_to_parent(os.environ)
    command()


if __name__ == "__main__":
    main()
