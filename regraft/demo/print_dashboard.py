"""Print the address of the demo's dashboard, and a token for orders that outlasts the demo."""

from __future__ import annotations

import time

from rich.console import Console

from regraft.dashboard.operator_tokens import make_token, read_secret
from regraft.infra.process.find_user import find_user
from regraft.settings.run_settings import Settings
from regraft.stages.run_loop import dashboard_address

TOKEN_HOURS = 1.0


def print_dashboard(settings: Settings, console: Console) -> None:
    """Print the address of the dashboard, and a token that outlasts the demo."""
    lines = [f"Dashboard: {dashboard_address(settings)}"]
    secret, dashboard = read_secret(settings.dashboard), settings.dashboard
    if secret is not None:
        token = make_token(
            secret, find_user(), dashboard.namespace, TOKEN_HOURS, dashboard.token_hours_max, time.time()
        )
        lines.append(f"Token to give orders with, for {TOKEN_HOURS:g} h: {token}")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
