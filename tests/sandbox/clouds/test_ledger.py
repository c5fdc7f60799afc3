from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from sandbox.clouds.ledger import (
    Boot,
    EndReason,
    Ledger,
    LedgerSettings,
    MachineState,
    Order,
    TokenMismatchError,
)

ORDER = Order(
    region="ap-guangzhou",
    zone="ap-guangzhou-3",
    instance_type="GT4.4XLARGE96",
    spot=True,
    price_per_hour=Decimal("3.600"),
    image_id="img-1",
    subnet_id="subnet-1",
    tags={"a": "b"},
)


@dataclass
class Clock:
    now: datetime = datetime(2026, 7, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(clock: Clock) -> Ledger:
    return Ledger(clock=clock, id_prefix="ins-", settings=LedgerSettings(boot_seconds=10, end_seconds=5))


def test_machine_boots_ends_and_disappears_by_the_clock(ledger: Ledger, clock: Clock):
    (machine,) = ledger.buy(ORDER)
    ledger.advance()
    assert machine.state is MachineState.PENDING
    clock.pass_by(10)
    ledger.advance()
    assert machine.state is MachineState.RUNNING
    ledger.terminate([machine.id])
    assert machine.state is MachineState.ENDING
    assert machine in ledger.listed()
    clock.pass_by(5)
    ledger.advance()
    assert machine.state is MachineState.GONE
    assert ledger.listed() == ()
    assert ledger.all() == (machine,)


def test_charge_is_by_the_second_from_creation_to_the_end(ledger: Ledger, clock: Clock):
    (machine,) = ledger.buy(ORDER)
    clock.pass_by(1800)
    assert ledger.cost() == Decimal("1.800")
    ledger.terminate([machine.id])
    clock.pass_by(1800)
    ledger.advance()
    assert ledger.cost() == Decimal("1.800")
    clock.pass_by(0.5)
    ledger.buy(ORDER)
    clock.pass_by(0.2)
    assert ledger.cost() == Decimal("1.801")  # a second that has begun


def test_listeners_hear_of_start_notice_and_loss_once(ledger: Ledger, clock: Clock):
    heard: list[str] = []
    ledger.listeners.on_running.append(lambda m: heard.append("running"))
    ledger.listeners.on_notice.append(lambda m, at: heard.append(f"notice {(at - clock.now).seconds}"))
    ledger.listeners.on_gone.append(lambda m: heard.append("gone"))
    (machine,) = ledger.buy(ORDER)
    clock.pass_by(10)
    ledger.advance()
    ledger.reclaim(machine.id, notice_seconds=120)
    clock.pass_by(119)
    ledger.advance()
    assert heard == ["running", "notice 120"]
    clock.pass_by(1)
    ledger.advance()
    ledger.terminate([machine.id])
    ledger.advance()
    assert heard == ["running", "notice 120", "gone"]
    assert machine.end_reason is EndReason.RECLAIMED


def test_machine_that_stops_on_a_reclaim_stays_listed_without_power_until_somebody_ends_it(
    ledger: Ledger, clock: Clock
):
    heard: list[str] = []
    ledger.listeners.on_gone.append(lambda m: heard.append(m.id))
    (machine,) = ledger.buy(replace(ORDER, stops_on_reclaim=True))
    clock.pass_by(1800)
    ledger.advance()
    ledger.reclaim(machine.id, notice_seconds=0)
    ledger.advance()
    clock.pass_by(86_400)
    ledger.advance()
    assert (machine.state, machine.end_reason) == (MachineState.STOPPED, EndReason.RECLAIMED)
    assert (ledger.listed(), ledger.live(), ledger.cost()) == ((machine,), (), Decimal("1.800"))
    ledger.terminate([machine.id])
    clock.pass_by(5)
    ledger.advance()
    assert (ledger.listed(), machine.end_reason) == ((), EndReason.USER)
    assert (heard, ledger.cost()) == ([machine.id], Decimal("1.800"))


def test_reclaim_alone_stops_a_machine_that_stops_on_it(ledger: Ledger, clock: Clock):
    at = clock.now + timedelta(hours=24)
    ended, vanished, released = ledger.buy(replace(ORDER, stops_on_reclaim=True, release_at=at), 3)
    ledger.terminate([ended.id])
    ledger.vanish(vanished.id)
    clock.pass_by(86_400)
    ledger.advance()
    assert [m.state for m in (ended, vanished, released)] == [
        MachineState.GONE,
        MachineState.GONE,
        MachineState.ENDING,
    ]


def test_vanished_machine_is_in_no_list_at_once(ledger: Ledger):
    (machine,) = ledger.buy(ORDER)
    ledger.vanish(machine.id)
    assert ledger.listed() == ()
    assert machine.end_reason is EndReason.OUT_OF_BAND


def test_dead_man_switch_ends_a_machine(ledger: Ledger, clock: Clock):
    (machine,) = ledger.buy(replace(ORDER, release_at=clock.now + timedelta(hours=24)))
    clock.pass_by(86_400)
    ledger.advance()
    assert (machine.state, machine.end_reason) == (MachineState.ENDING, EndReason.RELEASED)


def test_failed_machine_stays_listed_and_costs_nothing(ledger: Ledger, clock: Clock):
    (machine,) = ledger.buy(ORDER, boot=Boot.FAILS)
    clock.pass_by(3600)
    ledger.advance()
    assert machine.state is MachineState.FAILED
    assert machine in ledger.listed()
    assert ledger.live() == ()
    assert ledger.cost() == 0
    ledger.terminate([machine.id])
    assert machine.state is MachineState.ENDING


def test_new_machine_is_invisible_for_the_set_time(ledger: Ledger, clock: Clock):
    ledger.settings.invisible_seconds = 3
    ledger.buy(ORDER)
    assert ledger.listed() == ()
    assert len(ledger.live()) == 1
    clock.pass_by(3)
    assert len(ledger.listed()) == 1


def test_token_answers_its_machines_again_and_tells_other_parameters(ledger: Ledger):
    machines = ledger.buy(ORDER)
    ledger.remember("account", "token", "print", machines)
    assert ledger.bought_with("account", "token", "print") == machines
    assert ledger.bought_with("another account", "token", "print") is None
    with pytest.raises(TokenMismatchError, match=machines[0].id) as raised:
        ledger.bought_with("account", "token", "another print")
    assert raised.value.machines == machines


def test_ids_never_repeat(ledger: Ledger):
    ids = [machine.id for machine in ledger.buy(ORDER, 500)]
    assert len(set(ids)) == 500
    assert all(len(machine_id) == len("ins-") + 8 for machine_id in ids)
