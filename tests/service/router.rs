//! A router: one service in front of several cores with the same agents.
//!
//! A task belongs to the core with the node number in the task's id; a foreign id belongs to the
//! core that a hash of the id selects. Handles carry the number of their core.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Poll, Waker},
};

use peregrine::{
    agent::{Agent, Profile},
    engine::{self, local_core, node_of},
    fault::{Fault, FaultKind},
    limits::Limits,
    model::{Call, List, RawText, Reply, TaskBuf},
    service::{
        AgentIndex, Answer, CallCx, Cursor, Each, Follow, Lifecycle, Outcome, Service, TickCx,
        WaitHandle,
    },
};

/// Agents and their profiles.
pub type Agents = Vec<(Profile, Arc<dyn Agent>)>;

pub struct Router {
    cores: Vec<Arc<dyn Service>>,
    /// The agents of each core; each core has the same ones.
    agents: Vec<engine::Agents>,
    /// The core of the next task without a core.
    next: AtomicUsize,
}

impl Router {
    /// A router over cores with the node numbers 0, 1 and so on.
    pub fn new(nodes: u16, workers: usize, agents: impl Fn() -> Agents) -> Arc<Router> {
        let core = |node| {
            // Each core has its own secret: the id alone is enough to read its node.
            let start = peregrine::net::start(workers).expect("random bits");
            local_core(&Limits::default(), agents(), Some(node), &start, None).expect("agents")
        };
        let (cores, agents) = (0..nodes).map(core).unzip();
        Arc::new(Router { cores, agents, next: AtomicUsize::new(0) })
    }

    /// Adds an agent to each core; all must give it the same index.
    pub fn add(&self, profile: &Profile, agent: &Arc<dyn Agent>) -> AgentIndex {
        let added = self.agents.iter().map(|agents| {
            let added = agents.add(profile.clone(), Arc::clone(agent));
            added.expect("a name that is free")
        });
        added.reduce(|one, other| if one == other { one } else { panic!("other agents") }).unwrap()
    }

    fn owner(&self, id: RawText<'_>) -> usize {
        let hash = || id.raw().iter().map(|byte| usize::from(*byte)).sum();
        node_of(id).map_or_else(hash, usize::from) % self.cores.len()
    }

    fn owner_of(&self, call: &Call<'_>) -> usize {
        match call {
            Call::Send(send) => match send.task_id.or(send.context_id) {
                Some(id) => self.owner(id),
                None => self.next.fetch_add(1, Relaxed) % self.cores.len(),
            },
            Call::Get(get) => self.owner(get.id),
            Call::Cancel(target) | Call::Subscribe(target) => self.owner(target.id),
            Call::List(_) | Call::Push(_) | Call::ExtendedCard => 0,
        }
    }

    /// Merges a page of each core, newest status first. The token of the next page has a part for
    /// each core: empty at the start, and [`END`] after the last task.
    fn list(
        &self,
        cx: &mut CallCx<'_>,
        list: &List<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        let tokens = self.read_token(list.page_token.unwrap_or_default())?;
        let (mut pages, mut total, mut page_size) = (Vec::new(), 0, 0);
        for (core, token) in self.cores.iter().zip(&tokens) {
            let mut page = page_of(&**core, cx, &List { page_token: of(token), ..*list })?;
            (total, page_size) = (total + page.total, page.page_size);
            if token == END {
                page = Page { next: END.to_owned(), ..Page::default() };
            }
            pages.push(page);
        }
        answer(Reply::PageStart);
        let mut shown = vec![0; pages.len()];
        for _ in 0..page_size {
            // A core with a used-up page may have a newer task than the others' next one.
            if pages.iter().zip(&shown).any(|(page, shown)| page.is_used_up(*shown)) {
                break;
            }
            let heads = (0..pages.len()).filter(|at| shown[*at] < pages[*at].tasks.len());
            let newest = heads.rev().max_by_key(|at| pages[*at].time_of(shown[*at]));
            let Some(at) = newest else { break };
            let (task, history, artifacts) = &pages[at].tasks[shown[at]];
            answer(Reply::PageTask { view: task.view(), history: *history, artifacts: *artifacts });
            shown[at] += 1;
        }
        let mut next = Vec::new();
        for (((core, page), token), shown) in self.cores.iter().zip(pages).zip(&tokens).zip(shown) {
            next.push(match shown {
                all if all == page.tasks.len() => page.next,
                0 => token.clone(),
                some => {
                    let page_size = Some(some as u32);
                    page_of(&**core, cx, &List { page_token: of(token), page_size, ..*list })?.next
                }
            });
        }
        let is_last = next.iter().all(|token| token == END);
        let next = if is_last { String::new() } else { next.join(".") };
        answer(Reply::PageEnd { next: &next, page_size, total });
        Ok(Outcome::Answered)
    }

    fn read_token(&self, token: &[u8]) -> Result<Vec<String>, Fault> {
        if token.is_empty() {
            return Ok(vec![String::new(); self.cores.len()]);
        }
        let token = std::str::from_utf8(token).unwrap_or_default();
        let tokens: Vec<String> = token.split('.').map(str::to_owned).collect();
        let is_valid = tokens.len() == self.cores.len();
        is_valid.then_some(tokens).ok_or_else(|| Fault::param("pageToken", "is none of ours"))
    }
}

/// In a token: the core has no more tasks.
const END: &str = "-";

/// The token for a core; a core without further tasks is queried for its total alone.
fn of(token: &str) -> Option<&[u8]> {
    Some(token.as_bytes()).filter(|token| *token != END.as_bytes())
}

/// A page of one core, stored while the others are queried.
#[derive(Default)]
struct Page {
    tasks: Vec<(TaskBuf, Option<u32>, bool)>,
    next: String,
    page_size: u32,
    total: u64,
}

impl Page {
    fn is_used_up(&self, shown: usize) -> bool {
        shown == self.tasks.len() && self.next != END
    }

    fn time_of(&self, at: usize) -> u64 {
        self.tasks[at].0.view().status().at_ms
    }
}

fn page_of(core: &dyn Service, cx: &mut CallCx<'_>, list: &List<'_>) -> Result<Page, Fault> {
    let mut page = Page::default();
    core.call(cx, Call::List(*list), &mut |reply| match reply {
        Reply::PageTask { view, history, artifacts } => {
            page.tasks.push((TaskBuf::of(view), history, artifacts));
        }
        Reply::PageEnd { next, page_size, total } => {
            let next = if next.is_empty() { END } else { next }.to_owned();
            (page.next, page.page_size, page.total) = (next, page_size, total);
        }
        Reply::PageStart | Reply::Task { .. } | Reply::Message { .. } | Reply::Push(_) => {}
    })?;
    Ok(page)
}

/// The outcome with the number of its core in its handles.
fn tagged(outcome: Outcome, core: u16) -> Outcome {
    match outcome {
        Outcome::Answered => Outcome::Answered,
        Outcome::Pending(mut wait) => {
            wait.handle.service = core;
            Outcome::Pending(wait)
        }
        Outcome::Stream { mut cursor, generation } => {
            cursor.handle.service = core;
            Outcome::Stream { cursor, generation }
        }
    }
}

impl Lifecycle for Router {
    fn tick(&self, cx: &mut TickCx<'_>, wake: &Waker) -> Option<u64> {
        self.cores.iter().filter_map(|core| core.tick(cx, wake)).min()
    }

    fn drain(&self) {
        self.cores.iter().for_each(|core| core.drain());
    }

    fn cut(&self) {
        self.cores.iter().for_each(|core| core.cut());
    }

    fn unfinished_tasks(&self) -> usize {
        self.cores.iter().map(|core| core.unfinished_tasks()).sum()
    }
}

impl Service for Router {
    fn call(
        &self,
        cx: &mut CallCx<'_>,
        call: Call<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        if let Call::List(list) = &call {
            return self.list(cx, list, answer);
        }
        let owner = self.owner_of(&call);
        let outcome = self.cores[owner].call(cx, call, answer)?;
        Ok(tagged(outcome, owner as u16))
    }

    fn poll(
        &self,
        wait: &mut WaitHandle,
        wake: &Waker,
        answer: &mut Answer<'_>,
    ) -> Poll<Result<Outcome, Fault>> {
        let owner = wait.handle.service;
        let Some(core) = self.cores.get(usize::from(owner)) else {
            return Poll::Ready(Err(FaultKind::TaskNotFound.into()));
        };
        core.poll(wait, wake, answer).map_ok(|outcome| tagged(outcome, owner))
    }

    fn follow(&self, cursor: &mut Cursor, wake: &Waker, each: &mut Each<'_>) -> Follow {
        let core = self.cores.get(usize::from(cursor.handle.service));
        core.map_or(Follow::Gone, |core| core.follow(cursor, wake, each))
    }

    fn profile(&self, agent: AgentIndex) -> Option<Arc<Profile>> {
        self.cores[0].profile(agent)
    }

    /// The last core is the last to get an added agent.
    fn agent(&self, name: &str) -> Option<AgentIndex> {
        self.cores.last()?.agent(name)
    }
}
