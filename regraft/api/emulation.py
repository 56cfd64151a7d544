"""Overlays on a virtual clock: brokers, links, clients, workloads, and the loop over them."""

from regraft.controller.ports.memory_ports import MemoryPorts
from regraft.controller.windows.assemble_state import WindowAssembler
from regraft.controller.windows.estimate_links import NetworkCoordinates
from regraft.producers.emulator.delivery_cells import DeliveryCells
from regraft.producers.emulator.emulate_overlay import CONTROL_BYTES, EmulatedOverlay, OverlayTiming, inventory_timing
from regraft.producers.emulator.emulated_broker import Served
from regraft.producers.emulator.emulator_ports import OverlayListener, TelemetrySink
from regraft.producers.emulator.ledger import LedgerSnapshot
from regraft.producers.emulator.meter_queues import LinkMeter
from regraft.producers.emulator.place_overlay import (
    PROCESSING_MS_MAX,
    PROCESSING_MS_MIN,
    measured_rtt_ms,
    place_overlay,
    place_scot,
)
from regraft.producers.emulator.place_regions import shipped_regions
from regraft.producers.emulator.publisher_clients import MoveCounts
from regraft.producers.emulator.starting_point import StartingPoint
from regraft.producers.emulator.user_clients import topic_filter
from regraft.producers.nodes.links.choose_candidates import NEAR_MAX
from regraft.producers.real_fleet.link_proxy import LinkProxy
from regraft.producers.virtual_overlay import CELLS_KEPT_S, CONTROL_SERVICE_MS, VirtualOverlay, VirtualSettings
from regraft.producers.workloads.checkin_data import DAY_MINUTES, Checkins, checkins_of, load_checkins
from regraft.producers.workloads.stock_settings import SYMBOLS_SHIPPED, RegimeChange, WorkloadSettings
from regraft.producers.workloads.stock_workload import Quote, SubscriptionMaker, advertisement, load_stock_data
from regraft.streaming.reference_aggregator import ReferenceAggregator
from regraft.virtual_runs.virtual_loop import START_MS, VirtualLoop, virtual_settings

__all__ = [
    "CELLS_KEPT_S",
    "CONTROL_BYTES",
    "CONTROL_SERVICE_MS",
    "DAY_MINUTES",
    "NEAR_MAX",
    "PROCESSING_MS_MAX",
    "PROCESSING_MS_MIN",
    "START_MS",
    "SYMBOLS_SHIPPED",
    "Checkins",
    "DeliveryCells",
    "EmulatedOverlay",
    "LedgerSnapshot",
    "LinkMeter",
    "LinkProxy",
    "MemoryPorts",
    "MoveCounts",
    "NetworkCoordinates",
    "OverlayListener",
    "OverlayTiming",
    "Quote",
    "ReferenceAggregator",
    "RegimeChange",
    "Served",
    "StartingPoint",
    "SubscriptionMaker",
    "TelemetrySink",
    "VirtualLoop",
    "VirtualOverlay",
    "VirtualSettings",
    "WindowAssembler",
    "WorkloadSettings",
    "advertisement",
    "checkins_of",
    "inventory_timing",
    "load_checkins",
    "load_stock_data",
    "measured_rtt_ms",
    "place_overlay",
    "place_scot",
    "shipped_regions",
    "topic_filter",
    "virtual_settings",
]
