"""``regraft members``: list the brokers and their states, and give orders about them.

In: the members topic, and the inventory if this machine has it. Out: a table, JSON, orders. The controller judges
orders; this module refuses only those that make no sense.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import msgspec
import structlog
import typer

from regraft.commands.command_options import AsJson, Assignments, Bootstrap, By, NeededReason, SettingsFile, settings_of
from regraft.commands.describe_broker import (
    FactsError,
    announced_row,
    facts_of,
    facts_text,
    member_row,
    movable_text,
    subscribers_json,
)
from regraft.commands.float_option import float_option
from regraft.commands.give_orders import give_order, print_answer
from regraft.commands.print_table import print_table, print_text
from regraft.commands.watch_output import Watch, show_watched
from regraft.infra.process.exit_codes import EXIT_FAILED
from regraft.infra.process.stack_error import CallError, StackError
from regraft.overlay.read_inventory import load_inventory
from regraft.schemas.announcement import EXPIRY_MS, Announcement, announcement_error, may_announce
from regraft.schemas.left_behind import Subscribers, left_behind_text, subscribers_of
from regraft.schemas.member import BrokerFacts, Member, MemberState
from regraft.schemas.member_life import why_member_order_refused
from regraft.schemas.order import OrderKind

if TYPE_CHECKING:
    from regraft.settings.run_settings import Settings

READ_S_MAX = 30.0

members_app = typer.Typer(
    no_args_is_help=True,
    help="""Show the brokers of the fleet; add, drain, maintain or remove one, or declare it dead.

The fleet starts with the inventory file; later changes are stored in Kafka and survive restarts.""",
)

BrokerName = Annotated[str, typer.Argument(metavar="BROKER", help="Its name.")]
BrokerNames = Annotated[list[str], typer.Argument(metavar="BROKER", help="One or more brokers.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
Links = Annotated[
    list[str] | None,
    typer.Option("--link", metavar="PEER=COST", help="Cost of a link to another broker; repeat for more."),
]
Position = Annotated[
    str | None, typer.Option("--position", metavar="X,Y", help="Its position, to price links not given with --link.")
]
Processing = Annotated[
    float | None,
    float_option("--processing", min=0, help="Cost of processing a notification there.", show_default="the median"),
]
LoadMax = Annotated[
    float, float_option("--load-max", metavar="PER_S", min=0, help="Maximum notifications per second; 0 for no limit.")
]
Address = Annotated[
    str, typer.Option("--address", metavar="HOST:PORT", help="Address where it listens (for information).")
]
Capabilities = Annotated[
    list[str] | None, typer.Option("--capability", metavar="WORD", help="Free-form note; repeat for more.")
]

log = structlog.get_logger(__name__)


class MemberError(StackError):
    """An order about a member makes no sense; the message says why."""


class UnknownBrokerError(CallError):
    """An order names a broker that does not exist; the message says so."""


@members_app.command(name="list")
def list_members(
    state: Annotated[MemberState | None, typer.Option("--state", help="Only brokers in this state.")] = None,
    as_json: AsJson = False,
    watch: Watch = False,
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """List the brokers: state, time and reason of its last change, recent deaths, earliest return, requests to join.

    Where clients stay, the list also shows how many of a broker's subscribers may move, and why others stay if that is
    known, as far as the live view or the controller's status file can be read here. Without an inventory on this
    machine, only brokers with a record in Kafka are listed.

    Examples: `regraft members list`; `regraft members list --watch`; `regraft members list --state dead --json`.
    """
    settings = settings_of(assignments, settings_file, bootstrap)

    def show(members_of: dict[str, Member]) -> None:
        announced = [] if state else read_announced(settings, members_of)
        _show_members(members_of, announced, state, _subscribers_of(settings) or {}, as_json=as_json)

    show_watched(lambda: _known(settings), show, watch=watch)


def _show_members(
    members_of: dict[str, Member],
    announced: list[Announcement],
    state: MemberState | None,
    subscribers: Mapping[str, Subscribers],
    *,
    as_json: bool,
) -> None:
    members = [member for member in members_of.values() if state in (None, member.state)]
    if as_json:
        asking = [{**msgspec.to_builtins(one), "state": "announced"} for one in announced]
        shown = [msgspec.to_builtins(one) | subscribers_json(subscribers.get(one.broker)) for one in members]
        typer.echo(json.dumps([*shown, *asking], indent=2))
        return
    rows: list[tuple[str, ...]] = [
        *(member_row(member) for member in members),
        *(announced_row(one, members_of) for one in announced),
    ]
    heads = ["broker", "state", "since", "why"]
    if subscribers:
        heads.insert(2, "may move")
        rows = [(*row[:2], movable_text(subscribers.get(row[0])), *row[2:]) for row in rows]
    print_table(heads, rows, wraps=["why", "may move"], drops=["since"])
    counts = ", ".join(
        f"{count} {one.value.replace('_', ' ')}"
        for one in MemberState
        if (count := sum(member.state is one for member in members_of.values()))
    )
    typer.echo(
        f"{len(members_of)} brokers: {counts}" if members_of else "No known brokers: there is no inventory here."
    )


@members_app.command()
def add(
    broker: BrokerName,
    reason: NeededReason,
    links: Links = None,
    position: Position = None,
    processing: Processing = None,
    load_max: LoadMax = 0.0,
    agent: Annotated[str, typer.Option("--agent", help="The agent that represents it in Kafka.")] = "",
    address: Address = "",
    capabilities: Capabilities = None,
    by: By = "",
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Add a broker; it joins the overlay through a lossless plan as soon as it runs.

    Give the cost of its links (--link), its position (--position), or both. For a broker that announces itself, give
    only what should differ from its announcement.

    Examples: `regraft members add b41 --link b07=2.5 --link b12=4 --reason "more room"`;
    `regraft members add b42 --reason "it asks to join"`.
    """
    settings = settings_of(assignments, settings_file, bootstrap)
    inventory, members = settings.controller.inventory_path, _known(settings)
    try:
        own = _announced_facts(settings, members, broker, agent)
        facts = facts_of(
            links or (), position, processing, load_max, agent, address, capabilities or (), inventory, own
        )
    except FactsError as error:
        raise typer.BadParameter(str(error)) from error
    strangers = sorted({link.peer for link in facts.link_costs} - members.keys())
    if inventory.exists() and strangers:
        raise typer.BadParameter(f"there is no broker {strangers[0]} to link to: see `regraft members list`")
    _order(settings, members, OrderKind.ADD, [broker], reason, by, "{} will join.", facts)


@members_app.command()
def drain(
    brokers: BrokerNames,
    reason: NeededReason,
    yes: Yes = False,
    by: By = "",
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Take brokers out of the overlay: clients move away where possible, without losing anything, then they leave.

    Where clients stay, or neither inventory nor live view can be read here, the command says how many a broker leaves
    behind and asks whether you accept that. `regraft members readmit` revokes the order.

    Example: `regraft members drain b07 --reason "old machine"`.
    """
    settings = settings_of(assignments, settings_file, bootstrap)
    members, inventory = _known(settings), settings.controller.inventory_path
    _check(members, OrderKind.DRAIN, brokers, None, is_whole=inventory.exists())
    counts = _subscribers_of(settings)
    may_stay = load_inventory(inventory).clients_stay if inventory.exists() else counts is None
    if counts or may_stay:
        _confirm(yes, left_behind_text(brokers, counts or {}) + " Drain?")
    done = "{0} is draining; `regraft members list` shows when it has left."
    _order(settings, members, OrderKind.DRAIN, brokers, reason, by, done)


@members_app.command()
def dead(
    brokers: BrokerNames,
    reason: NeededReason,
    yes: Yes = False,
    by: By = "",
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Declare brokers dead without waiting for the controller to detect it: the overlay is repaired at once.

    Everything that they hold or that is in transit on their links is lost, even if they still run. If more than half of
    the fleet falls silent at once, only this order declares brokers dead.

    Example: `regraft members dead b07 b08 --yes --reason "the site is on fire"`.
    """
    settings = settings_of(assignments, settings_file, bootstrap)
    members = _known(settings)
    _check(members, OrderKind.DEAD, brokers, None, is_whole=settings.controller.inventory_path.exists())
    _confirm(
        yes,
        f"Everything held by {', '.join(brokers)} or in transit on their links is lost, even if they run. Are they "
        "dead?",
    )
    done = "{0} is declared dead; `regraft status` shows the repair."
    _order(settings, members, OrderKind.DEAD, brokers, reason, by, done)


@members_app.command()
def remove(
    brokers: BrokerNames,
    reason: NeededReason,
    yes: Yes = False,
    by: By = "",
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Remove brokers that are dead or never joined; they do not rejoin automatically.

    Example: `regraft members remove b07 --yes --reason "scrapped"`.
    """
    settings = settings_of(assignments, settings_file, bootstrap)
    members = _known(settings)
    _check(members, OrderKind.REMOVE, brokers, None, is_whole=settings.controller.inventory_path.exists())
    _confirm(yes, f"{', '.join(brokers)} will not rejoin without `regraft members readmit`. Remove?")
    _order(settings, members, OrderKind.REMOVE, brokers, reason, by, "{} is removed.")


@members_app.command()
def readmit(
    brokers: BrokerNames,
    reason: NeededReason,
    by: By = "",
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Readmit brokers: one that drains stays, one that was dead or has left rejoins without the usual pause.

    One in service starts over and rejoins: use it if brokers restarted and nothing has shown that.

    Example: `regraft members readmit b07 --reason "new disk"`.
    """
    settings = settings_of(assignments, settings_file, bootstrap)
    _order(settings, _known(settings), OrderKind.READMIT, brokers, reason, by, "{} may rejoin.")


def _subscribers_of(settings: Settings) -> dict[str, Subscribers] | None:
    """Return the subscribers of each broker; empty if none stays, None if unknown here."""
    from regraft.stages.read_status import find_status

    view = find_status(settings).view
    return None if view is None or view.network is None else subscribers_of(view.network.brokers)


def _known(settings: Settings) -> dict[str, Member]:
    """Return the newest record of every known broker. Raises StackError if Kafka or the topic is unavailable."""
    from regraft.overlay.inventory.members import FleetView
    from regraft.run_records.read_topics import read_whole
    from regraft.schemas.remote_registry import use_registry
    from regraft.schemas.topics import MEMBERS
    from regraft.stages.run_loop import require_kafka

    require_kafka(settings.kafka.access)
    use_registry(namespace=settings.kafka.namespace)
    records = list(read_whole(settings.kafka.access, settings.kafka.namespace, {MEMBERS: Member}, READ_S_MAX))
    path = settings.controller.inventory_path
    if path.exists():
        return FleetView.of(load_inventory(path), records).members
    newest = {record.broker: record for record in records}  # Compaction is late: there may be several of a broker.
    return dict(sorted(newest.items()))


def _announced_facts(settings: Settings, known: dict[str, Member], broker: str, agent: str) -> BrokerFacts | None:
    """Return and print a broker's announcement of itself, None if there is none. Raises FactsError."""
    announced = [one.facts for one in read_announced(settings, known) if one.broker == broker]
    announced = [facts for facts in announced if agent in ("", facts.agent)]
    if len(announced) > 1:
        agents = ", ".join(repr(facts.agent) for facts in announced)
        raise FactsError(f"{broker} is announced by several agents ({agents}): choose one with --agent")
    for facts in announced:
        print_text(f"{broker} announces: {facts_text(facts)}")
    return announced[0] if announced else None


def _check(
    known: dict[str, Member], kind: OrderKind, brokers: list[str], facts: BrokerFacts | None, *, is_whole: bool
) -> None:
    """Raise MemberError if an order makes no sense, UnknownBrokerError if it names a broker that does not exist.

    ``is_whole``: all brokers are known, so other names are wrong.
    """
    for broker in brokers:
        member = known.get(broker)
        if member is None and not is_whole and kind is not OrderKind.ADD:
            continue  # The controller knows all names, and answers.
        if refusal := why_member_order_refused(kind, broker, member, facts):
            is_unknown = member is None and kind is not OrderKind.ADD
            raise (UnknownBrokerError if is_unknown else MemberError)(f"{refusal}.")


def _order(
    settings: Settings,
    known: dict[str, Member],
    kind: OrderKind,
    brokers: list[str],
    reason: str,
    by: str,
    done: str,
    facts: BrokerFacts | None = None,
) -> None:
    """Give the same order about each broker and print the controller's answers; exits with 1 if one is refused."""
    _check(known, kind, brokers, facts, is_whole=settings.controller.inventory_path.exists())
    refused = 0
    for broker in dict.fromkeys(brokers):
        try:
            print_answer(give_order(settings, kind, broker, by, reason, facts=facts), done.format(broker))
        except typer.Exit:
            refused += 1
    if refused:
        raise typer.Exit(EXIT_FAILED)


def _confirm(yes: bool, question: str) -> None:
    """Return if the flag or the user's answer confirms; without a terminal only the flag counts."""
    import sys

    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"{question} Give --yes: there is no terminal to ask on")
    typer.confirm(question, abort=True)


def read_announced(settings: Settings, known: Mapping[str, Member]) -> list[Announcement]:
    """Return the current announcements by broker, except those of members and of other agents.

    Raises StackError if Kafka is unavailable.
    """
    from regraft.infra.kafka.read_messages import find_names, read_messages
    from regraft.schemas.codec import UndecodableRecordError, decode
    from regraft.schemas.topics import ANNOUNCEMENTS

    kafka, namespace = settings.kafka.access, settings.kafka.namespace
    announcements: dict[tuple[str, str], Announcement] = {}
    since_ms = time.time_ns() // 1_000_000 - EXPIRY_MS
    names = find_names(kafka, ANNOUNCEMENTS, namespace)
    for message in read_messages(kafka, names, READ_S_MAX, since_ms) if names else ():  # No topic before an upgrade.
        if message.value() is None:
            continue
        try:
            announcement = decode(message.value(), Announcement)
        except UndecodableRecordError as error:
            log.warning("record_skipped", topic=message.topic(), offset=message.offset(), reason=str(error))
            continue
        if not announcement_error(namespace, message.topic() or "", announcement, None) and may_announce(
            known.get(announcement.broker)
        ):
            announcements[announcement.broker, announcement.facts.agent] = announcement
    return [announcement for _, announcement in sorted(announcements.items())]
