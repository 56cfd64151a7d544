"""The interface of a broker's protocol core to its driver: the emulator, exhaustive tests or a node on a network.

In: one message at a time (from a neighbour, a local client or the controller) and the time. Out: effects. A core owns
no queue, no link and no clock. It requires that messages of one link arrive in the order they were sent, and that none
is lost. :mod:`producers.emulator.starting_point` chooses the core for a kind of overlay.

A core is deterministic: equal inputs give equal effects in equal order. It decides, its driver acts. The duties of a
driver:

1. Make the core: :func:`producers.emulator.starting_point.core_of`, and :meth:`begin_at` if a plan led to
   the overlay that it begins with. A core stores nothing: a broker that restarts begins outside, with another
   ``boot_ms``.
2. Put everything that comes in into one queue, in the order of arrival: messages of neighbours, requests of local
   clients, commands. On each link, messages arrive in the order they were sent, and none is lost.
3. Put the end of a link's peer behind everything that peer had sent: :meth:`lose_peer`, once for each of its
   incarnations. If a link has lost a message, its peer counts as dead.
4. Handle one message at a time, and execute its effects, in order, before the next. What an effect puts into the
   queue waits there, even if it is for this very broker.
5. Execute each effect: ``Send`` over the link to that peer; ``Answer`` to the controller; ``Deliver`` and what
   concerns a client to that local client, whose reaction comes back as a request; ``Published`` and ``Dropped``
   are only to be counted.
6. Before a prepare that lets brokers join, connect to their next incarnations, so that what the core sends them
   does not reach an earlier one; revert that if the core refuses (its ``phase`` is still STEADY).
7. After a command, keep links to all of ``live_neighbours``, and let new clients connect only if ``takes_clients``.
8. After an install that made the core start over (``epoch`` or ``takes_clients`` changed), begin another
   incarnation of all links: what it was sent before is void.
9. If :class:`ProtocolError` is raised, the message was impossible: refuse it alone, and report that.

As a loop::

    core = core_of(broker, configuration, boot_ms)
    while True:
        source, message = queue.get()
        held = core.epoch, core.takes_clients
        joining = message.brokers_joined if is_prepare(message) and core.phase is BrokerPhase.STEADY else ()
        links.renew(joining)
        if isinstance(message, PeerLost):
            effects = core.lose_peer(message.peer, now_ms())
        else:
            effects = core.handle(source, message, now_ms())
        for effect in effects:
            match effect:
                case Send(peer, sent):
                    links.send(peer, sent)
                case Answer(result):
                    controller.send(result)
                case Published() | Dropped():
                    ledger.count(effect)
                case _:
                    clients.notify(effect)
        if core.phase is BrokerPhase.STEADY:
            links.cancel_renewal(joining)
        if is_install(message) and (core.epoch, core.takes_clients) != held:
            links.begin_incarnation()
        links.keep(core.live_neighbours)
        clients.settle(core.takes_clients)

The emulator (:mod:`producers.emulator.emulate_overlay`), a node (:mod:`producers.nodes.broker_node`) and the tests
that try any order are such drivers.
"""

from __future__ import annotations

from typing import Any

from regraft.producers.brokers.two_epochs import TwoEpochBroker

BrokerProtocol = TwoEpochBroker[Any, Any]  # The core of a broker of any kind of overlay.
