import pytest

from domain.contracts.offers import ProviderName
from domain.decisions.user_data import UserDataError, render_user_data, uses_join_secret
from tests.activities.builders import JOIN, TEMPLATE, a_request


def test_user_data_fills_in_every_placeholder() -> None:
    script = render_user_data(a_request(), JOIN)

    assert script == (
        "#!/bin/sh\n"
        "INSTANCE_ID=$(curl -fsS http://metadata.tencentyun.com/latest/meta-data/instance-id)\n"
        "kubelet --provider-id=qcloud:///100003/$INSTANCE_ID"
        " --register-with-taints=spot=true:NoSchedule,gpu=true:NoSchedule"
        " --node-labels=a=1,b=2 \\\n  --hostname-override=pool-abcd1234-1\n"
        "kubeadm join 10.0.0.1:6443 --token abcdef.0123456789abcdef"
        " --discovery-token-ca-cert-hash sha256:beef\n"
    )


def test_user_data_drops_the_line_break_at_the_end_of_a_secret_file() -> None:
    request = a_request(user_data_template="join {{ join.server }} end")
    assert render_user_data(request, {"server": "host:6443\n"}) == "join host:6443 end"


def test_user_data_knows_the_other_clouds_metadata() -> None:
    offer = a_request().offer.model_copy(update={"provider": ProviderName.ALIYUN, "region": "cn-shenzhen"})
    request = a_request(offer=offer, user_data_template="{{ metadata.instanceIdURL }} {{ providerID }}")
    assert render_user_data(request, {}) == (
        "http://100.100.100.200/latest/meta-data/instance-id cn-shenzhen.$INSTANCE_ID"
    )


@pytest.mark.parametrize(
    ("template", "named"),
    [
        pytest.param("{{ providerId }}", "providerId", id="misspelt placeholder"),
        pytest.param("{{ }}", "{{  }}", id="empty placeholder"),
        pytest.param(
            "{{ join.tokn }}", "Secret cluster-join has no key tokn", id="key that the Secret lacks"
        ),
        pytest.param("{{ join.empty }}", "has no key empty", id="key without a value"),
        pytest.param("{{ range\n.x }}", "range", id="placeholder over two lines"),
    ],
)
def test_user_data_refuses_and_names_the_placeholder(template: str, named: str) -> None:
    with pytest.raises(UserDataError, match="userDataTemplate") as refusal:
        render_user_data(a_request(user_data_template=template), {**JOIN, "empty": " "})
    assert named in str(refusal.value)
    assert JOIN["token"] not in str(refusal.value)


def test_user_data_refuses_metadata_of_a_cloud_that_has_no_plain_id() -> None:
    offer = a_request().offer.model_copy(update={"provider": ProviderName.HUAWEI})
    request = a_request(offer=offer, user_data_template="{{ metadata.instanceIdURL }}")
    with pytest.raises(UserDataError, match="huawei"):
        render_user_data(request, {})


def test_user_data_says_whether_it_needs_the_secret() -> None:
    assert uses_join_secret(TEMPLATE)
    assert not uses_join_secret("{{ providerID }} {{ taints }}")
