"""``regraft inventory``: make the file that lists an operator's brokers, and check one.

In: options, files, NATS servers' monitoring ports. Out: an inventory, sentences. The parts are in ``inventories``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regraft.commands.command_options import AsJson, Assignments, SettingsFile, settings_of
from regraft.commands.float_option import float_option
from regraft.commands.print_table import print_text
from regraft.infra.process.exit_codes import EXIT_CALL, EXIT_FAILED
from regraft.overlay.read_inventory import load_inventory, parse_inventory
from regraft.schemas.texts import ended

if TYPE_CHECKING:
    from regraft.inventories.build_inventory import Tariff
    from regraft.inventories.found_brokers import FoundBrokers

DEGREE_MAX = 8

inventory_app = typer.Typer(
    no_args_is_help=True, help="Create or check the file that lists your brokers (docs/inventory.md)."
)

Brokers = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES|FILE.csv",
        help="Comma-separated names, or a table with columns broker, latitude, longitude, region...",
    ),
]
RoundTrips = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE", help="Table with columns from, to, rtt_ms, or a node's status (node-*.json); repeat for more."
    ),
]
Topology = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Network as a .graphml or .gml file, as in the Topology Zoo.")
]
Weight = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="With --topology: the links' attribute with the delay in ms; default weight."),
]
Nats = Annotated[
    list[str] | None,
    typer.Option(metavar="URL", help="Monitoring port of a NATS server, http://HOST:8222; repeat for each server."),
]
PriceTable = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Table with columns from, to, price_per_gb between regions; to is `clients` for clients."
    ),
]
Currency = Annotated[str | None, typer.Option(metavar="NAME", help="With --prices: their currency.")]
MessageBytes = Annotated[
    float | None, float_option(min=1, help="With --prices: the mean size of a notification on a link.")
]


@inventory_app.command()
def make(
    brokers: Brokers = None,
    round_trips: RoundTrips = None,
    topology: Topology = None,
    weight: Weight = None,
    nats_monitoring: Nats = None,
    prices: PriceTable = None,
    currency: Currency = None,
    message_bytes: MessageBytes = None,
    degree_max: Annotated[int, typer.Option(min=1, help="Maximum number of links per broker.")] = DEGREE_MAX,
    clients_move: Annotated[
        bool,
        typer.Option(
            "--clients-move", help="Let plans move clients; not with nodes, whose clients stay where they connect."
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Default: inventory.json in the run directory.")
    ] = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Create an inventory from the given sources, and print any oddities.

    With --brokers, only these are brokers; the other sources then give delays. Missing delays are derived from
    known ones along paths, or from positions; without either, all links cost the same until nodes measure them.

    Examples: `regraft inventory make --brokers b01,b02,b03`;
    `regraft inventory make --brokers brokers.csv --round-trips rtt.csv`;
    `regraft inventory make --topology Geant2012.gml`;
    `regraft inventory make --nats-monitoring http://10.0.0.1:8222 --nats-monitoring http://10.0.0.2:8222`;
    `regraft inventory make --brokers brokers.csv --prices prices.csv --currency USD --message-bytes 500`.
    """
    from regraft.inventories.build_inventory import Wishes, build_inventory, combined
    from regraft.inventories.find_oddities import find_oddities

    file = out or settings_of(assignments, settings_file).controller.inventory_path
    if file.exists():
        typer.echo(f"{file} already exists: name a different file with --out, or remove it.", err=True)
        raise typer.Exit(EXIT_CALL)
    if weight and not topology:
        raise typer.BadParameter("--weight names an attribute of the links in --topology: give both")
    brokers_found = combined(_sources(brokers, round_trips, topology, weight, nats_monitoring))
    tariff = _tariff(prices, currency, message_bytes)
    inventory, notes = build_inventory(brokers_found, Wishes(degree_max, not clients_move, tariff))
    parse_inventory(inventory.to_json(), "what is given")  # Refuses what no command would read, such as odd names.
    inventory.save(file)
    count = len(inventory.brokers)
    typer.echo(f"Wrote {file}: {count} brokers, and a tree of {count - 1} links as the initial overlay.")
    _print_oddities([*notes, *find_oddities(inventory)])


@inventory_app.command()
def check(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Default: inventory.json in the run directory.")
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print only the JSON schema of inventories, for editors and programs.")
    ] = False,
    as_json: AsJson = False,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Check an inventory: list errors, each with its pair or field, and oddities.

    Exits with 1 if something is wrong.

    Examples: `regraft inventory check`; `regraft inventory check mine.json --json`;
    `regraft inventory check --schema > inventory.schema.json`.
    """
    if schema:
        _print_schema()
        return
    from regraft.inventories.find_oddities import find_oddities
    from regraft.overlay.inventory.inventory import InventoryError

    path = file or settings_of(assignments, settings_file).controller.inventory_path
    if not path.exists():
        typer.echo(f"{path} does not exist: `regraft inventory make` writes one.", err=True)
        raise typer.Exit(EXIT_CALL)
    errors: tuple[str, ...] = ()
    oddities: list[str] = []
    kind, brokers = "", 0
    try:
        inventory = load_inventory(path)
    except InventoryError as error:
        errors = error.errors
    else:
        oddities, kind, brokers = find_oddities(inventory), inventory.bootstrap.KIND, len(inventory.brokers)
    if as_json:
        typer.echo(json.dumps({"file": str(path), "brokers": brokers, "wrong": errors, "odd": oddities}, indent=2))
    elif errors:
        print_text(f"{path} cannot be used:")
        for sentence in errors:
            print_text(f"Wrong: {ended(sentence)}")
    else:
        typer.echo(f"{path} can be used: a {kind} over {brokers} brokers.")
        _print_oddities(oddities)
    if errors:
        raise typer.Exit(EXIT_FAILED)


def _print_schema() -> None:
    from regraft.overlay.inventory.inventory_schema import inventory_schema

    typer.echo(json.dumps(inventory_schema(), indent=2))


def _sources(
    brokers: str | None,
    round_trips: list[Path] | None,
    topology: Path | None,
    weight: str | None,
    nats_monitoring: list[str] | None,
) -> list[FoundBrokers]:
    """Return what each given source says; the first one has the brokers. Raises SourceError."""
    from regraft.inventories.read_brokers import read_brokers, read_round_trips
    from regraft.inventories.read_nats import read_nats
    from regraft.inventories.read_topology import read_topology

    parts = [
        *([read_brokers(brokers)] if brokers else []),
        *([read_topology(topology, weight)] if topology else []),
        *([read_nats(nats_monitoring)] if nats_monitoring else []),
        *([read_round_trips(round_trips)] if round_trips else []),
    ]
    if not parts:
        raise typer.BadParameter("give --brokers, --topology, --nats-monitoring or --round-trips")
    return parts


def _tariff(prices: Path | None, currency: str | None, message_bytes: float | None) -> Tariff | None:
    from regraft.inventories.build_inventory import read_prices

    if prices is None and currency is None and message_bytes is None:
        return None
    if prices is None or not currency or message_bytes is None:
        raise typer.BadParameter("--prices, --currency and --message-bytes go together: give all three")
    return read_prices(prices, currency, message_bytes)


def _print_oddities(oddities: list[str]) -> None:
    for oddity in oddities:
        print_text(f"Note: {oddity}.")
    if not oddities:
        typer.echo("No oddities found.")
