//! Asking for the addresses of a name.
//!
//! Addresses of the two families are asked for apart, because they fail apart: where a resolver never answers AAAA
//! queries, the A records must not wait for it, nor be forgotten with it.

use std::{future::Future, net::IpAddr, pin::Pin, sync::Arc, time::Duration};

use hickory_resolver::{
    Hosts, ResolverBuilder, TokioResolver,
    config::ResolverConfig,
    net::{DnsError, NetError, runtime::TokioRuntimeProvider},
    proto::{
        op::Query,
        rr::{Name, RecordType},
    },
};

/// One kind of address record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// A records.
    V4,
    /// AAAA records.
    V6,
}

/// What is known of a name in one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its addresses. None at all is an answer too: the name has no such record, or does not exist.
    pub addresses: Vec<IpAddr>,
    /// How long that may be believed.
    pub ttl: Duration,
}

/// Why there is no answer, for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

/// An answer to come.
pub type Asked<'a> = Pin<Box<dyn Future<Output = Result<Answer, Failure>> + Send + 'a>>;

/// A way to ask.
pub trait Dns: Send + Sync {
    /// Asks for the addresses of `name` in `family`. May be dropped at any time.
    fn look_up(&self, name: Arc<str>, family: Family) -> Asked<'_>;
}

/// The machine's own way: `/etc/hosts`, then the servers of `/etc/resolv.conf` with its search list. Both files are
/// read for every look-up, since a laptop changes networks; what was learned is kept by the caller, not here.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemDns;

/// How soon `/etc/hosts`, which has no TTL, is read again.
const HOSTS_TTL: Duration = Duration::from_secs(5);

/// How long "no such record" is believed when the server does not say.
const NEGATIVE_TTL: Duration = Duration::from_secs(5);

impl Dns for SystemDns {
    fn look_up(&self, name: Arc<str>, family: Family) -> Asked<'_> {
        Box::pin(async move {
            let parsed = Name::from_utf8(&*name).map_err(|error| Failure(error.to_string()))?;
            match in_hosts_file(&parsed, family) {
                Some(answer) => Ok(answer),
                None => {
                    let builder = TokioResolver::builder_tokio().or_else(|_| no_servers()).map_err(failed)?;
                    ask_servers(builder, parsed, family).await
                }
            }
        })
    }
}

/// A name that stands in the hosts file has only the addresses that stand there, as for every other program here.
fn in_hosts_file(name: &Name, family: Family) -> Option<Answer> {
    let hosts = Hosts::from_system().ok()?;
    let line = |family| hosts.lookup_static_host(&Query::query(name.clone(), record_type(family)));
    let (v4, v6) = (line(Family::V4), line(Family::V6));
    if v4.is_none() && v6.is_none() {
        return None;
    }
    let lookup = match family {
        Family::V4 => v4,
        Family::V6 => v6,
    };
    let addresses = lookup.iter().flat_map(|lookup| lookup.answers()).filter_map(|record| record.data.ip_addr());
    Some(Answer { addresses: addresses.collect(), ttl: HOSTS_TTL })
}

type Builder = ResolverBuilder<TokioRuntimeProvider>;

fn failed(error: NetError) -> Failure {
    Failure(error.to_string())
}

async fn ask_servers(mut builder: Builder, name: Name, family: Family) -> Result<Answer, Failure> {
    builder.options_mut().cache_size = 0;
    let resolver = builder.build().map_err(failed)?;
    match resolver.lookup(name, record_type(family)).await {
        Ok(lookup) => {
            let records = lookup.answers().iter().filter(|record| record.data.ip_addr().is_some());
            let ttl = records.clone().map(|record| record.ttl).min().map(|s| Duration::from_secs(s.into()));
            Ok(Answer {
                addresses: records.filter_map(|record| record.data.ip_addr()).collect(),
                ttl: ttl.unwrap_or(NEGATIVE_TTL),
            })
        }
        Err(NetError::Dns(DnsError::NoRecordsFound(none))) => {
            let ttl = none.negative_ttl.map_or(NEGATIVE_TTL, |s| Duration::from_secs(s.into()));
            Ok(Answer { addresses: Vec::new(), ttl })
        }
        Err(error) => Err(failed(error)),
    }
}

/// A machine without a resolver configuration still has names that need none, such as `localhost`.
fn no_servers() -> Result<Builder, NetError> {
    let config = ResolverConfig::from_parts(None, Vec::new(), Vec::new());
    Ok(TokioResolver::builder_with_config(config, TokioRuntimeProvider::default()))
}

const fn record_type(family: Family) -> RecordType {
    match family {
        Family::V4 => RecordType::A,
        Family::V6 => RecordType::AAAA,
    }
}

#[cfg(test)]
mod tests {
    use hickory_resolver::{
        config::{NameServerConfig, ResolverOpts},
        proto::{
            op::{Message, ResponseCode},
            rr::{RData, Record},
        },
    };
    use tokio::net::UdpSocket;

    use super::*;

    /// A name server that knows `llama.test.` (two A records), `empty.test.` (none), and fails on `broken.test.`.
    async fn serve(socket: UdpSocket) {
        let mut packet = [0; 1024];
        loop {
            let (length, from) = socket.recv_from(&mut packet).await.unwrap();
            let request = Message::from_vec(&packet[..length]).unwrap();
            let query = request.queries[0].clone();
            let mut response = Message::response(request.id, request.op_code);
            response.add_query(query.clone());
            match (query.name().to_string().to_ascii_lowercase().as_str(), query.query_type()) {
                ("llama.test.", RecordType::A) => {
                    for (ttl, last) in [(30, 1), (20, 2)] {
                        let address = RData::A(std::net::Ipv4Addr::new(10, 0, 0, last).into());
                        response.add_answer(Record::from_rdata(query.name().clone(), ttl, address));
                    }
                }
                ("llama.test." | "empty.test.", _) => {}
                ("broken.test.", _) => response.metadata.response_code = ResponseCode::ServFail,
                _ => response.metadata.response_code = ResponseCode::NXDomain,
            }
            socket.send_to(&response.to_vec().unwrap(), from).await.unwrap();
        }
    }

    async fn ask(server: std::net::SocketAddr, name: &str, family: Family) -> Result<Answer, Failure> {
        let mut name_server = NameServerConfig::udp(server.ip());
        name_server.connections[0].port = server.port();
        let config = ResolverConfig::from_parts(None, Vec::new(), vec![name_server]);
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let options: &mut ResolverOpts = builder.options_mut();
        options.timeout = Duration::from_millis(500);
        ask_servers(builder, Name::from_utf8(name).unwrap(), family).await
    }

    #[tokio::test]
    async fn answers_of_a_name_server() {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let server = socket.local_addr().unwrap();
        tokio::spawn(serve(socket));
        let addresses = ["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()].to_vec();
        let found = ask(server, "llama.test.", Family::V4).await;
        assert_eq!(found, Ok(Answer { addresses, ttl: Duration::from_secs(20) }));
        for (name, family) in [("llama.test.", Family::V6), ("empty.test.", Family::V4), ("gone.test.", Family::V4)] {
            assert_eq!(ask(server, name, family).await.map(|answer| answer.addresses), Ok(Vec::new()), "{name}");
        }
        assert!(ask(server, "broken.test.", Family::V4).await.is_err());
    }
}
