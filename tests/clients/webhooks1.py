"""Webhooks by the official Python client, generation 1.0: webhooks1.py BASE_URL

The server is the echo agent with `--push-allow localhost` and `--push-sign-key` for a JWT and for
Ed25519. The SDK has no receiver; ours reads posts as the SDK's types, and verifies them.
"""

import asyncio
import sys

from a2a.types.a2a_pb2 import (
    AuthenticationInfo,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    SendMessageRequest,
    StreamResponse,
    TaskPushNotificationConfig,
)
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from google.protobuf.json_format import ParseDict

from harness import BINDING, case, check, drain, equal, main, raises
from py1 import Session, message, state_name, steps_of
from receiver import SECRET, Receiver


def read(posts):
    return [ParseDict(body, StreamResponse()) for _, body, _ in posts]


async def received(receiver, path, is_enough):
    return await asyncio.to_thread(receiver.wait, path, is_enough)


@case
async def configurations(base_url):
    """Made, read, listed by page, replaced and deleted."""
    async with Session(base_url, False) as s:
        check(s.card.capabilities.push_notifications, "the card has push notifications")
        task = await s.held_task("hold:3000:3")
        for name in ("a", "b", "c"):
            config = TaskPushNotificationConfig(
                task_id=task.id,
                id=name,
                url=f"https://hooks.example/{name}",
                token=f"token-{name}",
                authentication=AuthenticationInfo(scheme="Bearer", credentials="secret"),
            )
            made = await s.client.create_task_push_notification_config(config)
            equal((made.id, made.task_id, made.url), (name, task.id, config.url), "made")
            equal(made.authentication.scheme, "Bearer", "scheme")
        unnamed = TaskPushNotificationConfig(task_id=task.id, url="https://hooks.example/d")
        unnamed = await s.client.create_task_push_notification_config(unnamed)
        check(unnamed.id, "an id of the server's")
        by_id = GetTaskPushNotificationConfigRequest(task_id=task.id, id="b")
        one = await s.client.get_task_push_notification_config(by_id)
        equal(one.url, "https://hooks.example/b", "read")
        page, ids = ListTaskPushNotificationConfigsRequest(task_id=task.id, page_size=3), []
        for _ in range(3):
            listed = await s.client.list_task_push_notification_configs(page)
            ids += [config.id for config in listed.configs]
            page.page_token = listed.next_page_token
            if not page.page_token:
                break
        equal(ids, ["a", "b", "c", unnamed.id], "listed")
        gone = DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="b")
        for _ in range(2):
            await s.client.delete_task_push_notification_config(gone)
        await raises(TaskNotFoundError, s.client.get_task_push_notification_config(by_id), "gone")


@case
async def refusals(base_url):
    """A target that is none, and a task that is none."""
    async with Session(base_url, False) as s:
        task = await s.held_task("hold:3000:3")
        for url in ("https://10.0.0.1/", "http://169.254.169.254/latest", "file:///etc/passwd"):
            config = TaskPushNotificationConfig(task_id=task.id, url=url)
            call = s.client.create_task_push_notification_config(config)
            await raises(InvalidParamsError, call, url)
        config = TaskPushNotificationConfig(task_id="none", url="https://hooks.example/")
        call = s.client.create_task_push_notification_config(config)
        await raises(TaskNotFoundError, call, "no task")


@case
async def posts_are_what_a_stream_says(base_url):
    """Inline; signed by a secret and by the server's keys; bearer and token."""
    receiver = Receiver(base_url)
    async with Session(base_url, True) as s:
        for path, scheme, credentials in (
            ("/secret", "StandardWebhooks", SECRET),
            ("/bearer", "Bearer", "credentials-of-ours"),
            ("/none", "", ""),
        ):
            request = SendMessageRequest(message=message("stream:7"))
            config = request.configuration.task_push_notification_config
            config.url, config.token = receiver.origin + path, "token-of-ours"
            if scheme:
                config.authentication.scheme = scheme
                config.authentication.credentials = credentials
            events = await drain(s.client.send_message(request))
            posts = await received(receiver, path, lambda posts: len(posts) >= len(events))
            equal(read(posts), events, f"posts to {path}")
            steps_of(read(posts))
            ids = [headers["a2a-notification-id"] for headers, _, _ in posts]
            equal(len(set(ids)), len(ids), "different notifications")
            for headers, _, claims in posts:
                equal(headers["content-type"], "application/a2a+json", "media type")
                equal(headers["a2a-version"], "1.0", "version")
                equal(headers["x-a2a-notification-token"], "token-of-ours", "token")
                equal(claims["taskId"], events[0].task.id, "task of the JWT")
                if path == "/bearer":
                    equal(headers["authorization"], "Bearer credentials-of-ours", "bearer")
    receiver.close()


@case
async def clocks_may_differ(base_url):
    """By a minute where a JWT holds; what is older than five is refused."""
    receiver = Receiver(base_url)
    async with Session(base_url, True) as s:
        request = SendMessageRequest(message=message("hi"))
        request.configuration.task_push_notification_config.url = receiver.origin + "/clock"
        await drain(s.client.send_message(request))
        await received(receiver, "/clock", len)
    receiver.close()
    for seconds, is_good in ((-45, True), (45, True), (-120, False), (400, False)):
        try:
            receiver.verify_again(seconds)
            error = None
        except Exception as refusal:
            error = refusal
        equal(error is None, is_good, f"{seconds} s: {error!r}")


@case
async def a_running_task_is_told_of(base_url):
    receiver = Receiver(base_url)
    async with Session(base_url, False) as s:
        task = await s.held_task("hold:1000:5")
        config = TaskPushNotificationConfig(task_id=task.id, url=receiver.origin + "/late")
        await s.client.create_task_push_notification_config(config)
        posts = await received(receiver, "/late", lambda posts: len(posts) >= 5)
        first, *_, last = read(posts)
        for event, state in ((first, "working"), (last, "completed")):
            equal(event.status_update.task_id, task.id, "task")
            equal(state_name(event.status_update.status.state), state, "state")
    receiver.close()


if __name__ == "__main__":
    main(f"webhooks-py1 {BINDING}", sys.argv[1])
