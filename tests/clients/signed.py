"""Signed cards, verified by independent libraries, and by the official SDK."""

import base64
import copy
import json
import sys

import httpx
import rfc8785
from a2a.client.card_resolver import parse_agent_card
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from harness import case, check, equal, main
from jwcrypto import jwk, jws
from jwt import PyJWKSet

CARD = "/.well-known/agent-card.json"
ALGORITHMS = ["ES256", "EdDSA"]


def unpadded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


async def get(url):
    async with httpx.AsyncClient() as http:
        return (await http.get(url)).raise_for_status()


async def signed(base_url):
    card = (await get(base_url + CARD)).json()
    return card, (await get(base_url + "/.well-known/jwks.json")).text


def verifies(card, signature, keys):
    """RFC 7515 over RFC 8785, by jwcrypto and rfc8785: the document as it is, without `signatures`."""
    bare = {name: value for name, value in card.items() if name != "signatures"}
    header = json.loads(base64.urlsafe_b64decode(signature["protected"] + "=="))
    token = jws.JWS()
    token.allowed_algs = ALGORITHMS
    payload = unpadded(rfc8785.dumps(bare))
    token.deserialize(f"{signature['protected']}.{payload}.{signature['signature']}")
    try:
        token.verify(keys.get_key(header["kid"]))
    except jws.InvalidJWSSignature:
        return None
    return header


@case
async def each_key_has_signed_the_document(base_url):
    """Every key of the set has made a signature over the card as it goes out."""
    card, text = await signed(base_url)
    keys = jwk.JWKSet.from_json(text)
    headers = [verifies(card, one, keys) for one in card["signatures"]]
    found = {header["kid"]: header for header in headers if header}
    wanted = {key["kid"]: key for key in json.loads(text)["keys"]}
    equal(set(found), set(wanted), "keys that have signed")
    equal({header["alg"] for header in found.values()}, set(ALGORITHMS), "algorithms")
    equal({header["typ"] for header in found.values()}, {"JOSE"}, "types")
    changed = copy.deepcopy(card)
    changed["url"] = "http://evil.example/"
    check(not any(verifies(changed, one, keys) for one in card["signatures"]), "a changed card")


@case
async def a_key_without_a_name_has_its_thumbprint(base_url):
    _, text = await signed(base_url)
    names = {key["kid"]: jwk.JWK(**key).thumbprint() for key in json.loads(text)["keys"]}
    check(any(kid == thumbprint for kid, thumbprint in names.items()), f"thumbprints: {names}")


@case
async def the_official_sdk_verifies_the_card(base_url):
    card, text = await signed(base_url)
    keys = {key.key_id: key for key in PyJWKSet.from_json(text).keys}
    verify = create_signature_verifier(lambda kid, jku: keys[kid], ALGORITHMS)
    for kid in keys:
        one = copy.deepcopy(card)
        one["signatures"] = [
            signature
            for signature in card["signatures"]
            if json.loads(base64.urlsafe_b64decode(signature["protected"] + "=="))["kid"] == kid
        ]
        verify(parse_agent_card(one))
    changed = copy.deepcopy(card)
    changed["version"] = "6.6.6"
    try:
        verify(parse_agent_card(changed))
    except InvalidSignaturesError:
        return
    raise AssertionError("a changed card is verified")


main("signed", sys.argv[1])
