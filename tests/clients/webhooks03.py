"""Webhooks by the official Python client, generation 0.3: webhooks03.py BASE_URL

The server is that of webhooks1.py. This client can set and read configurations, not list or delete
them; posts are read as the SDK's Task.
"""

import asyncio
import sys

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import (
    GetTaskPushNotificationConfigParams,
    PushNotificationAuthenticationInfo,
    PushNotificationConfig,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)
from grpc.aio import insecure_channel

from harness import BINDING, case, check, drain, equal, main
from py03 import Session, held_task, message
from receiver import SECRET, Receiver


@case
async def configurations(base_url):
    task = await held_task(base_url, "hold:3000:3")
    async with Session(base_url) as s:
        check(s.card.capabilities.push_notifications, "the card has push notifications")
        auth = PushNotificationAuthenticationInfo(schemes=["Bearer"], credentials="secret")
        for name in ("a", "b"):
            config = PushNotificationConfig(
                id=name, url=f"https://hooks.example/{name}", token="t", authentication=auth
            )
            params = TaskPushNotificationConfig(task_id=task.id, push_notification_config=config)
            made = await s.client.set_task_callback(params)
            equal(made.task_id, task.id, "task")
            equal(made.push_notification_config.url, config.url, "made")
            by_id = GetTaskPushNotificationConfigParams(
                id=task.id, push_notification_config_id=name
            )
            read = await s.client.get_task_callback(by_id)
            equal(read.push_notification_config.id, name, "id")
            equal(read.push_notification_config.authentication.schemes, ["Bearer"], "schemes")


@case
async def tasks_are_posted(base_url):
    """The configuration of the client goes with every message; the last post is the last task."""
    receiver = Receiver(base_url)
    for path, auth in (
        ("/secret", ("StandardWebhooks", SECRET)),
        ("/bearer", ("Bearer", "credentials-of-ours")),
        ("/none", None),
    ):
        config = PushNotificationConfig(url=receiver.origin + path, token="token-of-ours")
        if auth:
            config.authentication = PushNotificationAuthenticationInfo(
                schemes=[auth[0]], credentials=auth[1]
            )
        async with httpx.AsyncClient(timeout=15) as http:
            card = await A2ACardResolver(http, base_url).get_agent_card()
            client = ClientFactory(
                ClientConfig(
                    httpx_client=http,
                    supported_transports=[BINDING],
                    grpc_channel_factory=insecure_channel,
                    streaming=False,
                    push_notification_configs=[config],
                )
            ).create(card)
            (event,) = await drain(client.send_message(message("stream:7")))
        sent = event[0] if isinstance(event, tuple) else event

        def is_done(posts):
            return posts and posts[-1][1]["status"]["state"] == "completed"

        posts = await asyncio.to_thread(receiver.wait, path, is_done)
        tasks = [Task.model_validate(body) for _, body, _ in posts]
        equal({task.id for task in tasks}, {sent.id}, "task")
        equal(tasks[-1].status.state, TaskState.completed, "last state")
        texts = [[p.root.text for a in t.artifacts for p in a.parts] for t in (tasks[-1], sent)]
        equal(texts[0], texts[1], "artifacts")
        for headers, _, claims in posts:
            equal(headers["x-a2a-notification-token"], "token-of-ours", "token")
            equal(claims["taskId"], sent.id, "task of the JWT")
            if path == "/bearer":
                equal(headers["authorization"], "Bearer credentials-of-ours", "bearer")
    receiver.close()


if __name__ == "__main__":
    main(f"webhooks-py03 {BINDING}", sys.argv[1])
