"""AWS's role for a pod: botocore's own web identity credentials, for the role that the Secret names."""

# The SDK has no stubs; this file is part of its border.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import botocore.session
from botocore.config import Config
from botocore.credentials import AssumeRoleWithWebIdentityCredentialFetcher, DeferredRefreshableCredentials

from activities.providers.identities import WorkloadIdentity


def role_credentials(
    core: botocore.session.Session, region: str, identity: WorkloadIdentity
) -> DeferredRefreshableCredentials:
    """Credentials that ask for keys at their first use, and again before those end.

    Args:
        core: A session to make the token service's client with.
        region: The region whose token service is asked.
        identity: The role; its token file is read at each renewal.
    """

    def create(service: str, config: Config) -> object:
        return core.create_client(service, region_name=region, config=config)

    fetcher = AssumeRoleWithWebIdentityCredentialFetcher(
        create, identity.token, identity.role, extra_args={"RoleSessionName": identity.session}
    )
    return DeferredRefreshableCredentials(
        method="assume-role-with-web-identity", refresh_using=fetcher.fetch_credentials
    )
