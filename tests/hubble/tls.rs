//! TLS: who is believed, who must show a certificate, and certificates that change while they are used.

use std::path::PathBuf;

use firedoor::source::hubble::{HubbleSettings, Identity, ServerName, SourceState, TlsSettings};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tonic::transport::{Certificate, Identity as ServerIdentity, ServerTlsConfig};

use crate::client::{Client, everything, settings};
use crate::fake::flows::{now, syn};
use crate::fake::{FakeHubble, Traits};

/// An authority, and what it signed.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate with its key, for a name, until the first of January of a year.
    fn signs(&self, name: &str, year: i32) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// The files of a client.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: &str) {
        // As the kubelet does: a file is there as a whole, or as it was.
        let new = self.path("new");
        std::fs::write(&new, content).unwrap();
        std::fs::rename(&new, self.path(name)).unwrap();
    }

    fn settings(&self, port: u16, identity: bool) -> HubbleSettings {
        let mut settings = settings(&format!("tls://127.0.0.1:{port}"));
        settings.tls = Some(TlsSettings {
            authorities: Some(self.path("ca.crt")),
            identity: identity
                .then(|| Identity { certificate: self.path("tls.crt"), key: self.path("tls.key") }),
            server_name: ServerName::Node,
        });
        settings
    }
}

const NODE: &str = "gpu-node-a.default.hubble-grpc.cilium.io";

async fn server(authority: &Authority, name: &str, asks: bool) -> (FakeHubble, u16) {
    let (certificate, key) = authority.signs(name, 2100);
    let mut tls = ServerTlsConfig::new().identity(ServerIdentity::from_pem(certificate, key));
    if asks {
        tls = tls.client_ca_root(Certificate::from_pem(authority.pem()));
    }
    FakeHubble::on_port(Traits::node(), Some(tls)).await
}

fn why(state: &SourceState) -> &str {
    let SourceState::Down { why, .. } = state else { panic!("{state:?}") };
    why
}

#[tokio::test]
async fn servers_are_believed_by_authority_and_name() {
    let (authority, stranger, files) = (Authority::new(), Authority::new(), Files::new());
    files.write("ca.crt", &authority.pem());
    let (right, port) = server(&authority, NODE, false).await;
    let mut client = Client::start(files.settings(port, false), everything());
    client.until("the stream", |_| !right.requests().is_empty()).await;
    right.emit(syn("gpu-node-a", "trainer-0", "trainer-1", 1, now()));
    client.until("a flow", |heard| heard.flows == 1).await;

    let (_other, port) = server(&authority, "other.default.hubble-grpc.cilium.io", false).await;
    let mut client = Client::start(files.settings(port, false), everything());
    client.until("refusal", |heard| heard.downs() > 0).await;
    assert!(why(&client.heard.states[0]).contains(NODE), "{}", why(&client.heard.states[0]));

    let (_strange, port) = server(&stranger, NODE, false).await;
    let mut client = Client::start(files.settings(port, false), everything());
    client.until("refusal", |heard| heard.downs() > 0).await;
    assert!(
        why(&client.heard.states[0]).contains("invalid peer certificate"),
        "{}",
        why(&client.heard.states[0])
    );
}

#[tokio::test]
async fn a_missing_client_certificate_is_named() {
    let (authority, files) = (Authority::new(), Files::new());
    files.write("ca.crt", &authority.pem());
    let (_server, port) = server(&authority, NODE, true).await;
    let mut client = Client::start(files.settings(port, false), everything());
    client.until("refusal", |heard| heard.downs() > 0).await;
    let why = why(&client.heard.states[0]);
    assert!(why.contains("client certificate"), "{why}");
    // A wrong file is told, too.
    let mut client = Client::start(files.settings(port, true), everything());
    client.until("refusal", |heard| heard.downs() > 0 && !heard.problems.is_empty()).await;
    assert!(client.heard.problems[0].contains("tls.crt"), "{}", client.heard.problems[0]);
}

#[tokio::test]
async fn certificates_that_change_mid_stream_are_used() {
    let (authority, files) = (Authority::new(), Files::new());
    files.write("ca.crt", &authority.pem());
    let write = |pair: &(String, String)| {
        files.write("tls.crt", &pair.0);
        files.write("tls.key", &pair.1);
    };
    let (first, second) = (authority.signs("client", 2098), authority.signs("client", 2099));
    write(&first);
    let (server, port) = server(&authority, NODE, true).await;
    let mut client = Client::start(files.settings(port, true), everything());
    client.until("the stream", |_| !server.requests().is_empty()).await;
    let mut emitted = 0;
    let mut emit = |server: &FakeHubble| {
        server.emit(syn("gpu-node-a", "trainer-0", "trainer-1", emitted, now()));
        emitted += 1;
        emitted
    };
    for _ in 0..50 {
        emit(&server);
    }
    client.until("50 flows", |heard| heard.flows == 50).await;

    // Half of the pair: the old one stays in use, and what is wrong is told.
    files.write("tls.crt", &second.0);
    client.until("the mismatch", |heard| !heard.problems.is_empty()).await;
    let flows = emit(&server);
    client.until("flows go on", |heard| heard.flows == flows).await;
    assert_eq!(server.requests().len(), 1);

    files.write("tls.key", &second.1);
    client.until("the new certificate", |_| server.clients().len() == 2).await;
    let clients = server.clients();
    assert_eq!(clients[0], der(&first.0));
    assert_eq!(clients[1], der(&second.0));
    let flows = emit(&server);
    client.until("flows go on", |heard| heard.flows == flows).await;
    // 2098-01-01 and 2099-01-01.
    client.until("both expiries", |heard| heard.expires.contains(&4_070_908_800)).await;
    assert_eq!(client.heard.expires.first(), Some(&4_039_372_800));
    // It was no break.
    assert_eq!(client.heard.downs(), 0, "{:?}", client.heard.states);
    assert!(client.heard.lost.is_empty());
}

fn der(pem: &str) -> Vec<u8> {
    use rustls_pki_types::pem::PemObject as _;
    rustls_pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
}
