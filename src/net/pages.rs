//! The server's status pages: `/healthz`, `/readyz`, `/metrics`.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
    time::{Duration, Instant},
};

use crate::service::pages::{
    AdminAnswer, AdminMethod, AdminRequest, PageAnswer, PageSource, ServerPage,
};

#[cfg(feature = "push")]
use super::dead_letters;
use super::{
    admin_tasks,
    server_state::{ServerState, Stage},
};

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// A readiness check of a server.
pub(super) struct ReadyCheck {
    /// The name of the check, one word.
    pub(super) name: &'static str,
    /// Returns the error in one sentence; called at each request, so it must not wait.
    pub(super) check: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
}

/// The pages of a server.
pub(super) struct Pages {
    server: OnceLock<Weak<ServerState>>,
    checks: Vec<ReadyCheck>,
    are_on_agent_listeners: bool,
    /// Whether the store had room at the last check.
    has_room: Mutex<Option<(Instant, bool)>>,
}

/// How long the result is cached: the check scans the whole store, and any client may request it.
const ROOM_LOOK: Duration = Duration::from_secs(1);

impl Pages {
    /// Creates pages that have no server yet.
    pub(super) fn new(checks: Vec<ReadyCheck>, are_on_agent_listeners: bool) -> Pages {
        Pages {
            server: OnceLock::new(),
            checks,
            are_on_agent_listeners,
            has_room: Mutex::default(),
        }
    }

    /// Sets the server of the pages.
    pub(super) fn belong_to(&self, server: &Arc<ServerState>) {
        // There is only one server.
        let _ = self.server.set(Arc::downgrade(server));
    }

    fn has_room(&self, server: &ServerState) -> bool {
        let mut cached = self.has_room.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((since, has_room)) = *cached
            && since.elapsed() < ROOM_LOOK
        {
            return has_room;
        }
        let most = server.engine.limits().tasks_max as u64;
        let stats = server.engine.stats();
        let has_room = stats.is_none_or(|stats| stats.count() < most || stats.may_leave() > 0);
        *cached = Some((Instant::now(), has_room));
        has_room
    }

    fn ready(&self, server: &ServerState, details: bool, out: &mut Vec<u8>) -> PageAnswer {
        let store = match self.has_room(server) {
            true => Ok(()),
            false => Err("tasks_max is reached, and every task is unfinished".to_owned()),
        };
        let listeners = match server.listening() {
            0 => Err("no listener is open".to_owned()),
            _ => Ok(()),
        };
        let mut found = vec![("store", store), ("listeners", listeners)];
        found.extend(self.checks.iter().map(|one| (one.name, (one.check)())));
        let is_draining = server.stage() != Stage::Serving;
        let is_ready = !is_draining && found.iter().all(|(_, found)| found.is_ok());
        let word = match (is_draining, is_ready) {
            (true, _) => "draining",
            (false, true) => "ready",
            (false, false) => "not ready",
        };
        let text = |text: &str| {
            let mut out = Vec::new();
            crate::json::write::push_string(&mut out, text);
            String::from_utf8(out).unwrap_or_default()
        };
        let mut page = format!("{{\"status\":{}", text(word));
        if details {
            let rows = found.iter().map(|(name, found)| {
                let found = found.as_ref().err().map_or("ok", String::as_str);
                format!("{}:{}", text(name), text(found))
            });
            page += &format!(",\"checks\":{{{}}}", rows.collect::<Vec<_>>().join(","));
            let refusing = server.limits.recent();
            if !refusing.is_empty() {
                let rows = refusing.iter().map(|(limit, owner)| {
                    let owner = owner.as_deref().map_or("null".to_owned(), text);
                    format!("{}:{owner}", text(limit))
                });
                page += &format!(",\"refusing\":{{{}}}", rows.collect::<Vec<_>>().join(","));
            }
        }
        out.extend_from_slice(page.as_bytes());
        out.extend_from_slice(b"}\n");
        PageAnswer { status: if is_ready { 200 } else { 503 }, media: JSON }
    }
}

impl PageSource for Pages {
    fn are_on_agent_listeners(&self) -> bool {
        self.are_on_agent_listeners
    }

    fn write(&self, page: ServerPage, details: bool, out: &mut Vec<u8>) -> Option<PageAnswer> {
        let server = self.server.get()?.upgrade()?;
        match page {
            ServerPage::Health => {
                out.extend_from_slice(b"ok\n");
                Some(PageAnswer { status: 200, media: TEXT })
            }
            ServerPage::Ready => Some(self.ready(&server, details, out)),
            #[cfg(feature = "metrics")]
            ServerPage::Metrics => {
                out.extend_from_slice(super::scrape::text(&server)?.as_bytes());
                Some(PageAnswer { status: 200, media: "text/plain; version=0.0.4; charset=utf-8" })
            }
            #[cfg(not(feature = "metrics"))]
            ServerPage::Metrics => None,
        }
    }

    fn administer(&self, request: AdminRequest<'_>, out: &mut Vec<u8>) -> AdminAnswer {
        let Some(server) = self.server.get().and_then(Weak::upgrade) else {
            return AdminAnswer::Nowhere;
        };
        if let Some(agents) = server.engine.agents() {
            let limits = server.engine.limits();
            match admin_tasks::answer(agents, limits, request, out) {
                AdminAnswer::Nowhere => {}
                answer => return logged(request, answer),
            }
        }
        logged(request, self.dead_letters(&server, request, out))
    }
}

/// Logs the author of a request that may change something; returns the answer.
fn logged(request: AdminRequest<'_>, answer: AdminAnswer) -> AdminAnswer {
    if let (AdminMethod::Post | AdminMethod::Delete, AdminAnswer::Page(page)) =
        (request.method, answer)
    {
        super::report::operated(&request, page.status);
    }
    answer
}

impl Pages {
    #[cfg(not(feature = "push"))]
    fn dead_letters(&self, _: &ServerState, _: AdminRequest<'_>, _: &mut Vec<u8>) -> AdminAnswer {
        AdminAnswer::Nowhere
    }

    #[cfg(feature = "push")]
    fn dead_letters(
        &self,
        server: &ServerState,
        request: AdminRequest<'_>,
        out: &mut Vec<u8>,
    ) -> AdminAnswer {
        let now_ms = server.mono_ms();
        let webhooks = server.engine.webhooks();
        webhooks.map_or(AdminAnswer::Nowhere, |webhooks| {
            dead_letters::answer(webhooks, now_ms, request, out)
        })
    }
}
