"""A verb with many options: `--help` fits a screen, `--help-all` shows the rest in sections."""

import re
from collections.abc import Collection, Mapping
from typing import Any

import click

NUMBER = {click.INT: "N", click.FLOAT: "X", click.STRING: "NAME"}


class LongHelp(click.Command):
    """A command whose `--help` lists only the options that are `usual`.

    Parameters
    ----------
    usual:
        names of parameters.
    sections:
        name of the parameter a section of `--help-all` begins at → its heading; what comes before
        the first is under Options.
    """

    def __init__(
        self,
        *args: Any,
        usual: Collection[str],
        sections: Mapping[str, str],
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._usual = usual
        self._sections = sections
        self._help_all = click.Option(
            ["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=self._show_all,
            help="Show every option and exit.",
        )
        self.params.append(self._help_all)
        for param in self.params:
            if isinstance(param, click.Option) and param.metavar is None and not param.is_flag:
                param.metavar = _metavar(param.type)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        everything = bool(ctx.meta.get(LongHelp.__name__))
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        heading = "Options"
        last = [self._help_all, self.get_help_option(ctx)]
        for param in [*(p for p in self.get_params(ctx) if p not in last), *last]:
            if not isinstance(param, click.Option):
                continue
            if everything:
                heading = "Help" if param in last else self._sections.get(str(param.name), heading)
            elif param not in last and param.name not in self._usual:
                continue
            if (record := param.get_help_record(ctx)) is not None:
                names, text = record
                text = re.sub(r"  \[[\d<>=]*x[\d<>=]*\]$", "", text)  # click's own note of a range
                sections.setdefault(heading, []).append((names, text))
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    @staticmethod
    def _show_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value:
            ctx.meta[LongHelp.__name__] = True
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()


def _metavar(kind: "click.ParamType[Any]") -> str | None:
    if isinstance(kind, click.IntRange):
        return "N"
    return NUMBER.get(kind)
