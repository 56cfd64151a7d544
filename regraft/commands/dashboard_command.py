"""The command `regraft dashboard`: make or revoke tokens for giving orders.

Pages, orders and tokens belong to ``dashboard``, serving them to :mod:`regraft.commands.stage_command`.
"""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer

from regraft.commands.command_options import AsJson, Assignments, SettingsFile, settings_of

dashboard_app = typer.Typer(
    no_args_is_help=True,
    help="Tokens to give orders with on the dashboard (docs/dashboard.md), which `regraft stage dashboard` serves.",
)


@dashboard_app.command()
def token(
    by: Annotated[str, typer.Option("--by", metavar="NAME", help="Who will hold it; orders carry this name.")],
    hours: Annotated[float, typer.Option("--hours", help="Lifetime in hours.")] = 8.0,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Allow reading only, where dashboard.login_to_read requires a token.")
    ] = False,
    as_json: AsJson = False,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Make a token for a person: its holder may give orders on the dashboard until it expires.

    Needs the dashboard's secret: dashboard.secret_file, or dashboard.secret, which is better set as
    REGRAFT_DASHBOARD__SECRET than on a command line. The token's id, printed with it, revokes this one (`regraft
    dashboard revoke`); a new secret revokes all of them.

    Examples: `regraft dashboard token --by "Ana Silva"`; `regraft dashboard token --by night-shift --hours 12`;
    `regraft dashboard token --by "wall screen" --read-only`.
    """
    from regraft.dashboard.operator_tokens import READ_SCOPE, SCOPE, TokenSecretError, id_of, make_token, read_secret

    dashboard = settings_of(assignments, settings_file).dashboard
    secret = read_secret(dashboard)
    if secret is None:
        raise TokenSecretError(
            "There is no secret to sign tokens with: set dashboard.secret_file or "
            "REGRAFT_DASHBOARD__SECRET as for the dashboard."
        )
    now_s, scope = time.time(), READ_SCOPE if read_only else SCOPE
    made = make_token(secret, by, dashboard.namespace, hours, dashboard.token_hours_max, now_s, scope)
    if as_json:
        until_ms = int((now_s + hours * 3600) * 1000)
        answer = {"token": made, "id": id_of(made), "by": by, "namespace": dashboard.namespace, "until_ms": until_ms}
        typer.echo(json.dumps(answer))
    else:
        typer.echo(f"Id of the token, to revoke it with: {id_of(made)}", err=True)
        typer.echo(made)


@dashboard_app.command()
def revoke(
    which: Annotated[str, typer.Argument(metavar="ID", help="The token's id, or the token itself.")],
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Revoke one token: dashboards that read the same dashboard.revoked_file refuse it from now on.

    Run it where the dashboard runs, or anywhere that file can be written; no dashboard needs a restart.

    Examples: `regraft dashboard revoke 3f9c2a7be01d4c58`;
    `regraft dashboard revoke 3f9c2a7be01d4c58 --set dashboard.revoked_file=/etc/regraft/revoked.txt`.
    """
    from regraft.dashboard.operator_tokens import id_of
    from regraft.dashboard.revoked_tokens import revoke_token

    file = settings_of(assignments, settings_file).dashboard.revoked_path
    token_id = id_of(which)
    was_added = revoke_token(file, token_id)
    typer.echo(f"Token {token_id} {'is' if was_added else 'was already'} revoked in {file}.")
