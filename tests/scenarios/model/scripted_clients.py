"""Clients with a script: what each publisher, subscription or user still does, around the real client code.

In: "take your next step", or an effect of a broker for this client. Out: requests and notes for the account, left with
:data:`tests.scenarios.model.frozen_states.SURROUNDINGS`. The search chooses when a step is taken.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from regraft.producers.emulator.publisher_clients import PublisherClients, is_always_serving
from regraft.producers.emulator.subscriber_clients import SubscriberClients
from regraft.producers.emulator.user_clients import UserClients, topic_filter
from tests.scenarios.model.frozen_states import SURROUNDINGS


class Content(dict[str, float | str]):
    """The content of a notification, hashable because it is never changed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(sorted(self.items())))


@dataclass(frozen=True)
class Step:
    """One step of a client; ``after`` = (client or "plan", n): not before that one has taken n steps."""

    kind: str
    home: str = ""
    topics: tuple[str, ...] = ()
    after: tuple[str, int] | None = None


def call_with(method: Callable[..., Any], **known: Any) -> Any:
    """Call with those of the known values for which the method has parameters."""
    wanted = inspect.signature(method).parameters
    return method(**{name: value for name, value in known.items() if name in wanted})


class ScriptedClient:
    """A client, its script and its position in it."""

    takes: dict[str, str] = {}  # noqa: RUF012 - effect's type -> method of the client object
    clients: Any = None

    def __init__(self, name: str, script: tuple[Step, ...]) -> None:
        self.name = name
        self.script = script
        self.done = 0
        self.sent = 0  # Notifications handed to homes so far, over all stays.

    @property
    def left(self) -> tuple[Step, ...]:
        """The steps that remain."""
        return self.script[self.done :]

    @property
    def can_step(self) -> bool:
        """Return True if the next step is possible, ``after`` aside."""
        return bool(self.left) and self.is_possible(self.left[0].kind)

    @property
    def may_publish_later(self) -> bool:
        """Return True if a notification of this client can still be handed to a home."""
        return any(step.kind == "publish" for step in self.left)

    def step(self) -> None:
        """Take the next step."""
        step = self.left[0]
        self.done += 1
        self.do(step)

    def see(self, effect: Any, broker: str) -> None:
        """Take a broker's effect for this client."""
        method = getattr(self.clients, self.takes[type(effect).__name__])
        known = {name: getattr(effect, name) for name in type(effect).__dataclass_fields__}
        call_with(method, **(known | {"home": broker, "broker": broker}))

    def is_possible(self, kind: str) -> bool:
        """Return True if a step of this kind can be taken now."""
        raise NotImplementedError

    def do(self, step: Step) -> None:
        """Perform one step."""
        raise NotImplementedError

    def end(self) -> None:
        """Leave for good, if connected."""
        if self.is_possible("disconnect"):
            self.do(Step("disconnect"))

    def fault(self) -> str:
        """Describe what is wrong with this client when nothing is under way any more, empty if nothing is."""
        return ""


class PublisherScript(ScriptedClient):
    """A publisher of one topic."""

    takes = {"AdvertiseConfirmed": "allow", "PublisherLeaves": "leave", "PublisherTaken": "take"}  # noqa: RUF012

    def __init__(self, name: str, topic: str, script: tuple[Step, ...]) -> None:
        super().__init__(name, script)
        self.topic = topic
        self.clients = PublisherClients(
            SURROUNDINGS,  # type: ignore[arg-type]
            SURROUNDINGS,  # type: ignore[arg-type]
            SURROUNDINGS.ask,
            SURROUNDINGS.ignore,
            SURROUNDINGS.ignore,
        )

    @property
    def may_publish_later(self) -> bool:
        """Return True if a notification of this publisher can still be handed to a home."""
        here = self.clients._publishers.get(self.name)
        return super().may_publish_later or (here is not None and bool(here.waiting))

    def is_possible(self, kind: str) -> bool:
        """Return True for a connect if it is not connected; otherwise if it is, is not ending, and may publish."""
        here = self.clients._publishers.get(self.name)
        if kind == "connect":
            return here is None
        return here is not None and not here.is_ending and (kind == "disconnect" or here.may_publish)

    def do(self, step: Step) -> None:
        """Perform one step."""
        if step.kind == "connect":
            self.clients.connect(self.name, step.home, topic_filter(self.topic))
        elif step.kind == "publish":
            self.clients.publish(self.name, Content(topic=self.topic), 1)
        else:
            self.clients.disconnect(self.name)

    def fault(self) -> str:
        """Describe the fault of a connected publisher that may not publish or has no home."""
        here = self.clients._publishers.get(self.name)
        if here is None:
            return ""
        if not here.may_publish:
            return f"publisher {self.name} is connected to {here.home} but may never publish"
        return f"publisher {self.name} is forever on its way to {here.goes_to}" if here.goes_to is not None else ""


class SubscriptionScript(ScriptedClient):
    """One subscription of a tree: requested, and perhaps cancelled."""

    takes = {  # noqa: RUF012
        "Confirmed": "confirm",
        "SubscriberMoves": "move",
        "SubscriberAwaited": "expect",
        "SubscriberTaken": "take",
    }

    def __init__(self, name: str, topic: str, script: tuple[Step, ...]) -> None:
        super().__init__(name, script)
        self.topic = topic
        self.clients = SubscriberClients(
            SURROUNDINGS,  # type: ignore[arg-type]
            SURROUNDINGS,  # type: ignore[arg-type]
            SURROUNDINGS.ask,
            SURROUNDINGS.ignore,
            SURROUNDINGS.ignore,
            is_always_serving,
            SURROUNDINGS.ignore,
        )

    @property
    def home(self) -> str:
        """Its home, empty before and after."""
        here = self.clients._subscribers.get(self.name)
        return "" if here is None else here.home

    def is_possible(self, kind: str) -> bool:
        """Return True for a connect if it has no home, otherwise if it has one."""
        return (kind == "connect") is not bool(self.home)

    def do(self, step: Step) -> None:
        """Perform one step."""
        if step.kind == "connect":
            self.clients.subscribe(self.name, step.home, topic_filter(self.topic))
        else:
            self.clients.cancel(self.name)


class UserScript(ScriptedClient):
    """A user of a ring."""

    takes = {  # noqa: RUF012
        "Confirmed": "confirm",
        "UserMoves": "move",
        "UserStays": "stay",
        "UserTaken": "take",
        "UserDrained": "drain",
    }

    def __init__(self, name: str, script: tuple[Step, ...]) -> None:
        super().__init__(name, script)
        self.clients = UserClients(
            SURROUNDINGS,  # type: ignore[arg-type]
            SURROUNDINGS,  # type: ignore[arg-type]
            SURROUNDINGS.ask,
            SURROUNDINGS.ignore,
            SURROUNDINGS.ignore,
        )

    def is_possible(self, kind: str) -> bool:
        """Return True for a connect if it is not connected, otherwise if it is."""
        return (kind == "connect") is (self.clients.home_of(self.name) is None)

    def do(self, step: Step) -> None:
        """Perform one step."""
        if step.kind == "connect":
            self.clients.connect(self.name, step.home, step.topics)
        elif step.kind == "change":
            self.clients.change_topics(self.name, step.topics)
        else:
            self.clients.disconnect(self.name)

    def fault(self) -> str:
        """Describe the fault of a connected user that is still on its way to another home."""
        here = self.clients._users.get(self.name)
        if here is None or here.goes_to is None:
            return ""
        return f"user {self.name} is forever on its way to {here.goes_to}"
