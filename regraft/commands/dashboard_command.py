"""The command `regraft dashboard`: make or revoke tokens for giving orders.

Pages, orders and tokens belong to ``dashboard``, serving them to :mod:`regraft.commands.stage_command`.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated

import typer

from regraft.commands.command_options import AsJson, Assignments, SettingsFile, settings_of
from regraft.commands.float_option import float_option

if TYPE_CHECKING:
    from regraft.dashboard.dashboard_settings import DashboardSettings

dashboard_app = typer.Typer(
    no_args_is_help=True,
    help=(
        "Issue and revoke tokens for orders on the dashboard, which `regraft stage dashboard` serves "
        "(docs/dashboard.md)."
    ),
)


@dashboard_app.command()
def token(
    which: Annotated[
        str | None, typer.Argument(metavar="ID", help="With --revoke: the ID of the token, or the token itself.")
    ] = None,
    by: Annotated[str, typer.Option("--by", metavar="NAME", help="Name of its holder, recorded with each order.")] = "",
    hours: Annotated[float, float_option("--hours", help="Lifetime in hours.")] = 8.0,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Allow reading only, if dashboard.login_to_read requires a token.")
    ] = False,
    revoke: Annotated[
        bool, typer.Option("--revoke", help="Revoke the token with this ID instead of issuing one.")
    ] = False,
    as_json: AsJson = False,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Issue a token to an operator, who may give orders on the dashboard until it expires.

    Needs the dashboard's secret: dashboard.secret_file, or dashboard.secret, which is better set as
    REGRAFT_DASHBOARD__SECRET than on a command line. The token's ID, printed with it, revokes only this token; a new
    secret revokes all of them.

    With --revoke, dashboards that read the same dashboard.revoked_file refuse the token from now on. Run this where the
    dashboard runs, or anywhere that can write the file; no dashboard needs a restart.

    Examples: `regraft dashboard token --by "Ana Silva"`; `regraft dashboard token --by night-shift --hours 12`;
    `regraft dashboard token --by "wall screen" --read-only`; `regraft dashboard token --revoke 3f9c2a7be01d4c58`.
    """
    settings = settings_of(assignments, settings_file).dashboard
    if revoke:
        if which is None:
            raise typer.BadParameter("--revoke needs the token's ID, or the token itself")
        _revoke(which, settings)
        return
    if which is not None or not by:
        raise typer.BadParameter("give --by with the name of its holder" if which is None else "ID is for --revoke")
    _make(settings, by, hours, read_only=read_only, as_json=as_json)


def _make(dashboard: DashboardSettings, by: str, hours: float, *, read_only: bool, as_json: bool) -> None:
    from regraft.dashboard.operator_tokens import READ_SCOPE, SCOPE, TokenSecretError, id_of, make_token, read_secret

    secret = read_secret(dashboard)
    if secret is None:
        raise TokenSecretError(
            "No secret to sign tokens with is set: set dashboard.secret_file or "
            "REGRAFT_DASHBOARD__SECRET as for the dashboard."
        )
    now_s, scope = time.time(), READ_SCOPE if read_only else SCOPE
    made = make_token(secret, by, dashboard.namespace, hours, dashboard.token_hours_max, now_s, scope)
    if as_json:
        until_ms = int((now_s + hours * 3600) * 1000)
        answer = {"token": made, "id": id_of(made), "by": by, "namespace": dashboard.namespace, "until_ms": until_ms}
        typer.echo(json.dumps(answer))
    else:
        typer.echo(f"ID of the token, for --revoke: {id_of(made)}", err=True)
        typer.echo(made)


def _revoke(which: str, dashboard: DashboardSettings) -> None:
    from regraft.dashboard.operator_tokens import id_of
    from regraft.dashboard.revoked_tokens import revoke_token

    file = dashboard.revoked_path
    token_id = id_of(which)
    was_added = revoke_token(file, token_id)
    typer.echo(f"Token {token_id} {'is' if was_added else 'was already'} revoked in {file}.")
