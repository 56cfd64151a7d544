"""What a program around Regraft shares with its command line: settings, progress, figures, exit codes."""

from regraft.commands.parse_assignments import parse_assignments
from regraft.demo.demo_flags import demo_flags
from regraft.infra.process.exit_codes import EXIT_CALL, EXIT_FAILED, EXIT_INTERRUPTED
from regraft.infra.process.find_extras import require_extras
from regraft.infra.process.log_stream import configure_logs
from regraft.infra.process.measured_figures import Figure, run_facts, write_figures
from regraft.infra.process.run_tasks import ReportWork, run_tasks
from regraft.infra.process.show_progress import Advance, show_progress
from regraft.infra.process.stack_error import StackError
from regraft.settings.place_demo import ensure_inventory
from regraft.settings.run_settings import Settings, load_settings

__all__ = [
    "Advance",
    "EXIT_CALL",
    "EXIT_FAILED",
    "EXIT_INTERRUPTED",
    "Figure",
    "ReportWork",
    "Settings",
    "StackError",
    "configure_logs",
    "demo_flags",
    "ensure_inventory",
    "load_settings",
    "parse_assignments",
    "require_extras",
    "run_facts",
    "run_tasks",
    "show_progress",
    "write_figures",
]
