"""Verifies a webhook post with standard libraries.

`verify` raises unless every requested check passes:
- `secret`: the Standard Webhooks signature (`v1`), made with the secret of the configuration;
- `jwks_url`: the JWT and the Ed25519 signature (`v1a`), made with keys of the server. A post has
  one of them or both. `audience` is the origin of the receiver.
It returns the claims of the JWT, or None. A receiver also checks the task, the token
(X-A2A-Notification-Token) and repeated ids: a server signs for each caller that sets a webhook.
"""

import base64
import functools
import hashlib
import time

import jwt
from cryptography.exceptions import InvalidSignature
from standardwebhooks import Webhook

JWT_ALGORITHMS = ["RS256", "ES256"]
REQUIRED = ["aud", "exp", "iat", "jti", "request_body_sha256", "taskId"]
# Maximum age of a post, for Standard Webhooks and for the server's JWTs.
TOLERANCE_S = 300
# Allowed clock difference for the times in a JWT.
LEEWAY_S = 60

# Caches the fetched keys for some minutes.
key_set = functools.cache(jwt.PyJWKClient)


def verify(headers, body, *, secret=None, jwks_url=None, audience=None):
    """`headers`: a mapping whose names may have any case; `body`: the received bytes."""
    headers = {name.lower(): value for name, value in headers.items()}
    if not secret and not jwks_url:
        raise ValueError("name a secret or the URL of keys")
    if secret:
        Webhook(secret).verify(body, headers, json_parse=False)
    if not jwks_url:
        return None
    if not audience:
        raise ValueError("name the origin of the receiver")
    keys, token, signatures = key_set(jwks_url), jwt_of(headers), ed25519_of(headers)
    if token is None and not signatures:
        raise ValueError("the server has signed nothing")
    if signatures:
        verify_ed25519(headers, body, signatures, keys)
    return None if token is None else verify_jwt(token, body, keys, audience)


def jwt_of(headers):
    """`Authorization` may hold the configuration's own credentials."""
    token = headers.get("x-a2a-notification-jwt")
    if token is None:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        token = token if scheme.lower() == "bearer" and token.count(".") == 2 else None
    return token


def verify_jwt(token, body, keys, audience):
    key = keys.get_signing_key_from_jwt(token)
    options = {"require": REQUIRED}
    claims = jwt.decode(
        token,
        key,
        algorithms=JWT_ALGORITHMS,
        audience=audience,
        leeway=LEEWAY_S,
        options=options,
    )
    if claims["request_body_sha256"] != hashlib.sha256(body).hexdigest():
        raise ValueError("the JWT is about another body")
    if claims["iat"] < time.time() - TOLERANCE_S - LEEWAY_S:
        raise ValueError("the JWT is too old")
    return claims


def ed25519_of(headers):
    pairs = (one.split(",", 1) for one in headers.get("webhook-signature", "").split())
    return [base64.b64decode(text) for version, text in pairs if version == "v1a"]


def verify_ed25519(headers, body, signatures, keys):
    """The libraries of Standard Webhooks support only HMAC."""
    stamp = headers["webhook-timestamp"]
    if abs(time.time() - int(stamp)) > TOLERANCE_S:
        raise ValueError("the post is too old")
    content = f"{headers['webhook-id']}.{stamp}.".encode() + body
    for key in keys.get_signing_keys():
        for signature in signatures if key.key_type == "OKP" else ():
            try:
                return key.key.verify(signature, content)
            except InvalidSignature:
                continue
    raise ValueError("no key of Ed25519 has signed the post")
