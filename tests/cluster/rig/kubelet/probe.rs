//! Probes, as the kubelet makes them: HTTP, TCP, gRPC and commands.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use k8s_openapi::{
    api::core::v1::{Container, Probe},
    apimachinery::pkg::util::intstr::IntOrString,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{board::Board, container::Runner};

/// Before the first look, unless the probe says more: a process needs a moment to listen.
const FIRST_LOOK: Duration = Duration::from_millis(150);
/// Of an answer, enough to see its status.
const ANSWER_BYTES_MAX: u64 = 4096;

/// Looks after a running container until it has to be restarted; the text says why.
pub(crate) async fn watch_over(runner: &Runner, board: &Board) -> String {
    let container = runner.container();
    let name = &container.name;
    if let Some(probe) = &container.startup_probe
        && let Err(why) = first_success(runner, probe).await
    {
        return format!("startup probe failed: {why}");
    }
    board.change(name, |view| view.started = true);
    let ready = async {
        match &container.readiness_probe {
            None => board.change(name, |view| view.ready = true),
            Some(probe) => keep_told(runner, probe, board).await,
        }
        std::future::pending::<()>().await;
    };
    let alive = async {
        match &container.liveness_probe {
            None => std::future::pending().await,
            Some(probe) => until_dead(runner, probe).await,
        }
    };
    tokio::select! {
        () = ready => unreachable!("it waits for ever"),
        why = alive => format!("liveness probe failed: {why}"),
    }
}

async fn first_success(runner: &Runner, probe: &Probe) -> Result<(), String> {
    let mut failures = 0;
    begin(probe).await;
    loop {
        match look(runner, probe).await {
            Ok(()) => return Ok(()),
            Err(why) => failures = more(failures, probe, why)?,
        }
        tokio::time::sleep(period(probe)).await;
    }
}

async fn until_dead(runner: &Runner, probe: &Probe) -> String {
    let mut failures = 0;
    begin(probe).await;
    loop {
        match look(runner, probe).await {
            Ok(()) => failures = 0,
            Err(why) => match more(failures, probe, why) {
                Ok(count) => failures = count,
                Err(why) => return why,
            },
        }
        tokio::time::sleep(period(probe)).await;
    }
}

async fn keep_told(runner: &Runner, probe: &Probe, board: &Board) {
    let needed = probe.success_threshold.unwrap_or(1);
    let (mut successes, mut failures) = (0, 0);
    begin(probe).await;
    loop {
        match look(runner, probe).await {
            Ok(()) => (successes, failures) = (successes + 1, 0),
            Err(why) => {
                successes = 0;
                // The text is the last failure's: readiness only tells, so it is not kept.
                failures = more(failures, probe, why).unwrap_or(i32::MAX / 2);
            }
        }
        if successes >= needed {
            board.change(&runner.container().name, |view| view.ready = true);
        } else if failures >= i32::MAX / 2 {
            board.change(&runner.container().name, |view| view.ready = false);
        }
        tokio::time::sleep(period(probe)).await;
    }
}

/// Counts a failure; the error when it is one too many.
fn more(failures: i32, probe: &Probe, why: String) -> Result<i32, String> {
    let failures = failures.saturating_add(1);
    if failures >= probe.failure_threshold.unwrap_or(3) { Err(why) } else { Ok(failures) }
}

async fn begin(probe: &Probe) {
    tokio::time::sleep(seconds(probe.initial_delay_seconds.unwrap_or(0)).max(FIRST_LOOK)).await;
}

fn period(probe: &Probe) -> Duration {
    seconds(probe.period_seconds.unwrap_or(10).max(1))
}

fn seconds(count: i32) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or_default())
}

async fn look(runner: &Runner, probe: &Probe) -> Result<(), String> {
    let limit = seconds(probe.timeout_seconds.unwrap_or(1).max(1));
    match tokio::time::timeout(limit, once(runner, probe)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("no answer within {} s", limit.as_secs())),
    }
}

async fn once(runner: &Runner, probe: &Probe) -> Result<(), String> {
    let container = runner.container();
    let at = |port: u16| SocketAddr::new(runner.ip(), port);
    if let Some(get) = &probe.http_get {
        let port = number(container, &get.port)?;
        let host = get.host.clone().unwrap_or_else(|| runner.ip().to_string());
        let mut head = format!("GET {} HTTP/1.1\r\n", get.path.as_deref().unwrap_or("/"));
        let headers = get.http_headers.iter().flatten();
        if !headers.clone().any(|header| header.name.eq_ignore_ascii_case("host")) {
            head.push_str(&format!("host: {host}:{port}\r\n"));
        }
        head.extend(headers.map(|header| format!("{}: {}\r\n", header.name, header.value)));
        head.push_str("user-agent: kube-probe/1.36\r\nconnection: close\r\n\r\n");
        let stream = connect(at(port)).await?;
        return match get.scheme.as_deref() {
            Some("HTTPS") => answered(tls(stream).await?, &head).await,
            _ => answered(stream, &head).await,
        };
    }
    if let Some(tcp) = &probe.tcp_socket {
        return connect(at(number(container, &tcp.port)?)).await.map(drop);
    }
    if let Some(grpc) = &probe.grpc {
        let port = u16::try_from(grpc.port).map_err(|_| format!("{} is no port", grpc.port))?;
        return healthy(connect(at(port)).await?, grpc.service.as_deref().unwrap_or_default()).await;
    }
    match &probe.exec {
        Some(exec) => runner.exec(exec.command.as_deref().unwrap_or_default()).await,
        None => Err("a probe of a kind that this kubelet does not know".into()),
    }
}

fn number(container: &Container, port: &IntOrString) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let named = container.ports.iter().flatten().find(|port| port.name.as_deref() == Some(name));
            named.ok_or_else(|| format!("no port is named {name}"))?.container_port
        }
    };
    u16::try_from(number).map_err(|_| format!("{number} is no port"))
}

async fn connect(to: SocketAddr) -> Result<TcpStream, String> {
    TcpStream::connect(to).await.map_err(|error| format!("{to}: {error}"))
}

async fn answered(mut stream: impl AsyncRead + AsyncWrite + Unpin, head: &str) -> Result<(), String> {
    stream.write_all(head.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    let read = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await;
    let text = String::from_utf8_lossy(&answer);
    let status = text.split(' ').nth(1).and_then(|code| code.parse::<u16>().ok());
    match (status, read) {
        (Some(200..400), _) => Ok(()),
        (Some(status), _) => Err(format!("status {status}")),
        (None, Err(error)) => Err(error.to_string()),
        (None, Ok(_)) => Err("no answer".into()),
    }
}

async fn tls(stream: TcpStream) -> Result<impl AsyncRead + AsyncWrite + Unpin, String> {
    let config = super::trusting::config();
    let name = tokio_rustls::rustls::pki_types::ServerName::try_from("probe").expect("a valid name");
    tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .map_err(|error| format!("TLS: {error}"))
}

/// Asks `grpc.health.v1.Health/Check`; the one answer that counts is SERVING, field 1 with the value 1.
async fn healthy(stream: TcpStream, service: &str) -> Result<(), String> {
    let told = |error: h2::Error| error.to_string();
    let (client, connection) = h2::client::handshake(stream).await.map_err(told)?;
    let driver = tokio::spawn(async move { drop(connection.await) });
    let outcome = async {
        let request = http::Request::post("http://probe/grpc.health.v1.Health/Check")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .map_err(|error| error.to_string())?;
        let mut client = client.ready().await.map_err(told)?;
        let (answer, mut body) = client.send_request(request, false).map_err(told)?;
        let length = u8::try_from(service.len()).map_err(|_| "the service's name is too long")?;
        let message = if service.is_empty() { vec![] } else { [&[0x0a, length], service.as_bytes()].concat() };
        let size = u32::try_from(message.len()).expect("a short message");
        let frame = [&[0], &size.to_be_bytes()[..], &message].concat();
        body.send_data(frame.into(), true).map_err(told)?;
        let mut answer = answer.await.map_err(told)?.into_body();
        let data = answer.data().await.ok_or("no answer")?.map_err(told)?;
        if data.get(5..) == Some(&[0x08, 0x01]) { Ok(()) } else { Err("not SERVING".to_owned()) }
    }
    .await;
    driver.abort();
    outcome
}
