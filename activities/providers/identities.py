"""Keys without secrets: a role that a pod takes on with the token that Kubernetes gives it.

The account's Secret says so: ``kind: workload-identity``, and then instead of an access key

====================  =============================================================================
``roleArn``           the role (Tencent, Alibaba, AWS)
``identityProvider``  the identity provider at the cloud: Tencent its name, Alibaba its ARN, Huawei its id
``tokenFile``         the projected token's path; optional. It is read anew at each renewal of the keys
``sessionName``       what the cloud's audit log shows; optional
====================  =============================================================================
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from domain.contracts.model import Contract

WORKLOAD_IDENTITY: Final = "workload-identity"
STATIC_KEYS: Final = "keys"
TOKEN_FILE: Final = "/var/run/secrets/spotgpu/identity/token"  # noqa: S105 - a path, not a token
SESSION_NAME: Final = "spotgpu"


class UnusableIdentityError(Exception):
    """The role cannot be taken on as the Secret describes it; the text says what is wrong, and no secret."""


class WorkloadIdentity(Contract):
    """What a role is taken on with."""

    role: str
    provider: str
    token_file: str
    session: str

    def token(self) -> str:
        """The token as it is now: Kubernetes changes the file before the old one ends.

        Raises:
            UnusableIdentityError: there is no such file, or nothing in it.
        """
        try:
            token = Path(self.token_file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            name = type(error).__name__
            text = f"tokenFile {self.token_file} cannot be read ({name}): mount the projected token there"
            raise UnusableIdentityError(text) from None
        if not token:
            raise UnusableIdentityError(f"tokenFile {self.token_file} is empty")
        return token


def identity_in(keys: Mapping[str, str], needs: Sequence[str]) -> WorkloadIdentity | None:
    """The role that a credentials Secret names; None when it holds keys.

    Args:
        keys: The Secret's data.
        needs: Which of ``roleArn`` and ``identityProvider`` the cloud asks for.

    Raises:
        UnusableIdentityError: an unknown kind, or something that is needed is missing.
    """
    kind = keys.get("kind", "") or STATIC_KEYS
    if kind == STATIC_KEYS:
        return None
    if kind != WORKLOAD_IDENTITY:
        raise UnusableIdentityError(f"kind {kind!r} is neither {STATIC_KEYS} nor {WORKLOAD_IDENTITY}")
    missing = [name for name in needs if not keys.get(name, "").strip()]
    if missing:
        raise UnusableIdentityError(f"kind {WORKLOAD_IDENTITY} needs {' and '.join(missing)}")
    return WorkloadIdentity(
        role=keys.get("roleArn", "").strip(),
        provider=keys.get("identityProvider", "").strip(),
        token_file=keys.get("tokenFile", "").strip() or TOKEN_FILE,
        session=keys.get("sessionName", "").strip() or SESSION_NAME,
    )
