"""What user data makes of a machine: flags, variables, here-documents, the join line."""

from __future__ import annotations

import pytest

from sandbox.boot_script import BootPlan, BootScriptError, JoinLine, Taint, read_boot_script

URL = "http://h/latest/meta-data/instance-id"
METADATA = {"/latest/meta-data/instance-id": "ins-abc123"}

PUBLIC = """\
#!/bin/sh
INSTANCE_ID=$(curl -fsS http://metadata.tencentyun.com/latest/meta-data/instance-id)
cat >/etc/default/kubelet <<EOF
KUBELET_EXTRA_ARGS=--provider-id=qcloud:///100003/$INSTANCE_ID \
--register-with-taints=spotgpu.zuoyang.io/spot-instance=true:NoSchedule,a=:NoExecute \
--node-labels=spotgpu.zuoyang.io/pool=p,x=y
EOF
kubeadm join 127.0.0.1:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:aa
"""


def test_boot_script_reads_the_public_template() -> None:
    assert read_boot_script(PUBLIC, METADATA) == BootPlan(
        provider_id="qcloud:///100003/ins-abc123",
        labels={"spotgpu.zuoyang.io/pool": "p", "x": "y"},
        taints=(
            Taint("spotgpu.zuoyang.io/spot-instance", "true", "NoSchedule"),
            Taint("a", "", "NoExecute"),
        ),
        join=JoinLine("127.0.0.1:6443", "abcdef.0123456789abcdef", "sha256:aa"),
    )


@pytest.mark.parametrize(
    ("script", "plan"),
    [
        pytest.param("echo hello", BootPlan(), id="nothing of a Node"),
        pytest.param("# kubeadm join a --token t", BootPlan(), id="a comment"),
        pytest.param('F="--provider-id=x --node-labels=a=b"', BootPlan("x", labels={"a": "b"}), id="quoted"),
        pytest.param("kubelet --provider-id x", BootPlan("x"), id="a space before the value"),
        pytest.param(
            "kubelet --provider-id=x\nkubelet --provider-id=y", BootPlan("y"), id="the last one wins"
        ),
        pytest.param("kubelet --hostname-override=n", BootPlan(node_name="n"), id="host name by flag"),
        pytest.param("hostnamectl set-hostname n", BootPlan(node_name="n"), id="host name by command"),
        pytest.param("kubelet --register-with-taints= --v=2", BootPlan(), id="an empty flag"),
        pytest.param("Z=7\nkubelet --provider-id=q/${Z}/i", BootPlan("q/7/i"), id="a variable in braces"),
        pytest.param("kubelet --provider-id=q/$NONE", BootPlan("q/"), id="a variable that is not set"),
        pytest.param(
            "cat <<'EOF'\n--provider-id=$Z\nEOF\n",
            BootPlan("$Z"),
            id="a literal here-document expands nothing",
        ),
        pytest.param(
            "I=$(curl -fsS http://10.0.0.1/elsewhere)\nkubelet --provider-id=x/$I",
            BootPlan("x/"),
            id="metadata that is not there",
        ),
        pytest.param(
            f"I=$(curl -s {URL} | sed 's/ins-\\(.*\\)/<\\1>/')\n--provider-id=$I",
            BootPlan("<abc123>"),
            id="metadata through sed",
        ),
        pytest.param(
            f"I=$(curl -s {URL} | sed 's/(ins)/x/')\n--provider-id=$I",
            BootPlan("ins-abc123"),
            id="a plain parenthesis is no group for sed",
        ),
        pytest.param(
            "kubeadm join a:1 \\\n  --token t \\\n  --discovery-token-ca-cert-hash sha256:b --node-name n",
            BootPlan(node_name="n", join=JoinLine("a:1", "t", "sha256:b")),
            id="a line that goes on",
        ),
        pytest.param("kubeadm join a:1", BootPlan(join=JoinLine("a:1", "", "")), id="a join without a token"),
    ],
)
def test_boot_script_reads(script: str, plan: BootPlan) -> None:
    assert read_boot_script(script, METADATA) == plan


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        pytest.param("--node-labels=kubernetes.io/role=gpu", "kubernetes.io/role", id="a reserved label"),
        pytest.param("--node-labels=a.k8s.io/x=y", "a.k8s.io/x", id="a reserved domain"),
        pytest.param("--register-with-taints=a=b:Never", "a=b:Never", id="an unknown effect"),
        pytest.param("--register-with-taints=ab", "ab", id="no effect"),
    ],
)
def test_boot_script_refuses_what_a_kubelet_refuses(flags: str, named: str) -> None:
    with pytest.raises(BootScriptError, match=named):
        read_boot_script(f"kubelet {flags}", METADATA)


@pytest.mark.parametrize(
    "label",
    ["topology.kubernetes.io/zone", "node.kubernetes.io/instance-type", "spotgpu.zuoyang.io/pool"],
)
def test_boot_script_takes_the_labels_that_a_kubelet_takes(label: str) -> None:
    assert read_boot_script(f"kubelet --node-labels={label}=x", METADATA).labels == {label: "x"}
