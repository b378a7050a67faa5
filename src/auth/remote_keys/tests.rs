//! Keys at a URL, under a clock that the test sets.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    task::Wake,
};

use super::*;
use crate::auth::jws::encode_url;

const ISSUER: &str = "https://issuer.example";

/// A set of one Ed25519 key with an unknown private key.
fn set(kid: &str, byte: u8) -> Vec<u8> {
    let x = encode_url(&[byte; 32]);
    format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","kid":"{kid}","x":"{x}"}}]}}"#).into_bytes()
}

fn at(mono_ms: u64) -> Now {
    Now { mono_ms, unix_ms: 1_700_000_000_000 + mono_ms }
}

fn remote() -> Arc<RemoteKeys> {
    let location = KeyLocation::Jwks("https://issuer.example/keys".to_owned());
    Arc::new(RemoteKeys::new(ISSUER, location, 600_000).unwrap())
}

fn next(keys: &Arc<RemoteKeys>, mono_ms: u64) -> Option<KeyFetch> {
    match keys.next_fetch(at(mono_ms), Waker::noop()) {
        NextFetch::Fetch(fetch) => Some(fetch),
        NextFetch::Wait(_) => None,
    }
}

fn due(keys: &Arc<RemoteKeys>, mono_ms: u64) -> u64 {
    match keys.next_fetch(at(mono_ms), Waker::noop()) {
        NextFetch::Fetch(fetch) => panic!("{fetch:?}"),
        NextFetch::Wait(until_ms) => until_ms,
    }
}

fn document(content: Vec<u8>) -> Result<FetchedDocument, String> {
    Ok(FetchedDocument { content, cache_control: None })
}

/// Fetches a set at this time.
fn fetch(keys: &Arc<RemoteKeys>, mono_ms: u64, content: Vec<u8>) {
    assert!(next(keys, mono_ms).unwrap().end(at(mono_ms), document(content)).is_none());
}

fn ready(keys: &Arc<RemoteKeys>, mono_ms: u64) -> Arc<TokenKeys> {
    match keys.poll(at(mono_ms), no_caller(Waker::noop())) {
        Poll::Ready(Ok(keys)) => keys,
        other => panic!("{other:?}"),
    }
}

fn only(keys: &TokenKeys) -> Arc<crate::auth::Grant> {
    let all = keys.fitting(None, crate::auth::JwsAlgorithm::EdDsa).collect::<Vec<_>>();
    Arc::clone(all[0].grant())
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Count>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn waiting_requests_share_one_key_fetch() {
    let keys = remote();
    let counts: Vec<Arc<Count>> = (0..20).map(|_| Arc::default()).collect();
    for count in &counts {
        let waker = Waker::from(Arc::clone(count));
        assert!(
            keys.poll(at(0), no_caller(&waker)).is_pending()
                && keys.poll(at(1), no_caller(&waker)).is_pending()
        );
    }
    let fetch = next(&keys, 1).unwrap();
    assert_eq!((fetch.url(), fetch.due_ms()), ("https://issuer.example/keys", 5_001));
    assert!(next(&keys, 2).is_none());
    assert!(fetch.end(at(9), document(set("a", 1))).is_none());
    assert!(counts.iter().all(|count| count.0.load(Ordering::Relaxed) == 1));
    assert_eq!(ready(&keys, 10).len(), 1);
    assert_eq!(due(&keys, 10), 600_009);
    assert_eq!(keys.status().fetched_unix_ms, Some(1_700_000_000_009));
}

#[test]
fn issuer_peer_waiters_max() {
    let keys = Arc::new(RemoteKeys::new("https://a", KeyLocation::OpenId, 1).unwrap());
    let wakers: Vec<Waker> =
        (0..2 * ISSUER_PEER_WAITERS_MAX).map(|_| Waker::from(Arc::new(Count::default()))).collect();
    let waits = |n: usize, address: &str| {
        let (wake, address) = (&wakers[n], Some(address.parse().unwrap()));
        keys.poll(at(0), KeyWaiter { wake, address }).is_pending()
    };
    // Addresses in the same network of 64 bits belong to the same peer.
    for n in 0..ISSUER_PEER_WAITERS_MAX {
        assert!(waits(n, &format!("2001:db8::{n:x}")), "{n}");
    }
    assert!(!waits(ISSUER_PEER_WAITERS_MAX, "2001:db8::1"));
    // A waiting request continues, and other peers have free slots.
    assert!(waits(0, "2001:db8::1") && waits(ISSUER_PEER_WAITERS_MAX, "192.0.2.1"));
}

/// A caller without an address.
fn no_caller(wake: &Waker) -> KeyWaiter<'_> {
    KeyWaiter { wake, address: None }
}

#[test]
fn issuer_waiters_max() {
    let keys = remote();
    let wakers: Vec<Waker> = (0..=1_024).map(|_| Waker::from(Arc::<Count>::default())).collect();
    let (last, rest) = wakers.split_last().unwrap();
    assert!(rest.iter().all(|waker| keys.poll(at(0), no_caller(waker)).is_pending()));
    assert!(matches!(
        keys.poll(at(0), no_caller(last)),
        Poll::Ready(Err(AuthRefusal::Unavailable { .. }))
    ));
    assert!(keys.poll(at(0), no_caller(&rest[0])).is_pending());
}

#[test]
fn requests_wait_at_most_issuer_wait_ms_for_keys() {
    // There is no fetcher.
    let keys = remote();
    assert!(keys.poll(at(10), no_caller(Waker::noop())).is_pending());
    assert!(keys.poll(at(5_009), no_caller(Waker::noop())).is_pending());
    assert_eq!(keys.poll(at(5_010), no_caller(Waker::noop())).map(Result::err), unreadable(1));
    // The fetcher never returns, or returns too late.
    let keys = remote();
    let count = Arc::<Count>::default();
    assert!(keys.poll(at(10), no_caller(&Waker::from(Arc::clone(&count)))).is_pending());
    let lost = next(&keys, 10).unwrap();
    assert_eq!(due(&keys, 5_009), 5_010);
    assert_eq!(due(&keys, 5_010), 6_010);
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    assert!(lost.end(at(5_011), document(set("a", 1))).is_none());
    assert_eq!(keys.poll(at(5_011), no_caller(Waker::noop())).map(Result::err), unreadable(1));
    assert_eq!(keys.status().problem.as_deref(), Some("the fetch timed out"));
    fetch(&keys, 6_010, set("a", 1));
    assert_eq!(ready(&keys, 6_010).len(), 1);
}

#[test]
fn issuer_retry_doubles_to_its_limit_and_old_keys_stay_valid() {
    let keys = remote();
    fetch(&keys, 0, set("a", 1));
    let grant = only(&ready(&keys, 0));
    let mut now_ms = 600_000;
    for pause_ms in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000] {
        assert!(next(&keys, now_ms - 1).is_none());
        let end = next(&keys, now_ms).unwrap().end(at(now_ms), Err("it is down".to_owned()));
        assert!(end.is_none());
        assert_eq!(due(&keys, now_ms), now_ms + pause_ms);
        now_ms += pause_ms;
        assert_eq!(ready(&keys, now_ms).len(), 1);
    }
    assert_eq!(keys.status().problem.as_deref(), Some("it is down"));
    fetch(&keys, now_ms, set("a", 1));
    assert_eq!(keys.status().problem, None);
    assert!(!grant.is_withdrawn() && Arc::ptr_eq(&only(&ready(&keys, now_ms)), &grant));
    assert_eq!(due(&keys, now_ms), now_ms + 600_000);
}

#[test]
fn removed_issuer_key_withdraws_its_grant() {
    let keys = remote();
    fetch(&keys, 0, set("a", 1));
    let first = only(&ready(&keys, 0));
    // A renamed key is the same key.
    fetch(&keys, 600_000, set("b", 1));
    assert!(Arc::ptr_eq(&only(&ready(&keys, 600_000)), &first));
    fetch(&keys, 1_200_000, set("b", 2));
    assert!(first.is_withdrawn());
    let second = only(&ready(&keys, 1_200_000));
    assert!(!second.is_withdrawn());
    // An empty set is valid.
    fetch(&keys, 1_800_000, b"{\"keys\":[]}".to_vec());
    assert!(second.is_withdrawn() && ready(&keys, 1_800_000).is_empty());
    // The same key again admits new requests; a released caller stays released.
    fetch(&keys, 2_400_000, set("b", 2));
    assert!(!only(&ready(&keys, 2_400_000)).is_withdrawn() && second.is_withdrawn());
    let last = only(&ready(&keys, 2_400_000));
    keys.close();
    assert!(last.is_withdrawn());
    assert_eq!(keys.poll(at(0), no_caller(Waker::noop())).map(Result::err), unreadable(3_000));
}

/// The refusal when keys cannot be fetched, with the time of the next attempt.
fn unreadable(retry_s: u32) -> Poll<Option<AuthRefusal>> {
    Poll::Ready(Some(AuthRefusal::Unavailable { why: UNREADABLE, retry_s }))
}

#[test]
fn unknown_kids_cause_one_fetch_per_issuer_kid_ms() {
    let keys = remote();
    fetch(&keys, 0, set("a", 1));
    let seen = ready(&keys, 0);
    let newer = |seen: &Arc<TokenKeys>, kid: &str, ms| {
        keys.poll_newer(seen, kid, at(ms), no_caller(Waker::noop()))
    };
    assert!(newer(&seen, "b", 1).is_pending() && newer(&seen, "c", 2).is_pending());
    fetch(&keys, 2, set("b", 2));
    // The waiting caller sees the new keys.
    let Poll::Ready(Ok(second)) = newer(&seen, "b", 3) else { panic!("no newer keys") };
    assert!(second.has_name("b"));
    // A kid that the fetch did not contain is wrong; a kid that was seen later is undecided.
    let refused = |kid: &str, ms| newer(&second, kid, ms).map(|newer| newer.unwrap_err());
    assert_eq!(refused("c", 4), Poll::Ready(AuthRefusal::Wrong(UNKNOWN_KID)));
    let later = |retry_s| Poll::Ready(AuthRefusal::Unavailable { why: LATER_KID, retry_s });
    assert_eq!((refused("d", 5), refused("d", 59_001)), (later(60), later(1)));
    // The next fetch is possible after the pause, even if new kids were seen in the pause, and
    // decides.
    assert!(newer(&second, "e", 60_001).is_pending());
    fetch(&keys, 60_002, set("d", 3));
    assert!(ready(&keys, 60_002).has_name("d"));
    let third = ready(&keys, 60_002);
    for kid in ["e", "b", "c"] {
        let refused = newer(&third, kid, 60_003).map(|newer| newer.unwrap_err());
        let expected = match kid {
            // The fetch was for this kid, or the issuer has removed it.
            "e" | "b" => Poll::Ready(AuthRefusal::Wrong(UNKNOWN_KID)),
            _ => later(60),
        };
        assert_eq!(refused, expected, "{kid}");
    }
    // While the issuer is down the answer is unavailable.
    assert!(newer(&third, "x", 400_000).is_pending());
    let failed = next(&keys, 400_000).unwrap().end(at(400_001), Err("it is down".to_owned()));
    assert!(failed.is_none());
    assert_eq!(newer(&third, "x", 400_002).map(Result::err), unreadable(1));
    // There is no fetcher: callers wait no longer than for the first keys.
    assert!(newer(&third, "x", 500_000).is_pending() && newer(&third, "x", 504_999).is_pending());
    assert!(newer(&third, "x", 505_000).is_ready());
}

#[test]
fn issuer_kids_asked_max() {
    let keys = remote();
    fetch(&keys, 0, set("a", 1));
    let seen = ready(&keys, 0);
    let newer = |seen: &Arc<TokenKeys>, kid: usize, ms| {
        keys.poll_newer(seen, &kid.to_string(), at(ms), no_caller(Waker::noop()))
    };
    for kid in 0..2 * ISSUER_KIDS_ASKED_MAX {
        assert!(newer(&seen, kid, 1).is_pending());
    }
    fetch(&keys, 2, set("b", 2));
    let seen = ready(&keys, 2);
    for kid in 0..2 * ISSUER_KIDS_ASKED_MAX {
        let Poll::Ready(Err(refused)) = newer(&seen, kid, 3) else { panic!("{kid}") };
        let is_wrong = matches!(refused, AuthRefusal::Wrong(_));
        assert_eq!(is_wrong, kid < ISSUER_KIDS_ASKED_MAX, "{kid} {refused:?}");
    }
}

#[test]
fn cache_control_is_clamped_to_issuer_refresh_limits() {
    for (cache_control, ms) in [
        (None, 600_000),
        (Some("public"), 600_000),
        (Some("max-age=3600"), 3_600_000),
        (Some("public, MAX-AGE=\"120\", must-revalidate"), 120_000),
        (Some("max-age=0"), 60_000),
        (Some("no-store"), 60_000),
        (Some("no-cache, max-age=3600"), 60_000),
        (Some("max-age=99999999999999999999"), 600_000),
        (Some("max-age=18446744073709551615"), 86_400_000),
        (Some("max-age=-1, s-maxage=5"), 600_000),
    ] {
        let keys = remote();
        let cache_control = cache_control.map(str::to_owned);
        let fetched = Ok(FetchedDocument { content: set("a", 1), cache_control });
        assert!(next(&keys, 0).unwrap().end(at(0), fetched).is_none());
        assert_eq!(due(&keys, 0), ms);
    }
}

#[test]
fn invalid_key_set_leaves_issuer_keys_unchanged() {
    let keys = remote();
    fetch(&keys, 0, set("a", 1));
    let seen = ready(&keys, 0);
    let long = [set("b", 2), vec![b' '; 256 * 1024]].concat();
    let many = format!("{{\"keys\":[{}]}}", vec!["{}"; 101].join(","));
    let twice = b"{\"keys\":[],\"keys\":[]}".to_vec();
    let mut now_ms = 600_000;
    for bad in [
        b"".to_vec(),
        b"{}".to_vec(),
        b"[]".to_vec(),
        b"<html>".to_vec(),
        long,
        many.into_bytes(),
        twice,
        b"{\"keys\":{}}".to_vec(),
        b"{\"keys\":[".to_vec(),
    ] {
        fetch(&keys, now_ms, bad);
        assert!(keys.status().problem.is_some() && Arc::ptr_eq(&ready(&keys, now_ms), &seen));
        now_ms = due(&keys, now_ms);
    }
    // Keys of other kinds are ignored.
    fetch(
        &keys,
        now_ms,
        br#"{"keys":[7,{"kty":"oct","k":"AAAA"},{"kty":"EC","crv":"P-256K"}]}"#.to_vec(),
    );
    assert!(ready(&keys, now_ms).is_empty());
}

#[test]
fn metadata_must_match_issuer_and_not_name_plain_http() {
    let of = |issuer: &str| RemoteKeys::new(issuer, KeyLocation::OpenId, 600_000).map(Arc::new);
    let metadata = |issuer: &str, uri: &str| {
        document(format!(r#"{{"issuer":"{issuer}","jwks_uri":"{uri}"}}"#).into_bytes())
    };
    let good = "https://keys.example/k";
    for issuer in ["https://a.example", "https://a.example/", "https://a.example/t/x"] {
        let keys = of(issuer).unwrap();
        let first = next(&keys, 0).unwrap();
        let base = issuer.trim_end_matches('/');
        assert_eq!(first.url(), format!("{base}/.well-known/openid-configuration"));
        let second = first.end(at(1_000), metadata(issuer, good)).unwrap();
        // Both fetches share one deadline.
        assert_eq!((second.url(), second.due_ms()), (good, 5_000));
        assert!(second.end(at(2_000), document(set("a", 1))).is_none());
        assert_eq!(ready(&keys, 2_000).len(), 1);
    }
    let issuer = "https://a.example";
    for bad in [
        metadata("https://a.example/", good),
        metadata("https://b.example", good),
        metadata(issuer, "http://keys.example/k"),
        metadata(issuer, "http://127.0.0.1/k"),
        metadata(issuer, "file:///etc/passwd"),
        metadata(issuer, "https://user:pw@keys.example/k"),
        metadata(issuer, "/k"),
        metadata(issuer, ""),
        document(format!(r#"{{"issuer":"{issuer}"}}"#).into_bytes()),
        document(format!(r#"{{"jwks_uri":"{good}"}}"#).into_bytes()),
        document(set("a", 1)),
        document(b"{".to_vec()),
        Err("it is down".to_owned()),
    ] {
        let keys = of(issuer).unwrap();
        assert!(next(&keys, 0).unwrap().end(at(0), bad.clone()).is_none(), "{bad:?}");
        assert!(keys.status().problem.is_some() && keys.status().keys.is_none());
    }
    // Plain HTTP throughout is allowed on this machine only.
    let keys = of("http://127.0.0.1:8080").unwrap();
    let fetch = next(&keys, 0).unwrap();
    assert!(fetch.may_go_to("http://[::1]/k") && fetch.may_go_to(good));
    assert!(!fetch.may_go_to("http://keys.example/k"));
    for (issuer, why) in [
        ("http://a.example", KeyLocationError::PlainHttp),
        ("a.example", KeyLocationError::Url),
        ("", KeyLocationError::Url),
        ("https://a.example?x", KeyLocationError::Url),
        ("ftp://a.example", KeyLocationError::Url),
    ] {
        assert_eq!(of(issuer).unwrap_err(), why, "{issuer}");
    }
}

#[test]
fn issuer_keys_max() {
    let key = |byte: usize| {
        let x = encode_url(&[byte as u8; 32]);
        format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{x}"}}"#)
    };
    let read = |count: usize| {
        let keys: Vec<String> = (0..count).map(key).collect();
        TokenKeys::read_set(format!(r#"{{"keys":[{}]}}"#, keys.join(",")).as_bytes())
    };
    assert_eq!(read(100).unwrap().len(), 100);
    assert_eq!(read(101).unwrap_err(), crate::auth::TokenKeysError::TooMany);
}
