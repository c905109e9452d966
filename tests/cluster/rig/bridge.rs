//! A way for programs of the machine to reach the API server: bytes go through a socket of the file system, which
//! crosses network namespaces.
//!
//! Nothing but the API server is reached by it; what else is inside is used from inside (`cluster-rig enter`).

use std::{net::Ipv4Addr, path::PathBuf};

use anyhow::Context;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::place::{API_PORT, NODE_ADDRESS};

/// The outer half: listens on a free loopback port of the machine, and returns it.
///
/// # Errors
/// When it cannot listen.
pub(crate) async fn from_outside(socket: PathBuf) -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("cannot listen on loopback")?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let socket = socket.clone();
            tokio::spawn(async move {
                if let Ok(mut inside) = UnixStream::connect(socket).await {
                    // Ends with either side.
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut inside).await;
                }
            });
        }
    });
    Ok(port)
}

/// The inner half.
///
/// # Errors
/// When it cannot listen.
pub(crate) fn to_api_server(socket: &std::path::Path) -> anyhow::Result<()> {
    let listener = UnixListener::bind(socket).context("cannot listen for the bridge")?;
    tokio::spawn(async move {
        while let Ok((mut outside, _)) = listener.accept().await {
            tokio::spawn(async move {
                if let Ok(mut api) = TcpStream::connect((NODE_ADDRESS, API_PORT)).await {
                    // Ends with either side.
                    let _ = tokio::io::copy_bidirectional(&mut outside, &mut api).await;
                }
            });
        }
    });
    Ok(())
}
