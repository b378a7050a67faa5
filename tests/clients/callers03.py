"""The official Python client, generation 0.3, with credentials: callers03.py BASE_URL

The server is that of callers.toml. Over JSON-RPC the SDK places each credential by
the card; over HTTP+JSON it calls no interceptor, so its HTTP client sends the credential.
A2A_BINDING selects the interface of the card: JSONRPC or HTTP+JSON.
"""

import sys
import uuid

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.auth import AuthInterceptor
from a2a.client.errors import A2AClientHTTPError, A2AClientJSONRPCError
from a2a.types import Message, Part, Role, TaskIdParams, TaskQueryParams, TaskState, TextPart

from harness import BINDING, case, check, drain, equal, main, raises
from provider import ROBOT_KEY, Purse, forged, token_of

ROBOT = {"api-key": ROBOT_KEY}


def field_of(scheme, secret):
    """The header field of a credential."""
    if scheme == "api-key":
        return "X-API-Key", secret
    return "Authorization", f"Bearer {secret}"


class Session:
    """A client of the SDK with some credentials."""

    def __init__(self, base_url, credentials, streaming=False, polling=False):
        self.base_url = base_url
        self.fields = {}
        if BINDING == "HTTP+JSON":
            self.fields = dict(field_of(*one) for one in credentials.items())
        self.auth = AuthInterceptor(Purse(credentials))
        self.config = {"streaming": streaming, "polling": polling}

    async def __aenter__(self):
        self.http = httpx.AsyncClient(timeout=15, headers=self.fields)
        self.card = await A2ACardResolver(self.http, self.base_url).get_agent_card()
        config = ClientConfig(
            httpx_client=self.http, supported_transports=[BINDING], **self.config
        )
        self.client = ClientFactory(config).create(self.card, interceptors=[self.auth])
        return self

    async def __aexit__(self, *_):
        await self.http.aclose()

    async def send(self, text, **ids):
        message = Message(
            message_id=str(uuid.uuid4()),
            role=Role.user,
            parts=[Part(root=TextPart(text=text))],
            **ids,
        )
        return await drain(self.client.send_message(message))

    async def task(self, text):
        ((task, _),) = await self.send(text)
        return task

    async def get(self, task_id):
        return await self.client.get_task(TaskQueryParams(id=task_id))

    async def cancel(self, task_id):
        return await self.client.cancel_task(TaskIdParams(id=task_id))


async def refused(awaitable, status, what):
    error = await raises(A2AClientHTTPError, awaitable, what)
    equal(error.status_code, status, f"status of {what}")


async def not_found(awaitable, what):
    kind = A2AClientJSONRPCError if BINDING == "JSONRPC" else A2AClientHTTPError
    error = await raises(kind, awaitable, what)
    if BINDING == "JSONRPC":
        equal(error.error.code, -32001, f"code of {what}")
    else:
        equal(error.status_code, 404, f"status of {what}")


async def every_operation(base_url, credentials):
    async with Session(base_url, credentials) as s:
        done = await s.task("hello")
        equal(done.status.state, TaskState.completed, "state")
        equal((await s.get(done.id)).id, done.id, "got")
    async with Session(base_url, credentials, polling=True) as s:
        held = await s.task("hold:3000:3")
        equal((await s.cancel(held.id)).status.state, TaskState.canceled, "canceled")
    async with Session(base_url, credentials, streaming=True) as s:
        events = await s.send("stream:5")
        equal(events[-1][0].status.state, TaskState.completed, "end of the stream")


@case
async def a_token_of_the_provider_is_good_for_every_operation(base_url):
    await every_operation(base_url, {"openid": await token_of("alice")})
    await every_operation(base_url, {"bearer": await token_of("bob")})


@case
async def a_key_is_good_for_every_operation(base_url):
    await every_operation(base_url, ROBOT)


@case
async def without_a_credential_nothing_is_answered(base_url):
    async with Session(base_url, {}) as s:
        await refused(s.send("x"), 401, "send")
        await refused(s.get("x"), 401, "get")
        await refused(s.cancel("x"), 401, "cancel")
        await refused(s.client.get_card(), 401, "extended card")
    async with Session(base_url, {}, streaming=True) as s:
        # This client cannot read an error that is not a stream.
        await raises(A2AClientHTTPError, s.send("stream:3"), "stream")


@case
async def a_wrong_credential_is_refused(base_url):
    for what, wrong in (
        ("forged signature", {"bearer": forged(await token_of("alice"))}),
        ("other audience", {"openid": await token_of("alice", "https://elsewhere.example")}),
        ("wrong key", {"api-key": ROBOT_KEY[1:]}),
    ):
        async with Session(base_url, wrong) as s:
            await refused(s.send("x"), 401, what)


@case
async def a_task_is_not_found_by_others(base_url):
    async with Session(base_url, {"openid": await token_of("alice")}) as alice:
        done = await alice.task("mine")
        for others in ({"openid": await token_of("bob")}, ROBOT):
            async with Session(base_url, others) as s:
                await not_found(s.get(done.id), "get")
                await not_found(s.cancel(done.id), "cancel")
                await not_found(s.send("x", task_id=done.id), "follow-up")
        equal((await alice.get(done.id)).id, done.id, "got by alice")


@case
async def who_may_only_read_cannot_send(base_url):
    async with Session(base_url, {"openid": await token_of("carol")}) as s:
        await not_found(s.get("x"), "get")
        await refused(s.send("x"), 403, "send")
        await refused(s.cancel("x"), 403, "cancel")


@case
async def the_extended_card_needs_a_caller(base_url):
    async with Session(base_url, {"openid": await token_of("alice")}) as s:
        check(s.card.supports_authenticated_extended_card, "card offers it")
        full = await s.client.get_card()
        equal(sorted(full.security_schemes), ["api-key", "bearer", "openid"], "schemes")


@case
async def an_open_agent_is_for_anybody(base_url):
    async with Session(f"{base_url}/agents/open", {}) as s:
        equal(s.card.security[0], {}, "a call may be without credentials")
        done = await s.task("hello")
        equal((await s.get(done.id)).id, done.id, "got")


main("callers-py03", sys.argv[1])
