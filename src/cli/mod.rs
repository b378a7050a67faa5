//! The command line.
//!
//! What the user got wrong is one line on stderr and exit code 2; what the system refuses is one
//! line and exit code 1. Nothing is started before everything that was said has been understood.

mod agents;
mod args;
mod banner;
mod help;
mod nearest;
mod places;
mod values;

use std::{
    ffi::OsString,
    io::{self, Write},
    process::ExitCode,
};

#[cfg(feature = "tls")]
use peregrine::net::Tls;
use peregrine::net::{Running, Server, ServerError};

use args::{ArgError, Command, Serve, TlsFlags};
use banner::Banner;
use places::Places;

/// Does what the arguments of the process say.
pub fn main() -> ExitCode {
    match run(std::env::args_os().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, line)) => {
            // Without stderr the exit code says it alone.
            let _ = writeln!(io::stderr(), "peregrine: {line}");
            ExitCode::from(code)
        }
    }
}

fn run(args: Vec<OsString>) -> Result<(), (u8, String)> {
    let wrong = |ArgError(line): ArgError| (2, line);
    match args::parse(args).map_err(wrong)? {
        Command::Help => say(help::HELP),
        Command::Version => say(concat!("peregrine ", env!("CARGO_PKG_VERSION"), "\n")),
        Command::Serve(serve) => {
            let is_extended = serve.setup.extended_card;
            let (server, banner) = server(*serve).map_err(wrong)?;
            let greet = |running: &Running| {
                if is_extended {
                    warn("--extended-card: anybody is shown the extended card");
                }
                say(&banner.text(running));
            };
            server.run_then(greet).map_err(|error| (code(&error), error.to_string()))?;
        }
    }
    Ok(())
}

/// Makes a server of what was said, and what it says when it is ready.
fn server(serve: Serve) -> Result<(Server, Banner), ArgError> {
    let shows_memory = serve.shows_memory;
    let Serve { mut setup, listen, agents, workers, anonymous, streaming, tls, .. } = serve;
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

/// One line for whoever started it; without stderr nobody wants to know.
fn warn(line: &str) {
    let _ = writeln!(io::stderr(), "peregrine: warning: {line}");
}

fn say(text: &str) {
    // A reader that left, as in `peregrine --help | head -1`, is no error.
    let _ = io::stdout().lock().write_all(text.as_bytes());
}
