"""Tencent's role for a pod, as its SDK takes it on, but with a token file that is read anew each time."""

# The SDK has no stubs; this file is part of its border.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from tencentcloud.common.credential import OIDCRoleArnCredential
from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException
from typing_extensions import override

from activities.providers.identities import UnusableIdentityError, WorkloadIdentity

UNUSABLE = "InvalidCredential"
"""The SDK's own word for credentials that it does not send."""
_NO_ANSWER = frozenset({"ServerNetworkError", "ClientNetworkError", "JSONDecodeError", "KeyError"})


class RoleCredential(OIDCRoleArnCredential):
    """The SDK's credential keeps the token that it was made with; a rotated one would end its renewals."""

    def __init__(self, region: str, identity: WorkloadIdentity) -> None:
        """Ask for nothing yet."""
        super().__init__(region, identity.provider, "", identity.role, identity.session)
        self._identity = identity

    @override
    def refresh(self) -> None:
        """Read the token, and take the role on with it.

        Raises:
            TencentCloudSDKException: ``InvalidCredential`` when the cloud or the file does not allow it.
        """
        try:
            self._web_identity_token = self._identity.token()
        except UnusableIdentityError as error:
            raise TencentCloudSDKException(UNUSABLE, str(error)) from None
        try:
            super().refresh()
        except TencentCloudSDKException as error:
            if error.code in _NO_ANSWER:
                raise
            text = f"role {self._identity.role} is refused ({error.code}): {error.message}"
            raise TencentCloudSDKException(UNUSABLE, text) from None
