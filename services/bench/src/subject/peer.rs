//! Starting a peer as its description says, on ports that were free a moment ago.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::Context;

use super::{Running, Site, first_answer, wait_until_ready};
use crate::load::Target;
use crate::peers::{Peer, Port, Values};
use crate::process::Process;

pub(super) fn start(
    peer: &Peer,
    program: &Path,
    policy: &str,
    site: &Site<'_>,
    started: Instant,
) -> anyhow::Result<Running> {
    let named = || peer.title.clone();
    let [port, metrics_port, admin_port] = free_ports().with_context(named)?;
    let certificate = site.certificate.map(|made| (made.certificate.clone(), made.key.clone()));
    let values = Values {
        program: program.to_owned(),
        folder: site.folder.to_owned(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        port,
        metrics_port,
        admin_port,
        policy: policy.to_owned(),
        backends: site.endpoints.to_vec(),
        certificate,
    };
    for (name, text) in peer.texts(&values)? {
        std::fs::write(site.folder.join(name), text).with_context(|| format!("cannot write {name}"))?;
    }
    let mut command = Command::new(program);
    command.args(peer.arguments(&values)?);
    let mut process = Process::start(command, site.folder.join(format!("{}.log", peer.name))).with_context(named)?;
    let data = Target { address: local(port), tls: site.certificate.map(|made| made.client.clone()) };
    let first_answer = first_answer(&mut process, &data, started).with_context(named)?;
    let ready = match peer.ready_port {
        Port::Port => port,
        Port::MetricsPort => metrics_port,
        Port::AdminPort => admin_port,
    };
    // Behind TLS only the first answer says so.
    if site.certificate.is_none() || ready != port {
        wait_until_ready(&mut process, local(ready), &peer.ready).with_context(named)?;
    }
    Ok(Running { data, process: Some(process), first_answer })
}

/// Programs of others want their ports named: these were free, and with the kernel's order will be for a while.
fn free_ports() -> std::io::Result<[u16; 3]> {
    let bound = [TcpListener::bind(local(0))?, TcpListener::bind(local(0))?, TcpListener::bind(local(0))?];
    let mut ports = [0; 3];
    for (port, listener) in ports.iter_mut().zip(&bound) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}
