//! TLS in front of a peer: ends each connection's TLS and passes the bytes on, both ways.

use std::{net::SocketAddr, path::Path, sync::Arc, thread};

use rcgen::{CertificateParams, Issuer, KeyPair};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    runtime::Builder,
    sync::oneshot,
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};

/// Who signs certificates; a new one for each test.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    /// A new authority.
    ///
    /// # Panics
    /// When no key can be made.
    pub fn new() -> Self {
        let key = KeyPair::generate().expect("a key can be made");
        let mut params = CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("a certificate can be made").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Writes its certificate where a configuration can name it.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) {
        std::fs::write(path, &self.pem).expect("a temporary file can be written");
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

/// A listener that speaks TLS. Dropping it closes everything.
pub struct TlsFront {
    /// Where it listens.
    pub address: SocketAddr,
    _open: oneshot::Sender<()>,
}

impl TlsFront {
    /// Listens for `to`, with a certificate of `authority` for `name`.
    ///
    /// # Panics
    /// When it cannot listen.
    pub fn start(to: SocketAddr, authority: &Authority, name: &str) -> Self {
        let key = KeyPair::generate().expect("a key can be made");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name that certificates can hold");
        let certificate = params.signed_by(&key, &authority.issuer).expect("a certificate can be signed");
        let secret = key.serialize_der().try_into().expect("a key is one in DER");
        let mut config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], secret)
            .expect("a key and its certificate fit");
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0))).expect("a free port on loopback");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (open, closed) = oneshot::channel();
        thread::spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    () = accept(listener, acceptor, to) => {}
                    _ = closed => {}
                }
            });
        });
        Self { address, _open: open }
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, to: SocketAddr) {
    while let Ok((stream, _)) = listener.accept().await {
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            // A client that refuses the certificate ends here; what it then does is the test's matter.
            let Ok(mut outside) = acceptor.accept(stream).await else { return };
            let Ok(mut inside) = TcpStream::connect(to).await else { return };
            let _ = copy_bidirectional(&mut outside, &mut inside).await;
        });
    }
}
