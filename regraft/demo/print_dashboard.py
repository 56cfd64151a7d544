"""Print where the demo's dashboard is, with a token for orders that lasts as long as a demo may."""

from __future__ import annotations

import getpass
import time

from rich.console import Console

from regraft.dashboard.operator_tokens import make_token, read_secret
from regraft.settings.run_settings import Settings
from regraft.stages.run_loop import dashboard_address

TOKEN_HOURS = 1.0


def print_dashboard(settings: Settings, console: Console) -> None:
    """Print where the dashboard is, and a token that lasts for the demo."""
    lines = [f"Dashboard: {dashboard_address(settings)}"]
    secret, dashboard = read_secret(settings.dashboard), settings.dashboard
    if secret is not None:
        token = make_token(
            secret, getpass.getuser(), dashboard.namespace, TOKEN_HOURS, dashboard.token_hours_max, time.time()
        )
        lines.append(f"Token to give orders with, for {TOKEN_HOURS:g} h: {token}")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
