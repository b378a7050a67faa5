//! A cache of agent cards between calls (the command line's specification, §10.1; RFC 9111).
//!
//! Invariant: a card is stored only if its server allows it, together with the caching fields of
//! its response. A fresh card is used without a request; a stale card is revalidated. The cache
//! stores nothing secret: it skips a card that was requested with other fields than a public card
//! needs, and a card from an unverified server (`--insecure`). The file name of a card depends on
//! the trusted authorities and the client's certificate. A document that is not a card is not
//! stored. A cache that cannot be read or written counts as empty.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    task::{Context, Poll},
};

use peregrine::{
    client::{
        CARD_BYTES_MAX, HttpMethod, HttpOrigin, HttpRequest, HttpResponse, HttpUrl, Tick,
        Transport, TransportError,
        card::{AgentCard, CardFreshness, card_urls},
    },
    service::Now,
};
use ring::digest;
use serde::{Deserialize, Serialize};

use super::{
    super::{
        eprint,
        failure::CommandFailure,
        redaction::Redaction,
        reference::{CardReference, is_loopback},
    },
    Invocation,
};

/// The folder, inside the user's configuration folder.
const FOLDER: &str = "cards";
/// Maximum number of stored cards; the oldest is removed first.
const CARDS_MAX: usize = 64;
/// Fields that a request for a public card may have.
const PUBLIC_FIELDS: [&str; 6] = [
    "accept",
    "accept-encoding",
    "a2a-version",
    "user-agent",
    "if-none-match",
    "if-modified-since",
];
/// Hex digits of a file's name.
const NAME_DIGITS: usize = 32;
/// The response fields that give a card's lifetime and its validators.
const CACHING_FIELDS: [&str; 5] = ["age", "cache-control", "etag", "expires", "last-modified"];

/// The cache entry of one agent's card.
pub struct AgentCardCache {
    folder: PathBuf,
    /// The possible URLs of the card.
    urls: Vec<HttpUrl>,
    /// True: each use revalidates the card.
    revalidates: bool,
    /// The trusted authorities and the client's certificate; the card may depend on them.
    identity: String,
    /// `Some`: each use of the cache is reported on stderr, redacted by this value.
    shown: Option<Redaction>,
}

impl AgentCardCache {
    /// The cache for the agent of a call; `None`: its card is a file, or caching is off. A command
    /// that requests the card itself, checks the agent or sends credentials to it revalidates the
    /// card each time. So does a call to this machine, where different agents may use the same
    /// address.
    ///
    /// # Errors
    /// A [`CommandFailure`] of usage: an invalid setting.
    pub fn of(on: &Invocation<'_>) -> Result<Option<AgentCardCache>, CommandFailure> {
        let settings = &on.settings;
        let reference = CardReference::parse(settings.text("agent-card").unwrap_or_default())?;
        let (CardReference::Origin(url) | CardReference::Url(url)) = reference else {
            return Ok(None);
        };
        let (Some(folder), Ok(url)) = (&settings.folder, HttpOrigin::parse(&url)) else {
            return Ok(None);
        };
        // A server without a verified certificate may be any host.
        if !settings.is_on("card-cache")? || settings.is_on("insecure")? {
            return Ok(None);
        }
        let revalidates = on.path.starts_with("card ")
            || matches!(on.path, "conformance" | "auth login")
            || is_loopback(url.origin.host());
        let files = ["ca", "cert"].into_iter().flat_map(|name| settings.list(name).chain([""]));
        let identity: String = files.flat_map(|file| [file, "\0"]).collect();
        let shown = settings.is_on("debug")?.then(|| settings.redaction());
        let (folder, urls) = (folder.join(FOLDER), card_urls(&url));
        Ok(Some(AgentCardCache { folder, urls, revalidates, identity, shown }))
    }

    /// The URL and the file of the requested card, if a request is for a card.
    fn locate(&self, request: &HttpRequest<'_>) -> Option<(String, PathBuf)> {
        let mut urls = self.urls.iter();
        let is_requested =
            |url: &&HttpUrl| url.origin == *request.origin && url.path == request.target;
        // The card for authenticated callers may be at the same URL.
        let is_plain = |name: &str| PUBLIC_FIELDS.iter().any(|one| one.eq_ignore_ascii_case(name));
        let is_public = request.fields.iter().all(|(name, _)| is_plain(name));
        let is_get = request.method == HttpMethod::Get;
        let url = urls.find(is_requested).filter(|_| is_get && is_public)?.to_string();
        let key = format!("{url}\0{}", self.identity);
        let digest = digest::digest(&digest::SHA256, key.as_bytes());
        let bytes = digest.as_ref().iter().take(NAME_DIGITS / 2);
        let name: String = bytes.map(|byte| format!("{byte:02x}")).collect();
        Some((url, self.folder.join(format!("{name}.json"))))
    }
}

/// A cached card.
#[derive(Clone, Deserialize, Serialize)]
pub struct CachedCard {
    /// The URL of the card.
    url: String,
    /// When the server sent the card, in ms since the Unix epoch.
    sent_at_unix_ms: u64,
    /// The caching fields of the response.
    fields: BTreeMap<String, String>,
    /// The card.
    card: String,
}

impl CachedCard {
    fn read(path: &Path, url: &str) -> Option<CachedCard> {
        // JSON escapes can make the file several times as long as the card.
        let is_ours = fs::metadata(path).ok()?.len() <= 8 * CARD_BYTES_MAX as u64;
        let cached: CachedCard =
            serde_json::from_slice(&fs::read(path).ok().filter(|_| is_ours)?).ok()?;
        (cached.url == url && cached.is_card()).then_some(cached)
    }

    fn is_card(&self) -> bool {
        AgentCard::read(self.card.as_bytes()).is_ok()
    }

    fn freshness(&self) -> CardFreshness {
        let sent_at = Now { mono_ms: 0, unix_ms: self.sent_at_unix_ms };
        CardFreshness::of(|name| self.fields.get(name).map(String::as_bytes), sent_at)
    }

    /// Stores the card, and removes the oldest card if there are too many.
    fn write(&self, path: &Path) -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(folder)?;
        let draft = folder.join(format!(".{}", std::process::id()));
        let _ = fs::remove_file(&draft);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(&draft)?.write_all(&serde_json::to_vec(self)?)?;
        fs::rename(&draft, path)?;
        let mut all: Vec<_> = fs::read_dir(folder)?
            .flatten()
            .filter(|entry| is_cache_file_name(&entry.file_name()))
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        all.sort_unstable();
        let too_many = all.len().saturating_sub(CARDS_MAX);
        all.iter().take(too_many).try_for_each(|(_, path)| fs::remove_file(path))
    }
}

/// Whether a file of this name belongs to the cache.
fn is_cache_file_name(name: &OsStr) -> bool {
    let stem = name.to_str().and_then(|name| name.strip_suffix(".json"));
    stem.is_some_and(|stem| {
        stem.len() == NAME_DIGITS && stem.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// A transport that caches cards.
pub struct CachingTransport<T> {
    inner: T,
    cache: Option<AgentCardCache>,
}

impl<T> CachingTransport<T> {
    /// Caches cards received by `inner`, if there is a cache.
    pub fn new(inner: T, cache: Option<AgentCardCache>) -> CachingTransport<T> {
        CachingTransport { inner, cache }
    }
}

impl<T: Transport> Transport for CachingTransport<T> {
    type Response = CachedResponse<T::Response>;

    async fn request(
        &self,
        request: HttpRequest<'_>,
    ) -> Result<CachedResponse<T::Response>, TransportError> {
        let located = self.cache.as_ref().and_then(|cache| Some((cache, cache.locate(&request)?)));
        let Some((cache, (url, path))) = located else {
            return Ok(CachedResponse::Sent(self.inner.request(request).await?, None));
        };
        let cached = CachedCard::read(&path, &url);
        let now = self.inner.now();
        let log = |what: &str| {
            if let Some(redaction) = &cache.shown {
                eprint(&format!("= {}: {what}\n", redaction.clean(&url)));
            }
        };
        let mut fields = Default::default();
        if let Some(cached) = &cached {
            let freshness = cached.freshness();
            if freshness.is_fresh(now) && !cache.revalidates {
                log("the cached card is fresh");
                return Ok(CachedResponse::Cached(cached.clone(), 0));
            }
            freshness.ask(&mut fields);
        }
        fields.extend(request.fields);
        let response = self.inner.request(HttpRequest { fields: fields.get(), ..request }).await?;
        let caching_fields = caching_fields(&response);
        let entry = |card: String, fields| CachedCard {
            url: url.clone(),
            sent_at_unix_ms: now.unix_ms,
            fields,
            card,
        };
        match (response.status(), cached) {
            (304, Some(cached)) => {
                log("the cached card has not changed");
                // RFC 9111 §4.3.4: fields of the 304 replace the stored fields.
                let mut fields = cached.fields;
                fields.extend(caching_fields);
                let cached = entry(cached.card, fields);
                let _ = match cached.freshness().may_be_stored() {
                    true => cached.write(&path),
                    false => fs::remove_file(&path),
                };
                Ok(CachedResponse::Cached(cached, 0))
            }
            (200, _) if may_be_stored(&response, now) => {
                let pending = PendingCard {
                    entry: entry(String::new(), caching_fields),
                    bytes: Vec::new(),
                    path,
                };
                Ok(CachedResponse::Sent(response, Some(pending)))
            }
            _ => Ok(CachedResponse::Sent(response, None)),
        }
    }

    async fn sleep_until(&self, due_ms: u64) {
        self.inner.sleep_until(due_ms).await;
    }

    fn now(&self) -> Now {
        self.inner.now()
    }

    fn random(&self) -> u128 {
        self.inner.random()
    }

    fn every(&self, ms: u64, tick: Tick) {
        self.inner.every(ms, tick);
    }
}

/// The caching fields of a response.
fn caching_fields<R: HttpResponse>(response: &R) -> BTreeMap<String, String> {
    let fields = CACHING_FIELDS.iter().filter_map(|name| {
        let value = str::from_utf8(response.field(name)?).ok()?;
        Some(((*name).to_owned(), value.to_owned()))
    });
    fields.collect()
}

/// RFC 9111 §3: whether a response may be stored, and whether that is useful.
fn may_be_stored<R: HttpResponse>(response: &R, now: Now) -> bool {
    let freshness = CardFreshness::of(|name| response.field(name), now);
    let has_validator = ["etag", "last-modified"].iter().any(|name| response.field(name).is_some());
    // Any other field of `Vary` is the same in every request for a card.
    let varies = response.field("vary").is_some_and(|vary| vary.contains(&b'*'));
    freshness.may_be_stored() && !varies && (has_validator || freshness.is_fresh(now))
}

/// A card that is being received into the cache.
pub struct PendingCard {
    entry: CachedCard,
    bytes: Vec<u8>,
    path: PathBuf,
}

impl PendingCard {
    /// Stores the complete card.
    fn end(self) {
        let PendingCard { mut entry, bytes, path } = self;
        let Ok(card) = String::from_utf8(bytes) else { return };
        entry.card = card;
        if entry.is_card() {
            let _ = entry.write(&path);
        }
    }
}

/// A response from the server, or a cached card with the number of bytes already read.
pub enum CachedResponse<R> {
    /// From the server.
    Sent(R, Option<PendingCard>),
    /// A cached card.
    Cached(CachedCard, usize),
}

impl<R: HttpResponse> HttpResponse for CachedResponse<R> {
    fn status(&self) -> u16 {
        match self {
            CachedResponse::Sent(inner, _) => inner.status(),
            CachedResponse::Cached(..) => 200,
        }
    }

    fn field(&self, name: &str) -> Option<&[u8]> {
        match self {
            CachedResponse::Sent(inner, _) => inner.field(name),
            CachedResponse::Cached(cached, _) => cached.fields.get(name).map(String::as_bytes),
        }
    }

    fn each_field(&self, name: &str, each: &mut dyn FnMut(&[u8])) {
        match self {
            CachedResponse::Sent(inner, _) => inner.each_field(name, each),
            CachedResponse::Cached(..) => self.field(name).into_iter().for_each(each),
        }
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        room: usize,
    ) -> Poll<Result<bool, TransportError>> {
        match self {
            CachedResponse::Cached(cached, at) => {
                let rest = cached.card.as_bytes().get(*at..).unwrap_or_default();
                let chunk = &rest[..rest.len().min(room)];
                out.extend_from_slice(chunk);
                *at += chunk.len();
                Poll::Ready(Ok(!chunk.is_empty()))
            }
            CachedResponse::Sent(inner, pending) => {
                let before = out.len();
                let read = inner.poll_read(cx, out, room);
                let Some(mut now) = pending.take() else { return read };
                now.bytes.extend_from_slice(out.get(before..).unwrap_or_default());
                match &read {
                    Poll::Ready(Ok(false)) => now.end(),
                    Poll::Ready(Err(_)) => {}
                    Poll::Ready(Ok(true)) | Poll::Pending if now.bytes.len() > CARD_BYTES_MAX => {}
                    Poll::Ready(Ok(true)) | Poll::Pending => *pending = Some(now),
                }
                read
            }
        }
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, TransportError>> {
        match self {
            CachedResponse::Sent(inner, _) => inner.poll_write(cx, bytes),
            CachedResponse::Cached(..) => Poll::Ready(Ok(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, sync::Mutex};

    use super::*;

    /// A server of one card, its response fields, and its received requests.
    struct Server {
        fields: &'static [(&'static str, &'static str)],
        unix_ms: u64,
        received: Mutex<Vec<String>>,
    }

    struct Reply(u16, &'static [(&'static str, &'static str)], RefCell<&'static [u8]>);

    const CARD: &str = r#"{"name":"kept","url":"https://a.example/","version":"1","skills":[]}"#;

    impl HttpResponse for Reply {
        fn status(&self) -> u16 {
            self.0
        }

        fn field(&self, name: &str) -> Option<&[u8]> {
            let field = self.1.iter().find(|(other, _)| *other == name);
            field.map(|(_, value)| value.as_bytes())
        }

        fn poll_read(
            &mut self,
            _: &mut Context<'_>,
            out: &mut Vec<u8>,
            room: usize,
        ) -> Poll<Result<bool, TransportError>> {
            let rest = self.2.take();
            let (now, later) = rest.split_at(rest.len().min(room).min(5));
            out.extend_from_slice(now);
            self.2.replace(later);
            Poll::Ready(Ok(!now.is_empty()))
        }

        fn poll_write(
            &mut self,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<Result<usize, TransportError>> {
            Poll::Ready(Ok(0))
        }
    }

    impl Transport for Server {
        type Response = Reply;

        async fn request(&self, request: HttpRequest<'_>) -> Result<Reply, TransportError> {
            let fields = request.fields.iter().map(|(name, value)| format!("{name}: {value}"));
            let fields: Vec<String> = fields.collect();
            let is_same = fields.iter().any(|field| field.contains("\"e-1\""));
            self.received.lock().unwrap().push(fields.join(", "));
            let body = if is_same { &b""[..] } else { CARD.as_bytes() };
            Ok(Reply(if is_same { 304 } else { 200 }, self.fields, RefCell::new(body)))
        }

        async fn sleep_until(&self, _: u64) {}

        fn now(&self) -> Now {
            Now { mono_ms: 0, unix_ms: self.unix_ms }
        }

        fn random(&self) -> u128 {
            4
        }
    }

    /// Requests the card `times` times, a second apart; returns the validators that the server
    /// received.
    fn requested_validators(
        name: &str,
        fields: &'static [(&'static str, &'static str)],
        revalidates: bool,
        times: u64,
    ) -> Vec<String> {
        let folder = format!("peregrine-cards-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let url = HttpOrigin::parse("https://a.example/card.json").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut received = Vec::new();
        for unix_ms in (0..times).map(|n| 1_000_000 + n * 1000) {
            let urls = card_urls(&url);
            let folder = folder.clone();
            let cache =
                AgentCardCache { folder, urls, revalidates, identity: String::new(), shown: None };
            let server = Server { fields, unix_ms, received: Mutex::default() };
            let transport = CachingTransport::new(server, Some(cache));
            let request = HttpRequest {
                method: HttpMethod::Get,
                origin: &url.origin,
                target: &url.path,
                fields: Default::default(),
                body: b"",
                version: peregrine::client::HttpVersion::Any,
                head_due_ms: u64::MAX,
                body_idle_ms: u64::MAX,
                is_repeatable: true,
            };
            let body = runtime.block_on(async {
                let mut response = transport.request(request).await.unwrap();
                assert_eq!(response.status(), 200);
                let mut body = Vec::new();
                while std::future::poll_fn(|cx| response.poll_read(cx, &mut body, 4)).await.unwrap()
                {
                }
                body
            });
            assert_eq!(body, CARD.as_bytes());
            received.append(&mut transport.inner.received.lock().unwrap());
        }
        let _ = fs::remove_dir_all(folder);
        received
    }

    #[test]
    fn fresh_card_is_used_and_stale_card_is_revalidated() {
        let fields = &[("cache-control", "max-age=2"), ("etag", "\"e-1\"")];
        let received = requested_validators("fresh", fields, false, 4);
        // In the third second the client revalidates; the 304 makes the card fresh for two more.
        assert_eq!(received, ["", "If-None-Match: \"e-1\""]);
        let received = requested_validators("asks", fields, true, 3);
        assert_eq!(received, ["", "If-None-Match: \"e-1\"", "If-None-Match: \"e-1\""]);
    }

    #[test]
    fn uncacheable_card_is_requested_again() {
        for (name, fields) in [
            ("no-store", &[("cache-control", "no-store"), ("etag", "\"e-1\"")][..]),
            ("vary", &[("vary", "*"), ("etag", "\"e-1\"")]),
            ("nothing", &[]),
        ] {
            assert_eq!(requested_validators(name, fields, false, 2), ["", ""], "{name}");
        }
    }

    fn a_cache(identity: &str) -> (HttpUrl, AgentCardCache) {
        let url = HttpOrigin::parse("https://a.example/card.json").unwrap();
        let (urls, identity) = (card_urls(&url), identity.to_owned());
        let cache = AgentCardCache {
            folder: std::env::temp_dir(),
            urls,
            revalidates: false,
            identity,
            shown: None,
        };
        (url, cache)
    }

    #[test]
    fn card_requested_with_credentials_is_not_cached() {
        let path_of = |identity: &str, name: &str| {
            let (url, cache) = a_cache(identity);
            let mut fields = peregrine::http::FieldLinesBuf::default();
            fields.push(name, "x");
            let request = HttpRequest {
                method: HttpMethod::Get,
                origin: &url.origin,
                target: &url.path,
                fields: fields.get(),
                body: b"",
                version: peregrine::client::HttpVersion::Any,
                head_due_ms: u64::MAX,
                body_idle_ms: u64::MAX,
                is_repeatable: true,
            };
            cache.locate(&request).map(|(_, path)| path)
        };
        let public = path_of("", "Accept");
        assert!(public.is_some());
        for name in ["Authorization", "X-Api-Key", "Cookie"] {
            assert_eq!(path_of("", name), None, "{name}");
        }
        // The card may depend on the certificate and the authorities.
        assert_ne!(path_of("mine.pem", "Accept"), public);
    }

    #[test]
    fn invalid_card_is_neither_stored_nor_read() {
        let folder = std::env::temp_dir().join(format!("peregrine-broken-{}", std::process::id()));
        let (path, url) = (folder.join(format!("{:032x}.json", 1)), "https://a.example/x");
        let cached = |card: &str| CachedCard {
            url: url.to_owned(),
            sent_at_unix_ms: 0,
            fields: BTreeMap::new(),
            card: card.to_owned(),
        };
        let receive = |card: &str| {
            let bytes = card.as_bytes().to_vec();
            PendingCard { entry: cached(""), bytes, path: path.clone() }.end();
        };
        for broken in ["{\"name\":\"ke", "<html>sign in</html>", ""] {
            receive(broken);
            assert!(!path.exists(), "{broken}");
            cached(broken).write(&path).unwrap();
            assert!(CachedCard::read(&path, url).is_none(), "{broken}");
            fs::remove_file(&path).unwrap();
        }
        receive(CARD);
        assert!(CachedCard::read(&path, url).is_some_and(|cached| cached.card == CARD));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn cache_holds_at_most_cards_max_cards() {
        let folder = std::env::temp_dir().join(format!("peregrine-many-{}", std::process::id()));
        for n in 0..CARDS_MAX + 3 {
            let cached = CachedCard {
                url: n.to_string(),
                sent_at_unix_ms: 0,
                fields: BTreeMap::new(),
                card: String::new(),
            };
            cached.write(&folder.join(format!("{n:032x}.json"))).unwrap();
            fs::write(folder.join("of-the-user.json"), "{}").unwrap();
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), CARDS_MAX + 1);
        fs::remove_dir_all(folder).unwrap();
    }
}
