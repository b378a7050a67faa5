//! A worker: one thread, one `current_thread` runtime, its listeners, connections and ticker.
//!
//! The ticker is the worker's only timer. It sleeps until the next deadline of a connection or the
//! next resume of an agent, whichever is first, and at most for a second.

use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    io,
    net::TcpListener,
    pin::pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    runtime::{Builder, LocalOptions, LocalRuntime},
    task::JoinHandle,
};

use crate::{engine::Worker, service::Now};

#[cfg(feature = "push")]
use super::last_posts::DrainTimes;
use super::{
    accept::{accept, accept_unix},
    admin::{self, AdminListener},
    async_agent,
    clock::Clock,
    entropy::Chacha,
    server_state::{ServerState, Stage},
    signals::Signals,
    slow_turn::slow_future,
    unix_socket::UnixSocket,
    worker_state::WorkerState,
};

/// Maximum milliseconds that the ticker sleeps, and so the interval of checks for expired tasks.
const SLEEP_MS_MAX: u64 = 1_000;
/// Milliseconds that calls and streams get after `drain_ms` to send their last output.
const LAST_WORDS_MS: u64 = 500;
/// How long the ticker pauses after the panic of an agent.
const PANIC_PAUSE: Duration = Duration::from_millis(10);

/// The thread of a worker.
#[derive(Clone, Copy)]
pub(super) enum WorkerThread {
    /// Worker 0 on the thread that started the server; this worker handles the signals and ends
    /// last.
    Main,
    /// Any worker on its own thread.
    Own(usize),
}

/// Runs a worker until the server ends; `ready` is called once with the result of the start.
pub(super) fn run(
    thread: WorkerThread,
    server: Arc<ServerState>,
    sockets: Vec<TcpListener>,
    ready: impl FnOnce(io::Result<()>),
) {
    let stale = Arc::new(AtomicBool::new(true));
    let prepared = runtime(&stale).and_then(|runtime| {
        let context = runtime.enter();
        let listeners = sockets.into_iter().map(tokio::net::TcpListener::from_std);
        let listeners = listeners.collect::<io::Result<Vec<_>>>()?;
        let signals = match thread {
            WorkerThread::Main => Some(Signals::new()?),
            WorkerThread::Own(_) => None,
        };
        let admin = match thread {
            WorkerThread::Main | WorkerThread::Own(0) => server.take_admin(),
            WorkerThread::Own(_) => None,
        };
        let admin = admin.map(AdminListener::new).transpose()?;
        let paths = match thread {
            WorkerThread::Main | WorkerThread::Own(0) => server.take_unix_sockets(),
            WorkerThread::Own(_) => Vec::new(),
        };
        let paths = paths.into_iter().map(UnixSocket::into_listener);
        let paths = paths.collect::<io::Result<Vec<_>>>()?;
        drop(context);
        Ok((runtime, listeners, (admin, paths), signals, Chacha::new()?))
    });
    let (runtime, listeners, (admin, paths), signals, entropy) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return ready(Err(error)),
    };
    ready(Ok(()));
    let index = match thread {
        WorkerThread::Main => 0,
        WorkerThread::Own(index) => index,
    };
    async_agent::set_room(
        server.engine.limits().async_futures_max.div_ceil(server.workers_at_start),
    );
    let state = Arc::clone(&server);
    runtime.block_on(async {
        if let Some(signals) = signals {
            tokio::task::spawn_local(signals.handle(Arc::clone(&server)));
        }
        let worker = Worker::new(index, server.engine.limits(), Box::new(entropy));
        let metrics = tokio::runtime::Handle::current().metrics();
        let clock = Clock::new(server.epoch, stale, metrics);
        #[cfg(feature = "metrics")]
        let clock = match &server.observers {
            Some(observers) => clock.with_receiver(Arc::clone(observers.turned(index))),
            None => clock,
        };
        let local = Rc::new(WorkerState::new(server, clock, worker));
        let accepting = |socket| tokio::task::spawn_local(accept(socket, Rc::clone(&local)));
        let at_path = |(listener, file)| {
            tokio::task::spawn_local(accept_unix(listener, file, Rc::clone(&local)))
        };
        let accepting = listeners.into_iter().map(accepting);
        let accepting = accepting.chain(paths.into_iter().map(at_path)).collect();
        let has_admin = admin.is_some();
        if let Some(admin) = admin {
            tokio::task::spawn_local(admin::accept(admin, Rc::clone(&local)));
        }
        let drain = Drain { accepting, cut_ms: None, end_ms: None };
        let drain = Rc::new(RefCell::new(drain));
        // A separate task: waking it from this thread is a push to a queue, not a system call.
        let ticker = || tokio::task::spawn_local(tick(index, Rc::clone(&local), drain.clone()));
        while ticker().await.is_err() {
            // An agent panicked, which was reported; the others are still served.
            tokio::time::sleep(PANIC_PAUSE).await;
        }
        if has_admin || matches!(thread, WorkerThread::Main) {
            others_ended(&local.server).await;
        }
    });
    state.count_lost(|| drop(runtime));
}

fn runtime(stale: &Arc<AtomicBool>) -> io::Result<LocalRuntime> {
    let stale = Arc::clone(stale);
    Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .on_thread_unpark(move || stale.store(true, Ordering::Relaxed))
        .build_local(LocalOptions::default())
}

/// Fires deadlines and resumes agents until the server ends.
async fn tick(index: usize, local: Rc<WorkerState>, drain: Rc<RefCell<Drain>>) {
    let mut sleep = pin!(tokio::time::sleep_until(local.clock.instant(0).into()));
    poll_fn(|cx: &mut Context<'_>| {
        local.server.listen(index, cx.waker());
        loop {
            let now = local.clock.refresh();
            local.look_back(now);
            if let Some((agent, ms)) = slow_future() {
                local.server.slow_turns.report(&local.server.engine, agent, ms, now.mono_ms);
            }
            let Some(latest_ms) = drain.borrow_mut().advance(&local, now) else {
                return Poll::Ready(());
            };
            #[cfg(feature = "metrics")]
            if let Some(observers) = &local.server.observers {
                observers.log_unlogged(false);
            }
            local.wheel.borrow_mut().expire(now.mono_ms);
            let worker = &mut local.scratch.borrow_mut().worker;
            let agents_ms = local.server.engine.tick(worker, now, cx.waker());
            let deadlines_ms = local.wheel.borrow().next_ms();
            let latest_ms = latest_ms.min(now.mono_ms + SLEEP_MS_MAX);
            let until_ms =
                [agents_ms, deadlines_ms].into_iter().flatten().fold(latest_ms, u64::min);
            local.plan(until_ms, cx.waker());
            sleep.as_mut().reset(local.clock.instant(until_ms).into());
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await;
}

/// Waits until the other workers have ended, in a worker that serves the signals or the operator.
async fn others_ended(server: &ServerState) {
    poll_fn(|cx: &mut Context<'_>| {
        server.listen_for_end(cx.waker());
        if server.has_one_worker() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// The stages of a worker's end: no new connections, after `drain_ms` no more calls and streams,
/// then the end.
struct Drain {
    accepting: Vec<JoinHandle<()>>,
    cut_ms: Option<u64>,
    end_ms: Option<u64>,
}

impl Drain {
    /// Advances the end, if it has started; returns when to call again, or `None` if the worker
    /// ends.
    fn advance(&mut self, local: &WorkerState, now: Now) -> Option<u64> {
        match local.server.stage() {
            Stage::Serving => return Some(u64::MAX),
            Stage::Draining => {}
            Stage::Ending => return None,
        }
        let cut_ms = *self.cut_ms.get_or_insert_with(|| {
            self.accepting.drain(..).for_each(|task| task.abort());
            local.wheel.borrow().wake_all();
            now.mono_ms.saturating_add(local.server.live.drain_ms())
        });
        if now.mono_ms < cut_ms {
            let open = (local.open.get() > 0).then_some(cut_ms);
            #[cfg(feature = "push")]
            let open = {
                let drain_ms = local.server.live.drain_ms();
                let look_ms = local.server.stays_for_webhooks(now, DrainTimes { cut_ms, drain_ms });
                look_ms.map(|look_ms| look_ms.min(cut_ms)).or(open)
            };
            return open;
        }
        let end_ms = *self.end_ms.get_or_insert_with(|| {
            local.server.cut();
            local.wheel.borrow().wake_all();
            now.mono_ms + LAST_WORDS_MS
        });
        (local.open.get() > 0 && now.mono_ms < end_ms).then_some(end_ms)
    }
}
