"""Credentials for the server of callers.toml: tokens of openid.mjs and a key."""

import os
import ssl

import httpx
from a2a.client.auth import CredentialService

ISSUER = os.environ["OPENID_ISSUER"]
ROBOT_KEY = os.environ["ROBOT_KEY"]
# For the provider's certificate.
TLS = ssl.create_default_context(cafile=os.environ["OPENID_CA"])


async def token_of(name, resource="https://agents.example"):
    """An access token by the client credentials grant; carol may only read."""
    asked = {
        "grant_type": "client_credentials",
        "resource": resource,
        "scope": "a2a:read" if name == "carol" else "a2a:read a2a:send a2a:cancel",
    }
    async with httpx.AsyncClient(verify=TLS) as http:
        secret = (name, f"the-secret-of-{name}")
        answer = await http.post(f"{ISSUER}/token", data=asked, auth=secret)
        answer.raise_for_status()
        return answer.json()["access_token"]


def forged(token):
    """The token with a changed character in its signature."""
    head, claims, signature = token.split(".")
    other = "B" if signature[9] == "A" else "A"
    return f"{head}.{claims}.{signature[:9]}{other}{signature[10:]}"


async def rotate():
    """Makes the provider sign with a new key, and drop the old one."""
    async with httpx.AsyncClient(verify=TLS) as http:
        (await http.post(f"{ISSUER}/rotate")).raise_for_status()


class Purse(CredentialService):
    """Credentials by the names of the card's schemes."""

    def __init__(self, credentials):
        self.credentials = credentials

    async def get_credentials(self, security_scheme_name, context):
        return self.credentials.get(security_scheme_name)
