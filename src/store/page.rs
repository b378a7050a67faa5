//! Paging through a scope's tasks, newest status change first (A2A 1.0 §3.1.4).
//!
//! A page token is the stamp of the page's last task, so a task keeps its position until its status
//! changes; then it moves to the front, before the position of every token. Unchanged tasks are
//! neither lost nor repeated nor reordered. A page ends early when its tasks are large, and earlier
//! while many answers are pending. The cost of a page depends on its own size, not on the size of
//! the store or the context: only small contexts are scanned.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{
    Store,
    group::floor_of,
    id::unhex,
    shard::{Context, Orders, Shard},
};
use crate::{
    fault::Fault,
    limits::Limits,
    model::{List, Task, TaskState, TaskView},
    service::Scope,
};

/// Default number of tasks on a page (A2A 1.0 §3.1.4).
const PAGE_DEFAULT: u32 = 50;
/// Maximum number of tasks on a page (A2A 1.0 §3.1.4).
pub(super) const PAGE_MAX: u32 = 100;
/// Domains of [`super::Keys::code`] for page tokens.
const TOKEN: u32 = u32::MAX - 1;
const VEIL: u32 = u32::MAX - 5;
/// Hexadecimal digits of a token: a stamp and a check of the same length.
const TOKEN_LEN: usize = 32;

/// The start of the next page; ASCII, empty on the last page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageToken {
    text: [u8; TOKEN_LEN],
    len: u8,
}

impl PageToken {
    pub(super) const END: PageToken = PageToken { text: [0; TOKEN_LEN], len: 0 };

    /// The text for `nextPageToken`.
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.text[..usize::from(self.len)]).unwrap_or_default()
    }
}

/// The data of a page other than its tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Token of the next page.
    pub next: PageToken,
    /// The page size that was applied.
    pub page_size: u32,
    /// Matching tasks before paging.
    pub total: u64,
    /// The newest record of the tasks on the page; 0: there is no journal.
    pub record: u64,
}

/// The size limit of a page; only its last task may exceed it.
///
/// The limit is needed because a small request makes the server hold a page for a client that may
/// not read it. All pages together fill at most a quarter of `buffers_bytes_max`; each page may
/// take an eighth of the free part.
pub(super) struct Bound {
    answer_bytes_max: usize,
    pages_bytes_max: usize,
}

impl Bound {
    pub(super) fn new(limits: &Limits) -> Bound {
        Bound {
            answer_bytes_max: limits.answer_bytes_max,
            pages_bytes_max: limits.buffers_bytes_max / 4,
        }
    }

    fn bytes(&self, held_bytes: usize) -> usize {
        let remaining = self.pages_bytes_max.saturating_sub(held_bytes);
        self.answer_bytes_max.min(remaining / 8)
    }
}

/// The newest tasks below a stamp, while they are collected.
pub(super) struct Best {
    /// `(stamp, shard, slot)`, the oldest on top.
    pub(super) heap: BinaryHeap<Reverse<(u64, u32, u32)>>,
    pub(super) most: usize,
}

impl Best {
    /// False when neither this stamp nor a lower one can be among the newest.
    fn add(&mut self, stamp: u64, at: usize, index: u32) -> bool {
        let task = Reverse((stamp, at as u32, index));
        if self.heap.len() < self.most {
            self.heap.push(task);
        } else if let Some(mut worst) = self.heap.peek_mut() {
            if worst.0.0 > stamp {
                return false;
            }
            *worst = task;
        }
        true
    }
}

/// The range of stamps and the states that a call requests.
pub(super) struct Filter {
    pub(super) scope: Scope,
    pub(super) status: Option<TaskState>,
    pub(super) floor: u64,
    pub(super) below: u64,
}

/// A context, and its id.
#[derive(Clone, Copy)]
struct NamedContext<'c> {
    context: Context,
    id: &'c [u8],
}

impl Store {
    /// Calls `each` with the tasks of one page of a scope, newest status change first.
    ///
    /// Shards are read one after another: the total is not a snapshot. Only `context_id`, `status`,
    /// `after_ms`, `page_size` and `page_token` of `list` are used. `held_bytes` are the bytes of
    /// buffers in use: the more, the smaller the page.
    ///
    /// # Errors
    /// Invalid parameters when the token is not from this store, or the page size is 0.
    pub fn list(
        &self,
        scope: Scope,
        list: &List<'_>,
        held_bytes: usize,
        each: &mut dyn FnMut(TaskView<'_>),
    ) -> Result<Page, Fault> {
        let page_size = list.page_size.unwrap_or(PAGE_DEFAULT).min(PAGE_MAX);
        if page_size == 0 {
            return Err(Fault::param("pageSize", "must be between 1 and 100"));
        }
        let filter = Filter {
            scope,
            status: list.status,
            floor: list.after_ms.map_or(0, floor_of),
            below: match list.page_token.filter(|token| !token.is_empty()) {
                None => u64::MAX,
                Some(token) => self.read_token(scope, token)?,
            },
        };
        let most = page_size as usize + 1;
        let mut best = Best { heap: BinaryHeap::with_capacity(most), most };
        let total = match list.context_id {
            Some(context_id) => self.best_of_context(context_id.raw(), &filter, &mut best),
            None => {
                let best_of = |at| match self.lock(at).scopes.orders(scope) {
                    Some(orders) => best_of_orders(at, orders, &filter, &mut best),
                    None => 0,
                };
                let own = |at: &usize| self.own_shard(scope, *at) == *at;
                (0..self.sharding.shards()).filter(own).map(best_of).sum()
            }
        };
        let mut found = best.heap.into_sorted_vec();
        let is_more = found.len() > page_size as usize;
        found.truncate(page_size as usize);
        let mut next = match found.last() {
            Some(Reverse((stamp, ..))) if is_more => self.token(scope, *stamp),
            Some(_) | None => PageToken::END,
        };
        let (mut shown, mut remaining, most) = (0, found.len(), self.page_bound.bytes(held_bytes));
        let mut record = 0;
        for Reverse((stamp, at, index)) in found {
            let shard = self.lock(at as usize);
            // After its shard was read, the task may have a new status, or its slot may have
            // another task. The current task of the slot is shown if it matches.
            let slot = shard.slab.slot(index).filter(|slot| slot.scope == scope);
            let task = slot.and_then(|_| shard.slab.stored(index)).filter(|task| {
                list.status.is_none_or(|status| status == task.state())
                    && list
                        .context_id
                        .is_none_or(|context_id| context_id.raw() == task.context_id())
            });
            if let Some(task) = task {
                each(task.view());
                record = record.max(task.record());
                shown += weight(&task, list);
            }
            remaining -= 1;
            // A2A 1.0 §3.1.4: a page may hold fewer tasks than requested.
            if remaining > 0 && shown > most {
                next = self.token(scope, stamp);
                break;
            }
        }
        Ok(Page { next, page_size, total, record })
    }

    /// The newest tasks of one context: from its orders if it has many tasks, else by a scan.
    fn best_of_context(&self, context_id: &[u8], filter: &Filter, best: &mut Best) -> u64 {
        let (at, context) = self.context(filter.scope, context_id);
        let shard = self.lock(at);
        match shard.large_context(context.hash) {
            Some(orders) => best_of_orders(at, orders, filter, best),
            None => best_of_few(at, &shard, NamedContext { context, id: context_id }, filter, best),
        }
    }

    pub(super) fn token(&self, scope: Scope, stamp: u64) -> PageToken {
        let mut text = [0; TOKEN_LEN];
        let check = self.check(scope, stamp);
        let value = u128::from(stamp ^ self.veil(check)) << 64 | u128::from(check);
        for (at, digit) in text.iter_mut().enumerate() {
            let nibble = (value >> (4 * (TOKEN_LEN - 1 - at))) as u8 & 15;
            *digit = if nibble < 10 { b'0' + nibble } else { b'a' - 10 + nibble };
        }
        PageToken { text, len: TOKEN_LEN as u8 }
    }

    pub(super) fn read_token(&self, scope: Scope, token: &[u8]) -> Result<u64, Fault> {
        let stamp = token.split_at_checked(TOKEN_LEN / 2).and_then(|(stamp, check)| {
            let check = (check.len() == TOKEN_LEN / 2).then(|| unhex(check)).flatten()?;
            let stamp = unhex(stamp)? ^ self.veil(check);
            (self.check(scope, stamp) == check).then_some(stamp)
        });
        stamp.ok_or_else(|| Fault::param("pageToken", "is not a page token of this server"))
    }

    fn check(&self, scope: Scope, stamp: u64) -> u64 {
        self.keys.code(TOKEN, [stamp, scope.bits()])
    }

    /// The mask that hides a stamp, since a stamp would reveal the number of status changes. It is
    /// derived from the check, as in RFC 5297.
    fn veil(&self, check: u64) -> u64 {
        self.keys.code(VEIL, [check, 0])
    }
}

/// Approximate bytes of a task in an answer.
fn weight(task: &Task, list: &List<'_>) -> usize {
    if list.include_artifacts || list.history.is_some_and(|most| most > 0) {
        return task.view().bytes();
    }
    task.view().status().message.map_or(0, |message| message.0.len())
}

/// Adds the candidates of a context without orders; returns the number of its matching tasks.
fn best_of_few(
    at: usize,
    shard: &Shard,
    of: NamedContext<'_>,
    filter: &Filter,
    best: &mut Best,
) -> u64 {
    let mut total = 0;
    for index in shard.context(of.context, of.id) {
        let slot = &shard.slab[index];
        if slot.stamp < filter.floor {
            break;
        }
        let is_in = |task: &Task| {
            slot.scope == filter.scope
                && filter.status.is_none_or(|status| status == task.state())
                && task.context_id() == of.id
        };
        if !slot.task.get().is_some_and(is_in) {
            continue;
        }
        total += 1;
        if slot.stamp < filter.below {
            best.add(slot.stamp, at, index);
        }
    }
    total
}

/// Adds the candidates in the orders of a shard; returns the number of their matching tasks.
pub(super) fn best_of_orders(at: usize, orders: &Orders, filter: &Filter, best: &mut Best) -> u64 {
    let mut total = 0;
    for state in TaskState::ALL {
        if filter.status.is_some_and(|status| status != state) {
            continue;
        }
        let order = &orders[state as usize];
        if order.len() == 0 {
            continue;
        }
        total += order.since(filter.floor) as u64;
        for (stamp, index) in order.newest(filter.below) {
            if stamp < filter.floor || !best.add(stamp, at, index) {
                break;
            }
        }
    }
    total
}
