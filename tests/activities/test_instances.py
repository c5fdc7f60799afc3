import threading
import time
from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError, CancelledError

from activities.instances import InstanceActivities
from activities.signatures import InstancesRequest, PoolRegionRequest, TokenRequest
from domain.contracts.errors import ClusterError, ErrorCode
from domain.contracts.installation import Installation
from domain.contracts.instances import Created, InstanceState, Refusal, Rejected, Unmade
from domain.contracts.names import TAG_EPOCH, TAG_INSTALLATION, TAG_POOL
from tests.activities.builders import JOIN, a_fault, a_request, an_attempt
from tests.fakes.provider import REGION, FakeClouds, FakeProvider, FakeSecrets

OURS = Installation(id="inst-1", epoch=3)


@pytest.fixture
def cloud() -> FakeProvider:
    return FakeProvider()


@pytest.fixture
def secrets() -> FakeSecrets:
    return FakeSecrets(**{"cluster-join": JOIN})


@pytest.fixture
def hands(cloud: FakeProvider, secrets: FakeSecrets) -> InstanceActivities:
    return InstanceActivities(FakeClouds(cloud), OURS, secrets)


def test_create_buys_one_machine_with_our_tags_and_script(
    hands: InstanceActivities, cloud: FakeProvider
) -> None:
    answer = an_attempt().run(hands.create_instance, a_request())

    assert answer.result == Created(instance_id="ins-0001", zone="ap-guangzhou-3")
    tags = cloud.machines["ins-0001"].tags
    assert (tags[TAG_INSTALLATION], tags[TAG_EPOCH], tags[TAG_POOL]) == ("inst-1", "3", "uid-1")
    assert JOIN["token"] in cloud.user_data[0]
    assert cloud.calls == ["launch"], "the first attempt costs one call"


def test_p03_create_finds_what_an_earlier_attempt_bought(
    hands: InstanceActivities, cloud: FakeProvider
) -> None:
    """The worker was killed after the cloud accepted, before the activity completed."""
    cloud.faults_after_buying = [a_fault(ErrorCode.UNKNOWN_OUTCOME)]
    with pytest.raises(ApplicationError) as failure:
        an_attempt(1).run(hands.create_instance, a_request())
    assert (failure.value.type, failure.value.non_retryable) == ("UnknownOutcome", False)

    answer = an_attempt(2).run(hands.create_instance, a_request())

    assert answer.result == Created(instance_id="ins-0001", zone="ap-guangzhou-3", found=True)
    assert cloud.calls == ["launch", "list_tagged"]
    assert len(cloud.machines) == 1


@pytest.mark.parametrize("code", [ErrorCode.UNAVAILABLE, ErrorCode.THROTTLED])
def test_create_that_was_never_carried_out_looks_for_nothing_and_says_so_at_last(
    hands: InstanceActivities, cloud: FakeProvider, code: ErrorCode
) -> None:
    cloud.faults["launch"] = [a_fault(code) for _ in range(3)]
    beats: list[object] = []
    for number in (1, 2):
        attempt = an_attempt(number, of=3, after=beats[-1:], on_beat=beats.append)
        with pytest.raises(ApplicationError) as failure:
            attempt.run(hands.create_instance, a_request())
        assert (failure.value.type, failure.value.non_retryable) == (code, False)
    answer = an_attempt(3, of=3, after=beats[-1:]).run(hands.create_instance, a_request())
    assert answer.result == Unmade(code=code, message=str(a_fault(code)))
    assert beats == [1, 2]
    assert cloud.calls == ["launch"] * 3


@pytest.mark.parametrize(
    ("number", "after"),
    [
        pytest.param(2, (), id="the attempt before left no word"),
        pytest.param(3, (1,), id="the word is not of the attempt before"),
    ],
)
def test_create_after_an_uncertain_attempt_is_never_called_unmade(
    hands: InstanceActivities, cloud: FakeProvider, number: int, after: tuple[object, ...]
) -> None:
    cloud.faults["launch"] = [a_fault(ErrorCode.UNAVAILABLE)]
    beats: list[object] = []
    with pytest.raises(ApplicationError):
        an_attempt(number, of=number, after=after, on_beat=beats.append).run(
            hands.create_instance, a_request()
        )
    assert beats == []
    assert cloud.calls == ["list_tagged", "launch"]


def test_create_prefers_the_living_machine_of_a_launch(
    hands: InstanceActivities, cloud: FakeProvider
) -> None:
    cloud.add("uid-1-abcd1234-1", state=InstanceState.TERMINATED)
    alive = cloud.add("uid-1-abcd1234-1")
    answer = an_attempt(2).run(hands.create_instance, a_request())
    assert answer.result == Created(instance_id=alive.id, zone=alive.zone, found=True)


def test_create_cancelled_before_the_call_buys_nothing(
    hands: InstanceActivities, cloud: FakeProvider
) -> None:
    environment = an_attempt()
    environment.cancel()
    with pytest.raises(CancelledError):
        environment.run(hands.create_instance, a_request())
    assert cloud.calls == []


def test_create_cancelled_while_the_secret_is_read_buys_nothing(cloud: FakeProvider) -> None:
    environment = an_attempt()

    class SlowSecrets(FakeSecrets):
        def read(self, name: str):  # as the base
            environment.cancel()
            return super().read(name)

    hands = InstanceActivities(FakeClouds(cloud), OURS, SlowSecrets(**{"cluster-join": JOIN}))
    with pytest.raises(CancelledError):
        environment.run(hands.create_instance, a_request())
    assert cloud.calls == []


def test_create_cancelled_during_the_call_answers_what_was_bought(
    hands: InstanceActivities, cloud: FakeProvider
) -> None:
    environment = an_attempt()
    cloud.before_launch = environment.cancel
    answer = environment.run(hands.create_instance, a_request())
    assert isinstance(answer.result, Created)
    assert len(cloud.machines) == 1


def test_create_beats_while_the_call_blocks(hands: InstanceActivities, cloud: FakeProvider) -> None:
    beats = threading.Semaphore(0)
    environment = an_attempt(heartbeat=timedelta(seconds=0.09), on_beat=lambda *_: beats.release())

    def wait_for_beats() -> None:
        for _ in range(3):
            assert beats.acquire(timeout=5), "no heartbeat arrived during the call"

    cloud.before_launch = wait_for_beats
    environment.run(hands.create_instance, a_request())
    # The helper thread ended with the activity.
    while beats.acquire(blocking=False):
        pass
    assert not [t for t in threading.enumerate() if t.name == "heartbeat"]


@pytest.mark.parametrize("code", [ErrorCode.INSUFFICIENT_CAPACITY, ErrorCode.QUOTA, ErrorCode.PRICE_TOO_LOW])
def test_create_returns_market_answers_as_values(
    hands: InstanceActivities, cloud: FakeProvider, code: ErrorCode
) -> None:
    cloud.answers = [Refusal(code=code, vendor_code="ResourceInsufficient")]  # type: ignore[arg-type]  # one of three
    answer = an_attempt().run(hands.create_instance, a_request())
    assert isinstance(answer.result, Refusal)
    assert answer.result.code is code


@pytest.mark.parametrize("code", [ErrorCode.INVALID_REQUEST, ErrorCode.UNAUTHENTICATED, ErrorCode.FORBIDDEN])
def test_create_returns_hopeless_faults_as_values(
    hands: InstanceActivities, cloud: FakeProvider, code: ErrorCode
) -> None:
    cloud.faults["launch"] = [a_fault(code)]
    answer = an_attempt().run(hands.create_instance, a_request())
    assert isinstance(answer.result, Rejected)
    assert (answer.result.code, answer.result.vendor_code) == (code, "Code.X")


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_OUTCOME, ErrorCode.THROTTLED, ErrorCode.UNAVAILABLE, ErrorCode.UNKNOWN]
)
def test_create_raises_passing_faults_for_the_next_attempt(
    hands: InstanceActivities, cloud: FakeProvider, code: ErrorCode
) -> None:
    cloud.faults["launch"] = [a_fault(code)]
    with pytest.raises(ApplicationError) as failure:
        an_attempt().run(hands.create_instance, a_request())
    assert (failure.value.type, failure.value.non_retryable) == (code.value, False)


def test_create_that_cannot_look_does_not_call_an_earlier_attempt_certain(
    hands: InstanceActivities, cloud: FakeProvider
) -> None:
    """Rejected would say that nothing was bought; after a first attempt only the tag can say that."""
    cloud.faults["list_tagged"] = [a_fault(ErrorCode.FORBIDDEN)]
    with pytest.raises(ApplicationError) as failure:
        an_attempt(2).run(hands.create_instance, a_request())
    assert failure.value.type == "UnknownOutcome"
    assert cloud.count("launch") == 0


@pytest.mark.parametrize(
    ("secrets", "named"),
    [
        pytest.param(FakeSecrets(), "Secret cluster-join does not exist", id="no Secret"),
        pytest.param(FakeSecrets(**{"cluster-join": {"server": "x"}}), "has no key token", id="missing key"),
    ],
)
def test_create_rejects_what_cannot_boot_and_names_it(
    cloud: FakeProvider, secrets: FakeSecrets, named: str
) -> None:
    hands = InstanceActivities(FakeClouds(cloud), OURS, secrets)
    answer = an_attempt().run(hands.create_instance, a_request())
    assert isinstance(answer.result, Rejected)
    assert answer.result.code is ErrorCode.INVALID_REQUEST
    assert named in answer.result.message
    assert cloud.calls == []


def test_create_reads_no_secret_when_the_template_needs_none(cloud: FakeProvider) -> None:
    hands = InstanceActivities(FakeClouds(cloud), OURS, FakeSecrets())
    answer = an_attempt().run(hands.create_instance, a_request(user_data_template="echo {{ providerID }}"))
    assert isinstance(answer.result, Created)


def test_create_tries_again_when_the_cluster_does_not_answer(
    cloud: FakeProvider, secrets: FakeSecrets
) -> None:
    secrets.fault = ClusterError(ErrorCode.UNAVAILABLE, "down", operation="get secrets/cluster-join")
    hands = InstanceActivities(FakeClouds(cloud), OURS, secrets)
    with pytest.raises(ApplicationError) as failure:
        an_attempt().run(hands.create_instance, a_request())
    assert (failure.value.type, failure.value.non_retryable) == ("Unavailable", False)


def test_terminate_ends_machines_and_bears_repetition(hands: InstanceActivities, cloud: FakeProvider) -> None:
    request = InstancesRequest(region=REGION, instance_ids=(cloud.add().id,))
    an_attempt().run(hands.terminate_instances, request)
    an_attempt(2).run(hands.terminate_instances, request)
    assert cloud.machines == {}


def test_retain_gives_machines_up(hands: InstanceActivities, cloud: FakeProvider) -> None:
    machine = cloud.add()
    an_attempt().run(hands.retain_instances, InstancesRequest(region=REGION, instance_ids=(machine.id,)))
    assert cloud.list_tagged({TAG_INSTALLATION: "inst-1"}) == []
    assert list(cloud.machines) == [machine.id]


def test_readings_are_dated_before_the_call_and_sorted(
    hands: InstanceActivities, cloud: FakeProvider
) -> None:
    cloud.add("uid-1-abcd1234-1")
    cloud.add("uid-1-abcd1234-2", pool="uid-2")
    before = time.time()
    by_token = an_attempt().run(
        hands.find_by_token, TokenRequest(region=REGION, pool_uid="uid-1", token="uid-1-abcd1234-1")
    )
    by_id = an_attempt().run(
        hands.describe, InstancesRequest(region=REGION, instance_ids=("ins-0002", "ins-0001", "ins-9999"))
    )
    of_pool = an_attempt().run(hands.list_pool, PoolRegionRequest(region=REGION, pool_uid="uid-2"))

    assert [i.id for i in by_token.instances] == ["ins-0001"]
    assert [i.id for i in by_id.instances] == ["ins-0001", "ins-0002"]
    assert [i.id for i in of_pool.instances] == ["ins-0002"]
    assert before <= by_token.as_of.timestamp() <= time.time()


def test_list_pool_sees_only_machines_of_this_installation(
    hands: InstanceActivities, cloud: FakeProvider
) -> None:
    cloud.add(installation="another")
    answer = an_attempt().run(hands.list_pool, PoolRegionRequest(region=REGION, pool_uid="uid-1"))
    assert answer.instances == ()
