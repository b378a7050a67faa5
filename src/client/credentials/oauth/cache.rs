//! One token for all calls of a client.
//!
//! Invariant: at most one call at a time fetches a token. Other calls that need the token wait for
//! this attempt and share its result, success or error. If the fetching call is dropped, a waiting
//! call starts a new attempt.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
};

use crate::{
    client::{ClientLimits, Transport},
    http::{FieldLines, FieldLinesBuf},
};

use super::{
    super::plan, AuthorizationServer, OAuthClient, OAuthError, Token, oauth_exchange, read_token,
    refresh_token, resolve_server,
};

/// A token, and the field that carries it.
pub struct HeldToken {
    /// The token.
    pub token: Token,
    fields: FieldLinesBuf,
}

impl HeldToken {
    fn new(token: Token) -> Result<HeldToken, OAuthError> {
        let value = plan::bearer(token.access.expose(), "oauth");
        let value = value.map_err(|_| OAuthError::Unreadable("access_token cannot be sent"))?;
        let mut fields = FieldLinesBuf::default();
        fields.push("Authorization", &value);
        Ok(HeldToken { token, fields })
    }

    /// The field `Authorization`.
    pub fn fields(&self) -> FieldLines<'_> {
        self.fields.get()
    }
}

/// The token of a client, shared by its calls.
#[derive(Default)]
pub struct TokenCache {
    state: Mutex<CacheState>,
}

#[derive(Default)]
struct CacheState {
    held: Option<Arc<HeldToken>>,
    /// The number of finished attempts; `failure` is the error of the last attempt.
    attempts: u64,
    failure: Option<OAuthError>,
    is_busy: bool,
    server: Option<AuthorizationServer>,
    /// The calls that wait for the current attempt.
    waiting: Vec<Waker>,
}

/// The current attempt; when it is dropped, another call may start one.
struct Attempt<'c>(&'c TokenCache);

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_busy = false;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl TokenCache {
    /// A cache with an earlier token, which may have expired.
    pub fn with(token: Token) -> Result<TokenCache, OAuthError> {
        let held = Some(Arc::new(HeldToken::new(token)?));
        Ok(TokenCache { state: Mutex::new(CacheState { held, ..CacheState::default() }) })
    }

    /// The token, fetched or renewed if necessary.
    ///
    /// # Errors
    /// [`OAuthError`]
    pub async fn token<T: Transport>(
        &self,
        transport: &T,
        client: &OAuthClient,
        limits: &ClientLimits,
    ) -> Result<Arc<HeldToken>, OAuthError> {
        loop {
            let seen = {
                let mut state = self.lock();
                let held = state.held.as_ref();
                if let Some(held) = held.filter(|held| held.token.is_fresh(transport.now())) {
                    return Ok(held.clone());
                }
                let was_busy = std::mem::replace(&mut state.is_busy, true);
                was_busy.then_some(state.attempts)
            };
            match seen {
                None => return self.attempt(transport, client, limits).await,
                Some(attempts) => {
                    if let Some(result) = self.wait(attempts).await {
                        return result;
                    }
                }
            }
        }
    }

    /// Drops a token that the server rejected (401): the next call fetches a new one.
    pub fn forget(&self, refused: &Arc<HeldToken>) {
        let mut state = self.lock();
        if state.held.as_ref().is_some_and(|held| Arc::ptr_eq(held, refused)) {
            state.held = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        // No thread panics while it holds the lock, and every state is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The result of the attempt after the first `attempts`; `None`: this attempt was dropped.
    async fn wait(&self, attempts: u64) -> Option<Result<Arc<HeldToken>, OAuthError>> {
        poll_fn(|cx| {
            let mut state = self.lock();
            if state.attempts != attempts {
                return Poll::Ready(match (&state.held, &state.failure) {
                    (_, Some(failure)) => Some(Err(failure.clone())),
                    (Some(held), None) => Some(Ok(held.clone())),
                    (None, None) => None,
                });
            }
            if !state.is_busy {
                return Poll::Ready(None);
            }
            if !state.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                state.waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    async fn attempt<T: Transport>(
        &self,
        transport: &T,
        client: &OAuthClient,
        limits: &ClientLimits,
    ) -> Result<Arc<HeldToken>, OAuthError> {
        let attempt = Attempt(self);
        let result = self.fetch(transport, client, limits).await;
        let result = result.and_then(HeldToken::new).map(Arc::new);
        let mut state = self.lock();
        state.attempts += 1;
        state.failure = result.as_ref().err().cloned();
        if let Ok(held) = &result {
            state.held = Some(held.clone());
        }
        drop(state);
        drop(attempt);
        result
    }

    async fn fetch<T: Transport>(
        &self,
        transport: &T,
        client: &OAuthClient,
        limits: &ClientLimits,
    ) -> Result<Token, OAuthError> {
        let (cached, refresh) = {
            let state = self.lock();
            let refresh = state.held.as_ref().and_then(|held| held.token.refresh.clone());
            (state.server.clone(), refresh)
        };
        let server = match cached {
            Some(server) => server,
            None => resolve_server(transport, client, limits).await?,
        };
        self.lock().server = Some(server.clone());
        if let Some(refresh) = refresh {
            match refresh_token(transport, client, &server, refresh, limits).await {
                Ok(token) => return Ok(token),
                Err(error @ OAuthError::Transport(_)) => return Err(error),
                Err(error) if client.secret.is_none() => return Err(error),
                // The token may not be renewable any more, but the client can authenticate.
                Err(_) => {}
            }
        }
        let request = client.client_credentials(&server)?;
        let (status, body) = oauth_exchange(transport, &request, limits).await?;
        read_token(status, &body, transport.now()).map_err(|error| client.hide(error, None))
    }
}
