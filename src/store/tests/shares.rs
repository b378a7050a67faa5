//! The share of each caller of the tasks that run.

use super::*;
use crate::service::{
    RunningShare,
    quota::{CallerAccount, RunningPlace},
};

const OWNER: OwnerIndex = OwnerIndex(3);

fn of_owner(bits: u128, share: Option<&RunningShare>) -> NewTask<'_> {
    NewTask { scope: Scope { owner: OWNER, ..AGENT }, context_id: None, share, ..new(bits) }
}

fn commit(store: &Store, reserved: &Reserved<'_>, state: TaskState) -> TaskKey {
    let mut events = EventBuf::default();
    events.push(&status(state));
    let key = reserved.key();
    store.commit_new(reserved, Generation::V1, said(9).view(), &events, NOW, |_| key).unwrap()
}

#[test]
fn a_task_of_an_owner_counts_from_its_reservation_until_it_ends() {
    let store = Store::new(&Limits::default(), 7);
    let two = RunningShare::of_owner(2);
    let reserve = |bits| store.reserve(of_owner(bits, Some(&two)), NOW);
    let (first, second) = (reserve(1).unwrap(), reserve(2).unwrap());
    assert_eq!(reserve(3).err(), Some(Refused::ShareTaken(2)));
    drop(first);
    let kept = reserve(4).unwrap().keep();
    assert_eq!(reserve(5).err(), Some(Refused::ShareTaken(2)));
    store.give_back(kept);
    let kept = reserve(6).unwrap().keep();
    let key = store.reopen(kept, |reserved| commit(&store, reserved, TaskState::Working));
    let done = commit(&store, &second, TaskState::Completed);
    drop(second);
    assert_eq!(store.spaces.running.count(OWNER), 1);
    assert!(reserve(7).is_ok());
    apply(&store, key, &status(TaskState::InputRequired)).unwrap().unwrap();
    assert_eq!(store.spaces.running.count(OWNER), 1);
    apply(&store, key, &status(TaskState::Completed)).unwrap().unwrap();
    assert_eq!(apply(&store, done, &status(TaskState::Failed)), Some(Err(Refused::Terminal)));
    assert_eq!(store.spaces.running.count(OWNER), 0);
    // Who has no share is counted as well: it may get one.
    let all = [store.reserve(of_owner(8, None), NOW), store.reserve(of_owner(9, None), NOW)];
    assert_eq!(reserve(10).err(), Some(Refused::ShareTaken(2)));
    drop(all);
    assert_eq!(store.spaces.running.count(OWNER), 0);
}

#[test]
fn what_gets_no_room_does_not_count() {
    let limits = Limits { tasks_max: 2, task_bytes_max: 1 << 16, ..Limits::default() };
    let store = Store::new(&limits, 7);
    let share = RunningShare::of_owner(9);
    let chosen = NewTask { chosen_id: Some(b"mine"), ..of_owner(1, Some(&share)) };
    let first = store.reserve(chosen, NOW).unwrap();
    assert_eq!(store.reserve(chosen, NOW).err(), Some(Refused::Taken));
    let second = store.reserve(of_owner(2, Some(&share)), NOW).unwrap();
    assert_eq!(store.reserve(of_owner(3, Some(&share)), NOW).err(), Some(Refused::Full));
    assert_eq!(store.spaces.running.count(OWNER), 2);
    let none = EventBuf::default();
    let large = said(1 << 16);
    let refused = store.commit_new(&second, Generation::V1, large.view(), &none, NOW, |_| ());
    assert_eq!(refused.err(), Some(Refused::TooLarge));
    drop((first, second));
    assert_eq!(store.spaces.running.count(OWNER), 0);
}

#[test]
fn a_task_of_nobody_counts_in_the_account_of_its_caller() {
    let store = Store::new(&Limits::default(), 7);
    let account = Arc::new(CallerAccount::default());
    let share = RunningShare { most: 2, account: Some(Arc::clone(&account)) };
    let reserve = |bits| store.reserve(NewTask { share: Some(&share), ..new(bits) }, NOW);
    let is_free = || RunningPlace::take(&account, 2).is_some();
    let (first, second) = (reserve(1).unwrap(), reserve(2).unwrap());
    assert_eq!(reserve(3).err(), Some(Refused::ShareTaken(2)));
    // It ends when it is stored; it is dropped; it is kept, and dropped.
    commit(&store, &first, TaskState::Completed);
    drop(second);
    let kept = reserve(4).unwrap().keep();
    let held = reserve(5).unwrap();
    assert!(!is_free());
    store.give_back(kept);
    assert!(is_free());
    let key = commit(&store, &held, TaskState::Working);
    store.update(key, NOW, |edit| edit.keep(b"of the agent")).unwrap().unwrap();
    let last = reserve(6).unwrap();
    assert!(!is_free());
    apply(&store, key, &status(TaskState::Canceled)).unwrap().unwrap();
    assert!(is_free());
    drop(last);
    let both = [reserve(7).is_ok(), reserve(8).is_ok()];
    assert_eq!((both, Arc::strong_count(&account)), ([true; 2], 2));
}
