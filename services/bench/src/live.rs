//! `igw-bench live`: real deployments beside each other, such as a gateway and a plain Service of the same pods.
//!
//! Nobody's figures transfer to another fleet. The same drawn calls are sent to each address in alternating passes, with
//! texts of their own each time, so that no deployment profits from what another pass left in a cache. Only what clients
//! can see is reported; what is asked for is exactly the workload, so it costs what such traffic costs.

use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::cost::beside_build;
use crate::load::{Target, Tls};
use crate::machine::{self, Machine};
use crate::quality::Figures;
use crate::quality::figures::Basis;
use crate::quality::scenario::{Scenario, Slo};
use crate::quality::workload;
use crate::real::clients::{Door, Replay};
use crate::real::prompt::Ends;
use crate::real::table;
use crate::world::call::mix;

/// Real deployments beside each other: the same calls to each, in alternating passes
#[derive(clap::Args, Clone, Debug, Serialize)]
pub struct Arguments {
    /// Deployments: URL, or NAME=URL; /v1/chat/completions is added
    #[arg(required = true, value_name = "URL")]
    deployments: Vec<String>,
    /// What is asked, and when an answer is good: a file of `tests/scenarios`
    #[arg(long, value_name = "FILE")]
    scenario: PathBuf,
    /// The model that is asked for
    #[arg(long)]
    model: String,
    /// Requests per second
    #[arg(long)]
    rate: f64,
    /// How long calls come in each pass
    #[arg(long, default_value_t = 120.0)]
    seconds: f64,
    /// Alternating passes; a published figure needs at least 5
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    passes: u32,
    /// The first pass's seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The environment variable with the API key, sent as a bearer token
    #[arg(long, value_name = "NAME")]
    api_key_from: Option<String>,
    /// How answers end
    #[arg(long, value_enum, default_value_t)]
    answers: Ends,
    /// Where live.md and live.json go [default: target/bench]
    #[arg(long, value_name = "DIR")]
    #[serde(skip)]
    out: Option<PathBuf>,
}

/// Everything measured, as it goes into `live.json`.
#[derive(Debug, Serialize)]
struct Measured {
    machine: Machine,
    settings: Arguments,
    title: String,
    deployments: Vec<Deployment>,
}

#[derive(Debug, Serialize)]
struct Deployment {
    name: String,
    runs: Vec<Figures>,
    load_averages: Vec<f64>,
}

/// Measures, prints the table and writes both files.
pub fn run(arguments: &Arguments) -> Result<()> {
    let mut scenario = Scenario::read(&arguments.scenario)?;
    ensure!(arguments.rate > 0.0 && arguments.seconds >= 1.0, "a pass has a rate above 0 and lasts a second or more");
    let adapters = scenario.workload.kinds.values().any(|kind| !kind.adapters.is_empty());
    ensure!(!adapters, "it asks for adapters, which only the deployment can name");
    scenario.workload.requests = 1;
    scenario.workload.seconds_min = arguments.seconds;
    let key = arguments.api_key_from.as_deref().map(api_key).transpose()?;
    let doors: Vec<(String, Door)> =
        arguments.deployments.iter().map(|given| door(given, arguments, key.clone())).collect::<Result<_>>()?;
    let mut deployments: Vec<Deployment> = doors
        .iter()
        .map(|(name, _)| Deployment { name: name.clone(), runs: Vec::new(), load_averages: Vec::new() })
        .collect();
    let machine = Machine::here();
    for pass in 0..arguments.passes as usize {
        let seed = arguments.seed + pass as u64;
        let (calls, length) = workload::calls(&scenario.workload, arguments.rate, seed);
        let basis = Basis { slo: scenario.slo, length, pods: &[], capacity_per_pod: &[] };
        for turn in 0..doors.len() {
            let place = (turn + pass) % doors.len();
            let (name, door) = &doors[place];
            // Unlike any other replay, of this run or of one before.
            let salt = mix(mix(machine.taken_at_s, seed), place as u64);
            let mut ledger =
                Replay { calls: &calls, salt, time_scale: 1.0 }.through(door).with_context(|| name.clone())?;
            ledger.classes = scenario.workload.kinds.keys().cloned().collect();
            let figures = Figures::of(&ledger, &basis);
            println!("Pass {} of {}, {name}: {}", pass + 1, arguments.passes, table::told(&figures));
            deployments[place].runs.push(figures);
            deployments[place].load_averages.push(machine::load_average());
        }
    }
    let out = arguments.out.clone().unwrap_or_else(|| beside_build("bench"));
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let measured = Measured { machine, settings: arguments.clone(), title: scenario.title, deployments };
    table::files("live", &markdown(&measured, scenario.slo), &measured, &out)
}

fn api_key(variable: &str) -> Result<String> {
    let key = std::env::var(variable).with_context(|| format!("the environment has no `{variable}`"))?;
    let plain = key.bytes().all(|byte| byte.is_ascii_graphic());
    ensure!(plain && !key.is_empty(), "`{variable}` holds no key");
    Ok(format!("Bearer {key}"))
}

/// `NAME=URL` or `URL`, as a name and where to send requests.
fn door(given: &str, arguments: &Arguments, authorization: Option<String>) -> Result<(String, Door)> {
    let (name, url) = match given.split_once('=') {
        Some((name, url)) if !name.contains("://") => (name.to_owned(), url),
        _ => (given.to_owned(), given),
    };
    let place = Place::read(url)?;
    let addresses = (place.host.as_str(), place.port).to_socket_addrs();
    let address = addresses.with_context(|| format!("nobody knows {}", place.host))?.next();
    let address = address.with_context(|| format!("{} has no address", place.host))?;
    let tls = if place.tls { Some(Tls::to(&place.host, trusting_the_system()?)?) } else { None };
    let door = Door {
        targets: vec![Target { address, tls }],
        host: place.authority,
        base_path: place.path,
        model: arguments.model.clone(),
        authorization,
        ends: arguments.answers,
    };
    Ok((name, door))
}

fn trusting_the_system() -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    let (_, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// The parts of an `http` or `https` URL.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    tls: bool,
    host: String,
    port: u16,
    /// Host and port as they were given.
    authority: String,
    /// Without a slash at its end.
    path: String,
}

impl Place {
    fn read(url: &str) -> Result<Self> {
        let uri: http::Uri = url.parse().with_context(|| format!("`{url}` is no URL"))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => bail!("`{url}` begins neither with http:// nor with https://"),
        };
        let authority = uri.authority().with_context(|| format!("`{url}` names no host"))?;
        ensure!(!authority.as_str().contains('@'), "`{url}`: keys do not go into URLs, see --api-key-from");
        ensure!(uri.query().is_none(), "`{url}` has a query");
        let path = uri.path().trim_end_matches('/');
        Ok(Self {
            tls,
            host: authority.host().trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: authority.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            authority: authority.as_str().to_owned(),
            path: path.strip_suffix("/v1").unwrap_or(path).to_owned(),
        })
    }
}

fn markdown(measured: &Measured, slo: Slo) -> String {
    let settings = &measured.settings;
    let mut text = format!(
        "# {}\n\n{}{} at {} requests/s for {} s, {} alternating passes, seeds {}–{}. An answer is good with its first token \
         within {:.0} ms and {:.0} ms per further token. Medians, least and most in brackets.\n\n| deployment |{}\n|{}\n",
        measured.title,
        table::taken(&measured.machine),
        settings.model,
        settings.rate,
        settings.seconds,
        settings.passes,
        settings.seed,
        settings.seed + u64::from(settings.passes) - 1,
        slo.first_token_ms,
        slo.token_ms,
        table::titles(table::SEEN_BY_CLIENTS),
        "---|".repeat(table::SEEN_BY_CLIENTS + 1)
    );
    for Deployment { name, runs, .. } in &measured.deployments {
        text += &format!("| {name} |{}\n", table::cells(runs, table::SEEN_BY_CLIENTS));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let place = |url: &str| Place::read(url).unwrap();
        let plain = place("http://gateway.example:8080/");
        assert_eq!((plain.tls, plain.port, plain.path.as_str()), (false, 8080, ""));
        assert_eq!(plain.authority, "gateway.example:8080");
        let secure = place("https://gateway.example/team/v1");
        assert_eq!((secure.tls, secure.port, secure.path.as_str()), (true, 443, "/team"));
        assert_eq!(place("http://[::1]:80").host, "::1");
        for wrong in ["gateway:8080", "ftp://gateway", "http://", "http://key@gateway", "http://gateway/?a=b"] {
            assert!(Place::read(wrong).is_err(), "{wrong}");
        }
    }
}
