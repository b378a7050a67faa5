//! `peregrine serve`: agents on a port, until a signal ends it.

mod agents;
mod args;
mod banner;
mod card_keys;
mod flags;
mod places;
mod values;

use clap::ArgMatches;
#[cfg(feature = "tls")]
use peregrine::net::Tls;
use peregrine::net::{Running, Server, ServerError};

use super::{say, usage::UsageError, warn};
use args::{Serve, TlsFlags};
use banner::Banner;
use places::Places;

pub use flags::command;

/// Serves until a signal ends it.
///
/// # Errors
/// An exit code and one line: 2 where the flags contradict each other, 1 where the system refuses.
pub fn run(flags: &ArgMatches) -> Result<(), (u8, String)> {
    let wrong = |UsageError(line): UsageError| (2, line);
    let serve = args::read(flags).map_err(wrong)?;
    let is_extended = serve.setup.extended_card;
    let (server, banner) = server(serve).map_err(wrong)?;
    let greet = |running: &Running| {
        if is_extended {
            warn("--extended-card: anybody is shown the extended card");
        }
        say(&banner.text(running));
    };
    server.run_then(greet).map_err(|error| (code(&error), error.to_string()))
}

/// Makes a server of what was said, and what it says when it is ready.
fn server(serve: Serve) -> Result<(Server, Banner), UsageError> {
    let shows_memory = serve.shows_memory;
    let Serve { mut setup, listen, agents, workers, anonymous, streaming, tls, card_keys, .. } =
        serve;
    card_keys::sign(&mut setup, &card_keys)?;
    setup.agents = agents::load(&agents)?;
    for (profile, _) in &mut setup.agents {
        profile.streaming &= streaming;
    }
    let places = Places::of(&setup, &tls);
    let connections_max = setup.limits.connections_max;
    let banner = Banner { places, connections_max, shows_memory };
    let mut server = Server::with(setup).workers(workers);
    for address in listen {
        server = server.listen(address);
    }
    if anonymous {
        server = server.allow_anonymous();
    }
    Ok((with_tls(server, tls), banner))
}

#[cfg(feature = "tls")]
fn with_tls(server: Server, flags: TlsFlags) -> Server {
    let TlsFlags { cert: Some(cert), key: Some(key), client_ca } = flags else { return server };
    let files = Tls::new(cert, key);
    server.tls(match client_ca {
        Some(file) => files.client_ca(file),
        None => files,
    })
}

#[cfg(not(feature = "tls"))]
fn with_tls(server: Server, _flags: TlsFlags) -> Server {
    server
}

/// Blame decides: a contradiction in the flags is the user's, a taken port is the system's.
fn code(error: &ServerError) -> u8 {
    match error {
        ServerError::Address(_)
        | ServerError::Public(_)
        | ServerError::Build(_)
        | ServerError::Memory(_) => 2,
        ServerError::Bind { .. }
        | ServerError::Tls { .. }
        | ServerError::InRuntime
        | ServerError::System(_) => 1,
    }
}
