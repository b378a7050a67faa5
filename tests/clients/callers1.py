"""The official Python client, generation 1.0, with credentials: callers1.py BASE_URL

The server accepts alice, bob and carol (read only) by tokens of OPENID_ISSUER (openid.mjs), and a
robot by ROBOT_KEY (callers.toml). The SDK places each credential by the card. A2A_BINDING selects
the interface of the card: JSONRPC, HTTP+JSON or GRPC.
"""

import sys
import uuid

import httpx
from a2a.client import A2ACardResolver, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.auth import AuthInterceptor
from a2a.client.errors import A2AClientError
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskState,
)
from a2a.utils.errors import TaskNotFoundError
from grpc.aio import insecure_channel

from harness import BINDING, case, check, drain, equal, main, raises
from provider import ISSUER, ROBOT_KEY, Purse, forged, rotate, token_of

ROBOT = {"api-key": ROBOT_KEY}
NOBODY = {}


class Session:
    """A client of the SDK with some credentials."""

    def __init__(self, base_url, credentials, streaming=False, fields=None):
        self.base_url, self.streaming = base_url, streaming
        self.auth = AuthInterceptor(Purse(credentials))
        self.context = ClientCallContext(service_parameters=fields or {})

    async def __aenter__(self):
        self.http = httpx.AsyncClient(timeout=15)
        self.card = await A2ACardResolver(self.http, self.base_url).get_agent_card()
        config = ClientConfig(
            httpx_client=self.http,
            streaming=self.streaming,
            supported_protocol_bindings=[BINDING],
            grpc_channel_factory=insecure_channel,
        )
        self.client = ClientFactory(config).create(self.card, interceptors=[self.auth])
        return self

    async def __aexit__(self, *_):
        await self.client.close()
        await self.http.aclose()

    async def send(self, text, task_id="", at_once=False):
        message = Message(
            message_id=str(uuid.uuid4()),
            role=Role.ROLE_USER,
            parts=[Part(text=text)],
            task_id=task_id,
        )
        request = SendMessageRequest(message=message)
        request.configuration.return_immediately = at_once
        return await drain(self.client.send_message(request, context=self.context))

    async def task(self, text, at_once=False):
        (event,) = await self.send(text, at_once=at_once)
        return event.task

    async def get(self, task_id):
        return await self.client.get_task(GetTaskRequest(id=task_id), context=self.context)

    async def ids(self):
        return [task.id for task in (await self.client.list_tasks(ListTasksRequest())).tasks]


async def refused(awaitable, status, code, what):
    """Asserts the refusal as the SDK shows it: by the status of HTTP or gRPC."""
    error = await raises(A2AClientError, awaitable, what)
    shown = f"gRPC Error {code}:" if BINDING == "GRPC" else f"HTTP Error {status}:"
    check(str(error).startswith(shown), f"{what}: {error} is no {shown}")


async def unknown(awaitable, what):
    await refused(awaitable, 401, "UNAUTHENTICATED", what)


async def every_operation(base_url, credentials):
    async with Session(base_url, credentials) as s:
        done = await s.task("hello")
        equal(done.status.state, TaskState.TASK_STATE_COMPLETED, "state")
        equal((await s.get(done.id)).id, done.id, "got")
        check(done.id in await s.ids(), "list has the task")
        held = await s.task("hold:3000:3", at_once=True)
        gone = await s.client.cancel_task(CancelTaskRequest(id=held.id))
        equal(gone.status.state, TaskState.TASK_STATE_CANCELED, "canceled")
    async with Session(base_url, credentials, streaming=True) as s:
        events = await s.send("stream:5")
        state = events[-1].status_update.status.state
        equal(state, TaskState.TASK_STATE_COMPLETED, "end of the stream")
        check(any(e.HasField("artifact_update") for e in events), "stream has artifacts")
        check(events[0].task.id in await s.ids(), "list has what was streamed")


@case
async def the_card_says_what_is_asked_for(base_url):
    async with Session(base_url, NOBODY) as s:
        schemes = s.card.security_schemes
        equal(sorted(schemes), ["api-key", "bearer", "openid"], "schemes")
        url = schemes["openid"].open_id_connect_security_scheme.open_id_connect_url
        equal(url, f"{ISSUER}/.well-known/openid-configuration", "discovery")
        asked = sorted(name for one in s.card.security_requirements for name in one.schemes)
        equal(asked, sorted(schemes), "one of them is enough")


@case
async def a_token_of_the_provider_is_good_for_every_operation(base_url):
    await every_operation(base_url, {"openid": await token_of("alice")})
    await every_operation(base_url, {"bearer": await token_of("bob")})


@case
async def a_key_is_good_for_every_operation(base_url):
    await every_operation(base_url, ROBOT)


@case
async def without_a_credential_nothing_is_answered(base_url):
    async with Session(base_url, NOBODY) as s:
        await unknown(s.send("x"), "send")
        await unknown(s.get("x"), "get")
        await unknown(s.ids(), "list")
        await unknown(s.client.cancel_task(CancelTaskRequest(id="x")), "cancel")
        card = s.client.get_extended_agent_card(GetExtendedAgentCardRequest())
        await unknown(card, "extended card")
    async with Session(base_url, NOBODY, streaming=True) as s:
        await unknown(s.send("stream:3"), "stream")
        await unknown(drain(s.client.subscribe(SubscribeToTaskRequest(id="x"))), "subscribe")


@case
async def a_wrong_credential_is_refused(base_url):
    elsewhere = await token_of("alice", resource="https://elsewhere.example")
    for what, wrong in (
        ("forged signature", {"bearer": forged(await token_of("alice"))}),
        ("other audience", {"bearer": elsewhere}),
        ("wrong key", {"api-key": ROBOT_KEY[1:]}),
    ):
        async with Session(base_url, wrong) as s:
            await unknown(s.send("x"), what)
        async with Session(base_url, wrong, streaming=True) as s:
            await unknown(s.send("stream:3"), what)


@case
async def a_task_is_not_found_by_others(base_url):
    async with Session(base_url, {"openid": await token_of("alice")}) as alice:
        done = await alice.task("mine")
        held = await alice.task("hold:5000:3", at_once=True)
        for others in ({"openid": await token_of("bob")}, ROBOT):
            async with Session(base_url, others) as s:
                check(not {done.id, held.id} & set(await s.ids()), "list of others")
                await raises(TaskNotFoundError, s.get(done.id), "get")
                call = s.client.cancel_task(CancelTaskRequest(id=held.id))
                await raises(TaskNotFoundError, call, "cancel")
                await raises(TaskNotFoundError, s.send("x", task_id=done.id), "follow-up")
            async with Session(base_url, others, streaming=True) as s:
                call = drain(s.client.subscribe(SubscribeToTaskRequest(id=held.id)))
                await raises(TaskNotFoundError, call, "subscribe")
        await alice.client.cancel_task(CancelTaskRequest(id=held.id))
    async with Session(base_url, {"openid": await token_of("alice")}) as again:
        equal((await again.get(done.id)).id, done.id, "with another token of alice")


@case
async def who_may_only_read_cannot_send(base_url):
    async with Session(base_url, {"openid": await token_of("carol")}) as s:
        equal(await s.ids(), [], "tasks of carol")
        await refused(s.send("x"), 403, "PERMISSION_DENIED", "send")
        call = s.client.cancel_task(CancelTaskRequest(id="x"))
        await refused(call, 403, "PERMISSION_DENIED", "cancel")


@case
async def the_extended_card_needs_a_caller(base_url):
    async with Session(base_url, {"openid": await token_of("alice")}) as s:
        check(s.card.capabilities.extended_agent_card, "card offers it")
        full = await s.client.get_extended_agent_card(GetExtendedAgentCardRequest())
        equal(full.name, s.card.name, "name")
        check(full.security_schemes, "schemes of the extended card")


@case
async def an_open_agent_is_for_anybody(base_url):
    # A gRPC path names no agent, so the agent must be named in the head.
    fields = {"a2a-tenant": "open"} if BINDING == "GRPC" else {}
    async with Session(f"{base_url}/agents/open", NOBODY, fields=fields) as s:
        check(not s.card.security_requirements[0].schemes, "a call may be without credentials")
        done = await s.task("hello")
        equal(done.status.state, TaskState.TASK_STATE_COMPLETED, "state")
        equal((await s.get(done.id)).id, done.id, "got")
    async with Session(f"{base_url}/agents/open", NOBODY, True, fields) as s:
        check(len(await s.send("stream:3")) > 2, "streamed")


@case
async def a_new_key_of_the_provider_is_fetched(base_url):
    old = await token_of("alice")
    async with Session(base_url, {"openid": old}) as s:
        done = await s.task("before")
    await rotate()
    async with Session(base_url, {"openid": await token_of("alice")}) as s:
        equal((await s.get(done.id)).id, done.id, "with the new key")
    async with Session(base_url, {"openid": old}) as s:
        await unknown(s.get(done.id), "what the old key has signed")


main("callers-py1", sys.argv[1])
