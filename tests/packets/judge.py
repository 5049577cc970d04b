"""What is wrong with calls that were made while endpoints came and went. It sends nothing, it only compares."""

from collections import Counter
from collections.abc import Mapping

from tests.packets.churn import Backend
from tests.packets.frontends import Frontend
from tests.packets.timeline import Timeline
from tests.support.lab.calls import NONE, Call

_Client = tuple[str, str, str, int, str]


class Judge:
    """Hears the calls of each client in their order; ``faults`` are sentences, ``seen`` says what was there to see."""

    def __init__(self, timelines: Mapping[str, Timeline]) -> None:
        """Judge by what each Service had when."""
        self._timelines = timelines
        self._last: dict[_Client, tuple[Call, Backend]] = {}
        self.faults: list[str] = []
        self.seen: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()

    def hear(self, frontend: Frontend, call: Call) -> None:
        """Judge a call."""
        if call.trouble != NONE:
            self._blame("nobody answered", frontend, call)
            return
        if call.again:
            self._blame("a packet was lost", frontend, call)
        self.answered[str(frontend)] += 1
        pools = self._timelines[frontend.kind.name].during(call.begun, call.ended)
        self.seen["across a commit"] += len(pools) > 1
        answered_by = Backend(call.server, call.port)
        if not any(answered_by in pool for pool in pools):
            self._blame("that is no endpoint", frontend, call)
        if frontend.is_local and not answered_by.is_local:
            self._blame("the policy is Local", frontend, call)
        if frontend.kind.is_sticky:
            self._hear_again(frontend, call, answered_by)

    def _hear_again(self, frontend: Frontend, call: Call, answered_by: Backend) -> None:
        """Hold a call to the last one of the same client: it is answered by the same while that lives."""
        client = (frontend.client, frontend.kind.name, call.source, frontend.version, frontend.protocol)
        last, former = self._last.get(client, (call, answered_by))
        self._last[client] = call, answered_by
        if all(former in pool for pool in self._timelines[frontend.kind.name].during(last.begun, call.ended)):
            self.seen["stayed"] += 1
            if answered_by != former:
                self._blame(f"{former} still lives", frontend, call)
        elif answered_by != former:
            self.seen["moved"] += 1

    def _blame(self, reason: str, frontend: Frontend, call: Call) -> None:
        self.seen["faults"] += 1
        self.faults.append(f"{reason}: {frontend}: {call}")
