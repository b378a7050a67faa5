//! Refreshes the cards of remote agents while the server runs: each card is read again when it is
//! due, and a changed card is served.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use peregrine::{
    client::card::AgentCard,
    engine::{AgentChange, Agents},
    net::BackgroundThread,
};
use tokio::{task::JoinSet, time::sleep};

use super::{
    super::{eprint, warn},
    agents::{Loaded, ServedRemote},
};

/// Interval at which due cards are detected.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The running remote agents. When it is dropped, their cards are no longer refreshed.
pub struct RemoteCards {
    served: Arc<Mutex<ServedCards>>,
    /// `None`: the server has had no remote agent so far.
    refresher: Mutex<Option<BackgroundThread>>,
}

/// The cards of the running remote agents.
pub struct ServedCards(Vec<ServedCard>);

struct ServedCard {
    name: String,
    remote: ServedRemote,
    /// The card of the upstream as served; `None`: the card is unknown.
    card: Option<Arc<AgentCard>>,
    /// True: the last read failed, and a warning was printed.
    has_failed: bool,
}

impl RemoteCards {
    /// The cards of the remote agents among `agents`.
    pub fn of(agents: &[Loaded]) -> RemoteCards {
        let served = Arc::new(Mutex::new(ServedCards::of(agents)));
        RemoteCards { served, refresher: Mutex::default() }
    }

    /// The remote agents.
    pub fn remotes(&self) -> Vec<ServedRemote> {
        self.lock().remotes()
    }

    /// The cards, which do not change until the lock is dropped.
    pub fn lock(&self) -> MutexGuard<'_, ServedCards> {
        lock(&self.served)
    }

    /// Starts to refresh the cards of the server with these agents on a separate thread, if there
    /// are remote agents.
    pub fn watch(&self, agents: &Agents) {
        let mut refresher = self.refresher.lock().unwrap_or_else(PoisonError::into_inner);
        if refresher.is_some() || self.lock().0.is_empty() {
            return;
        }
        let rounds = refresh(Arc::clone(&self.served), agents.clone());
        match BackgroundThread::start_droppable("peregrine-cards", rounds) {
            Ok(started) => *refresher = Some(started),
            Err(error) => warn(&format!("cards of remote agents cannot be refreshed: {error}")),
        }
    }
}

fn lock(served: &Mutex<ServedCards>) -> MutexGuard<'_, ServedCards> {
    served.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads and serves due cards until the future is dropped.
async fn refresh(served: Arc<Mutex<ServedCards>>, agents: Agents) {
    loop {
        sleep(LOOK_EVERY).await;
        let due = lock(&served).remotes().into_iter().filter(|one| one.agent.is_card_due());
        let mut reads = JoinSet::new();
        for remote in due {
            reads.spawn(read(Arc::clone(&served), remote));
        }
        while reads.join_next().await.is_some() {}
        lock(&served).serve(&agents);
    }
}

/// Reads a card; only the first of consecutive errors is reported.
async fn read(served: Arc<Mutex<ServedCards>>, remote: ServedRemote) {
    let read = remote.agent.read_card().await;
    let mut cards = lock(&served);
    let is_same = |one: &&mut ServedCard| Arc::ptr_eq(&one.remote.agent, &remote.agent);
    let Some(served) = cards.0.iter_mut().find(is_same) else { return };
    let had_failed = std::mem::replace(&mut served.has_failed, read.is_err());
    if let (Err(error), false) = (read, had_failed) {
        let name = &served.name;
        warn(&format!("the card of the upstream agent {name} cannot be read: {error}"));
    }
}

impl ServedCards {
    fn of(agents: &[Loaded]) -> ServedCards {
        let served = |loaded: &Loaded| {
            let remote = loaded.remote.clone()?;
            let (name, card) = (loaded.profile.name.clone(), remote.agent.card());
            Some(ServedCard { name, card, remote, has_failed: false })
        };
        ServedCards(agents.iter().filter_map(served).collect())
    }

    fn remotes(&self) -> Vec<ServedRemote> {
        self.0.iter().map(|one| one.remote.clone()).collect()
    }

    /// Notes that these agents run now.
    pub fn note_running(&mut self, agents: &[Loaded]) {
        *self = ServedCards::of(agents);
    }

    /// Serves the cards that have changed.
    fn serve(&mut self, agents: &Agents) {
        for served in &mut self.0 {
            let card = served.remote.agent.card();
            if card.as_ref().map(Arc::as_ptr) == served.card.as_ref().map(Arc::as_ptr) {
                continue;
            }
            let json = |card: &Option<Arc<AgentCard>>| {
                card.as_ref().map(|card| card.raw_json().to_owned())
            };
            let is_other = json(&card) != json(&served.card);
            served.card = card;
            if !is_other {
                continue;
            }
            let profile = served.remote.profile(&served.name);
            match agents.change(vec![AgentChange::Describe(profile)]) {
                Ok(()) => eprint(&format!("peregrine: the card of {} has changed\n", served.name)),
                Err(error) => {
                    warn(&format!("the card of {} cannot be served: {error}", served.name))
                }
            }
        }
    }
}
