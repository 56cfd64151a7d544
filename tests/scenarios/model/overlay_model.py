"""One overlay as a state of small integers: the real broker cores, links, clients with scripts, controller, account.

In: a scenario. Out: for each state the possible moves and the states they lead to. Every part (a core, a client, the
content of a channel, the controller, the account) is a number of :mod:`tests.scenarios.model.frozen_states`, and what a
core does with a message is computed once and remembered, so a move costs a few look-ups. Which moves are worth taking
belongs to :mod:`tests.scenarios.model.reduce_moves`, the search to :mod:`tests.scenarios.model.search_states`.

A broker takes messages in the order in which they reach its queue. Requests of clients are in the home's queue at once,
in one channel for all clients of a broker; a message of a link or a command reaches the queue at any time after it was
sent, in one channel for each link and direction and one for each plan and broker. So it may be handled before later
requests of clients, but never before what was in the queue when it was sent: it carries how much that was (its
barrier), and each handled request lowers the barriers. This is the queue of a broker without its inner states.

Time is the number of notifications handed to homes so far: the n-th has time 2n, everything between it and the next one
time 2n + 1. Nothing finer is ever compared (a confirmation or an end with a publication), and a time that follows from
the state does not multiply states.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.producers.brokers.broker_messages import (
    AdvertiseRequest,
    Answer,
    Deliver,
    Notification,
    Send,
    SubscribeRequest,
)
from regraft.producers.emulator.starting_point import core_of
from regraft.schemas.command import Command, CommandPhase
from tests.scenarios.model.channel_contents import Contents
from tests.scenarios.model.forget_times import ranks_of_messages, ranks_of_parts
from tests.scenarios.model.frozen_states import SURROUNDINGS, Numbers, Parts
from tests.scenarios.model.kept_account import Account, Rules, Violation
from tests.scenarios.model.mortal_brokers import DEAD, DIE, NOTICE, MortalBrokers, PeerGone
from tests.scenarios.model.plain_controller import Control, PlannedChange
from tests.scenarios.model.rival_controls import RIVAL, RivalControls
from tests.scenarios.model.scripted_clients import ScriptedClient

State = tuple[int, ...]
Move = tuple[int, ...]
DELIVER, STEP, ABORT = range(3)
CLIENTS = "clients"  # The source of the channel of all requests of clients to a broker.
CLOCK, CONTROL, ACCOUNT, PARTS = range(4)  # Positions in a state; then cores, clients, channels.
IGNORED = {"Published"}
CLIENT_OF = {
    "Confirmed": "subscription",
    "AdvertiseConfirmed": "publisher",
    "PublisherLeaves": "publisher",
    "PublisherTaken": "publisher",
    **dict.fromkeys(("SubscriberMoves", "SubscriberAwaited", "SubscriberTaken"), "subscription"),
    **dict.fromkeys(("UserMoves", "UserStays", "UserTaken", "UserDrained"), "user"),
}


class UnknownEffectError(NotImplementedError):
    """A core has an effect that the model does not follow."""


@dataclass(frozen=True)
class Reaction:
    """A core's reaction to a message: its next state, what it puts on links, all other effects, or how it fails."""

    core: int
    pushes: tuple[tuple[int, int], ...]
    effects: tuple[Any, ...]
    error: str = ""


@dataclass(frozen=True)
class Deed:
    """A client's step: its next state, its requests, notes for the account, and whether it has published."""

    client: int
    pushes: tuple[tuple[int, int], ...]
    notes: tuple[tuple[Any, ...], ...]
    has_published: bool


class OverlayModel:
    """All states and moves of one scenario."""

    def __init__(
        self,
        configuration: OverlayConfiguration,
        clients: tuple[ScriptedClient, ...],
        plans: tuple[PlannedChange, ...],
        rules: Rules,
        *,
        is_repeating: bool = False,
        rival: PlannedChange | None = None,
        mortals: tuple[str, ...] = (),
    ) -> None:
        self.configuration = configuration
        joining = {broker for change in plans for broker in change.brokers()}
        self.brokers = tuple(sorted({*configuration.brokers, *joining}))  # A broker that will join is outside at first.
        self.is_ring = isinstance(configuration, RingConfiguration)
        self.names = tuple(client.name for client in clients)
        self.plans = plans
        self.moved_clients = {move.client for change in plans for move in change.moves}
        self._rival = rival
        self._is_repeating = is_repeating  # Each command reaches its broker twice.
        self.broker_at = {broker: at for at, broker in enumerate(self.brokers)}
        self.client_at = {name: at for at, name in enumerate(self.names)}
        self.channels = self._all_channels()
        self.channel_at = {pair: at for at, pair in enumerate(self.channels)}
        self.first_core = PARTS
        self.first_client = PARTS + len(self.brokers)
        self.first_channel = self.first_client + len(self.names)
        self.goals = [self.broker_at[broker] for _, broker in self.channels]
        self._peers = [source if source in self.broker_at else None for source, _ in self.channels]
        self._behind = [
            [
                self.first_channel + at
                for at, (source, to) in enumerate(self.channels)
                if to == broker and source != CLIENTS
            ]
            for broker in self.brokers
        ]
        self._steps: list[Move] = [(STEP, at) for at in range(len(self.names))]
        self._deliveries: list[Move] = [(DELIVER, at) for at in range(len(self.channels))]
        self._set_up_numbers()
        homes = {one.name: frozenset(step.home for step in one.script if step.home) for one in clients}
        self._mortals = MortalBrokers(self, mortals, homes) if mortals else None
        self.first = self._first_state(clients, rules)

    def _set_up_numbers(self) -> None:
        self.cores, self.clients = Parts(), Parts()
        self.messages: Numbers[Any] = Numbers()
        self.contents = Contents(ranks_of_messages(self.messages))
        self._core_ranks, self._client_ranks = ranks_of_parts(self.cores), ranks_of_parts(self.clients)
        self.controls: Numbers[Control | RivalControls] = Numbers()
        self.accounts: Numbers[Account] = Numbers()
        self._reactions: dict[tuple[Any, ...], Reaction] = {}
        self._deeds: dict[tuple[Any, ...], Deed] = {}
        self._controlled: dict[tuple[int, Any], tuple[int, tuple[tuple[int, int], ...]]] = {}
        self._noted: dict[tuple[int, Any], int] = {}
        self._client_facts: dict[int, tuple[bool, tuple[str, int] | None, int]] = {}

    def _all_channels(self) -> list[tuple[str, str]]:
        """Return (source, broker) of all channels; those of clients come first."""
        plans = range(len(self.plans))
        sources = [*self.brokers, *(f"{kind}-{at}" for at in plans for kind in ("plan", "abort", "again"))]
        sources += [RIVAL, f"{RIVAL} abort"] if self._rival is not None else []
        pairs = [(CLIENTS, broker) for broker in self.brokers]
        return pairs + [(source, broker) for source in sources for broker in self.brokers if source != broker]

    def _first_state(self, clients: tuple[ScriptedClient, ...], rules: Rules) -> State:
        cores = [self.cores.number_of(core_of(broker, self.configuration, 0)) for broker in self.brokers]
        epoch = self.configuration.epoch
        first: Control | RivalControls = Control(self.plans, self.configuration, epoch)
        if self._rival is not None:
            second = Control((self._rival,), self.configuration, epoch, instance=RIVAL)
            first = RivalControls(Control(self.plans, self.configuration, epoch), second)
        control = self.controls.of(first)
        numbers = [self.clients.number_of(client) for client in clients]
        return (0, control, self.accounts.of(Account(rules)), *cores, *numbers, *[0] * len(self.channels))

    # --- moves -------------------------------------------------------------------------------------------------------

    def begin_plans(self, state: State) -> State:
        """Let the controller begin; before that only clients act."""
        after = list(state)
        self._control(after, "begin")
        return tuple(after)

    def moves(self, state: State) -> list[Move]:
        """Return all possible moves."""
        heads = self.contents.heads
        deliveries = self._deliveries
        channels = enumerate(state[self.first_channel :])
        found = [deliveries[at] for at, content in channels if content and heads[content] >= 0]
        for at, number in enumerate(state[self.first_client : self.first_channel]):
            can_step, after, _ = self._client_facts.get(number) or self.client_facts(number)
            if can_step and (after is None or self._progress(state, after[0]) >= after[1]):
                found.append(self._steps[at])
        control = self.controls.values[state[CONTROL]]
        if control.can_abort:
            found.append((ABORT, 0))
        return found if self._mortals is None else found + self._mortals.moves(state, control.declared)

    def client_facts(self, number: int) -> tuple[bool, tuple[str, int] | None, int]:
        """Return whether a client in this state can take its next step, after what, and how many it has taken."""
        facts = self._client_facts.get(number)
        if facts is None:
            client: ScriptedClient = self.clients.copy_of(number)
            facts = client.can_step, client.left[0].after if client.left else None, client.done
            self._client_facts[number] = facts
        return facts

    def _progress(self, state: State, name: str) -> int:
        if name == "plan":
            return len(self.controls.values[state[CONTROL]].ended)
        return self.client_facts(state[self.first_client + self.client_at[name]])[2]

    def take(self, state: State, move: Move) -> State:
        """Return the state after a move; raise Violation if it breaks the promise."""
        after, (kind, at) = list(state), move
        if kind == DELIVER:
            place, broker = self.first_channel + at, self.goals[at]
            content = after[place]
            after[place] = self.contents.tails[content]
            if at < len(self.brokers):  # A request of a client.
                for behind in self._behind[broker]:
                    if after[behind]:
                        after[behind] = self.contents.lowered(after[behind])
            self._process(after, broker, self._peers[at], self.contents.heads[content])
        elif kind == STEP:
            self._act(after, at, "step")
        elif kind == ABORT:
            self._control(after, "abort")
        else:
            self._lose(after, kind, at)
        if after[CLOCK]:
            self._forget_times(after)
        return tuple(after)

    def _lose(self, after: list[int], kind: int, at: int) -> None:
        """Let a broker die, a neighbour notice, or the controller learn of it."""
        assert self._mortals is not None
        if kind == DIE:
            self._mortals.die(after, at)
            owed, trees = self.accounts.values[after[ACCOUNT]].owed, self.controls.values[after[CONTROL]].live_overlays
            self._note(after, ("excuse", self._mortals.excused(after, owed, trees)))
        elif kind == NOTICE:
            self._process(after, self.goals[at], None, self.messages.of(PeerGone(self.channels[at][0])))
        else:
            self._control(after, ("declare", self.brokers[at]))

    def _forget_times(self, after: list[int]) -> None:
        """Replace times by ranks; see :mod:`tests.scenarios.model.forget_times`."""
        held, first, second = self.contents.held, self.first_client, self.first_channel
        mask = 0
        for content in after[second:]:
            if content:
                mask |= held[content]
        for number in after[PARTS:first]:
            if number != DEAD:
                mask |= self._core_ranks.held(number)
        if mask + 1 == 1 << after[CLOCK]:
            return  # All published ones are under way.
        if not mask:
            self._note(after, ("none under way",))
        after[CLOCK] = mask.bit_count()
        of = self._core_ranks.of
        after[PARTS:first] = [number if number == DEAD else of(number, mask) for number in after[PARTS:first]]
        after[first:second] = [self._client_ranks.of(number, mask) for number in after[first:second]]
        ranked = self.contents.ranked
        after[second:] = [content and ranked(content, mask) for content in after[second:]]

    def end_client(self, state: State, at: int) -> State:
        """Let a client leave for good."""
        after = list(state)
        self._act(after, at, "end")
        return tuple(after)

    def reaction_to(self, state: State, at: int) -> Reaction:
        """Return a broker's reaction to the first message of a channel."""
        message = self.contents.heads[state[self.first_channel + at]]
        return self._reaction(state, self.goals[at], self._peers[at], message)

    # --- brokers -----------------------------------------------------------------------------------------------------

    def _process(self, after: list[int], broker: int, source: str | None, message: int) -> None:
        reaction = self._reaction(after, broker, source, message)
        if reaction.error:
            raise Violation(reaction.error)
        after[PARTS + broker] = reaction.core
        for channel, sent in reaction.pushes:
            self._push(after, channel, sent)
        for effect in reaction.effects:
            # For a broker its dead neighbour's incarnation may be over.
            if type(effect).__name__ != "Dropped" or source is None or after[PARTS + self.broker_at[source]] != DEAD:
                self._spread(after, self.brokers[broker], effect)

    def _reaction(self, state: State | list[int], broker: int, source: str | None, message: int) -> Reaction:
        key = state[PARTS + broker], source, message, state[CLOCK]
        reaction = self._reactions.get(key)
        if reaction is None:
            reaction = self._reactions[key] = self._react(*key)
        return reaction

    def _react(self, number: int, source: str | None, message: int, clock: int) -> Reaction:
        core = self.cores.copy_of(number)
        value = self.messages.values[message]
        try:
            now_ms = 2 * clock + 1
            is_gone = isinstance(value, PeerGone)
            effects = core.lose_peer(value.peer, now_ms) if is_gone else core.handle(source, value, now_ms)
        except Exception as error:
            kind = type(error).__name__
            return Reaction(number, (), (), f"{core.broker} raised {kind} on {type(value).__name__}: {error}")
        pushes, others = [], []
        for effect in effects:
            if isinstance(effect, Send):
                pushes.append((self.channel_at[core.broker, effect.peer], self.messages.of(effect.message)))
            elif self._mortals is not None or type(effect).__name__ not in IGNORED:
                others.append(effect)
        return Reaction(self.cores.number_of(core), tuple(pushes), tuple(others))

    def _spread(self, after: list[int], broker: str, effect: Any) -> None:
        name = type(effect).__name__
        if isinstance(effect, Answer):
            self._control(after, effect.result)
        elif isinstance(effect, Deliver):
            notification = effect.notification
            for subscription in effect.subscriptions:
                self._note(after, ("deliver", subscription, notification.publisher, notification.sequence))
        elif name == "Published":
            self._excuse(after, broker, effect.notification)
        elif name == "Cancelled":
            # The other home of a moving user or subscription may still deliver what is owed.
            if not self.is_ring and effect.subscription not in self.moved_clients:
                self._note(after, ("gone", effect.subscription))
        elif name in CLIENT_OF:
            self._act(after, self.client_of(effect), (broker, effect))
        else:
            known = sorted({"Send", "Answer", "Deliver", "Cancelled", *IGNORED, *CLIENT_OF})
            raise UnknownEffectError(f"{broker} does {effect}; the model knows only {', '.join(known)}")

    def _excuse(self, after: list[int], home: str, notification: Notification) -> None:
        """Note which deliveries of a notification that is stamped after a death are not owed."""
        assert self._mortals is not None
        trees = self.controls.values[after[CONTROL]].live_overlays
        tree = next(one for one in trees if one.epoch == notification.epoch)
        self._note(after, ("excuse", self._mortals.excused_from(after, home, notification, tree)))

    def client_of(self, effect: Any) -> int:
        """Return the position of the client that an effect is for; users' subscriptions are called user#n."""
        name: str = getattr(effect, CLIENT_OF[type(effect).__name__])
        return self.client_at[name.split("#")[0]]

    # --- clients, controller, account --------------------------------------------------------------------------------

    def _act(self, after: list[int], at: int, event: Any) -> None:
        place = self.first_client + at
        key = after[place], event, after[CLOCK]
        deed = self._deeds.get(key)
        if deed is None:
            deed = self._deeds[key] = self._do(*key)
        after[place] = deed.client
        after[CLOCK] += deed.has_published
        for note in deed.notes:
            self._note(after, note)
        for channel, request in deed.pushes:
            self._push(after, channel, request)

    def _do(self, number: int, event: Any, clock: int) -> Deed:
        client: ScriptedClient = self.clients.copy_of(number)
        SURROUNDINGS.begin(2 * clock + 1)
        if event == "step":
            client.step()
        elif event == "end":
            client.end()
        else:
            client.see(event[1], event[0])
        notes, pushes, sent_before = list(SURROUNDINGS.noted), [], client.sent
        for home, request in SURROUNDINGS.asked:
            asked = request
            if isinstance(asked, Notification):
                asked = replace(asked, sequence=client.sent, publish_ms=2 * clock + 2)
                client.sent += 1
                notes.append(("publish", asked.publisher, asked.sequence, asked.content))
            elif isinstance(asked, SubscribeRequest):
                notes.append(("ask", asked.subscription, asked.filter_))
            elif isinstance(asked, AdvertiseRequest):
                notes.append(("stay", client.name, client.sent))
            pushes.append((self.channel_at[CLIENTS, home], self.messages.of(asked)))
        return Deed(self.clients.number_of(client), tuple(pushes), tuple(notes), client.sent > sent_before)

    def _push(self, after: list[int], channel: int, message: int) -> None:
        place = self.first_channel + channel
        if after[PARTS + self.goals[channel]] == DEAD:
            return
        is_request = channel < len(self.brokers)
        barrier = 0 if is_request else self.contents.lengths[after[self.first_channel + self.goals[channel]]]
        after[place] = self.contents.pushed(after[place], message, barrier)

    def _control(self, after: list[int], event: Any) -> None:
        key = after[CONTROL], event
        found = self._controlled.get(key)
        if found is None:
            control = self.controls.values[key[0]]
            following, commands = control.begin() if event == "begin" else control.after(event)
            pushes = [
                (self.channel_at[source, one.broker], self.messages.of(one))
                for one in commands
                for source in self._sources_of(one, len(following.ended))
            ]
            found = self._controlled[key] = self.controls.of(following), tuple(pushes)
        after[CONTROL] = found[0]
        for channel, message in found[1]:
            self._push(after, channel, message)

    def _sources_of(self, command: Command, ended_count: int) -> list[str]:
        is_abort = command.phase is CommandPhase.ABORT
        if command.digest.endswith(RIVAL):
            return [f"{RIVAL} abort" if is_abort else RIVAL]
        kind = "abort" if is_abort else "plan"
        return [f"{one}-{ended_count}" for one in ([kind, "again"] if self._is_repeating else [kind])]

    def _note(self, after: list[int], note: tuple[Any, ...]) -> None:
        key = after[ACCOUNT], note
        found = self._noted.get(key)
        if found is None:
            found = self._noted[key] = self.accounts.of(self.accounts.values[key[0]].after(note))
        after[ACCOUNT] = found
