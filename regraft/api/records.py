"""Records that the stages exchange, and their codec.

A record keeps its fields for as long as its schema's version is written (docs/wire.md).
"""

from regraft.schemas.client import Role
from regraft.schemas.codec import decode, encode
from regraft.schemas.event import EventKind
from regraft.schemas.plan import ClientMove, Plan, PlanPhase, Proposal
from regraft.schemas.sampled_blocks import RUNS, SampleRule, Sampling, sample_masks
from regraft.schemas.state import QueueState
from regraft.schemas.status_file import replace_file
from regraft.schemas.telemetry import BLOCK_SIZE, Delivery, TelemetryBatch
from regraft.schemas.texts import figure

__all__ = [
    "BLOCK_SIZE",
    "RUNS",
    "ClientMove",
    "Delivery",
    "EventKind",
    "Plan",
    "PlanPhase",
    "Proposal",
    "QueueState",
    "Role",
    "SampleRule",
    "Sampling",
    "TelemetryBatch",
    "decode",
    "encode",
    "figure",
    "replace_file",
    "sample_masks",
]
