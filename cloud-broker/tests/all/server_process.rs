//! The program as people start it.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use cloudstack_simulator::{Effect, Fault as Script};
use parking_lot::Mutex;
use runtime::host::Host;
use runtime::link::{Link, LinkAddress};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::client_support::until;
use super::server_pki::Pki;
use super::server_support::{Agent, config, named, seed, simulator};

/// The program, with everything it said.
struct Process {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Process {
    fn start(folder: &Path, flags: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_cloud-broker"))
            .arg(format!("--cloud-config={}", folder.join("cloud.conf").display()))
            .arg(format!("--listen=unix://{}", folder.join("run/b.sock").display()))
            .args(flags)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let (text, errors) = (Arc::clone(&said), child.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                text.lock().extend([line.as_str(), "\n"]);
            }
        });
        Self { child, said }
    }

    fn said(&self) -> String {
        self.said.lock().clone()
    }

    /// Asks it to end; its exit code.
    async fn terminate(&mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &pid])
                .status()
                .unwrap()
                .success()
        );
        self.code().await
    }

    async fn code(&mut self) -> Option<i32> {
        let mut code = None;
        until(|| match self.child.try_wait().unwrap() {
            Some(status) => {
                code = status.code();
                true
            }
            None => false,
        })
        .await;
        code
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn agent(host: &Host, folder: &Path) -> Agent {
    Agent::new(Link::connect(host, vec![LinkAddress::Unix(folder.join("run/b.sock"))], None).channel())
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_verbosity_shows_a_key_a_secret_or_a_signature() {
    let cloud = simulator(seed()).await;
    let keys = cloud.keys("demo").unwrap().clone();
    for format in ["text", "json"] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("cloud.conf"), config(&cloud, "demo", "")).unwrap();
        let flags = [
            "-v",
            "10",
            "--secure-port",
            "0",
            &format!("--logging-format={format}"),
        ];
        let mut process = Process::start(folder.path(), &flags);
        let host = Host::new();
        let agent = agent(&host, folder.path());
        until(|| folder.path().join("run/b.sock").exists()).await;
        agent
            .look_up(vec![named("node-1"), named("node-9")])
            .await
            .unwrap();
        for effect in [
            Effect::error(401, "unable to verify user credentials"),
            Effect::error(530, "odd"),
            Effect::CutAfter,
        ] {
            cloud.add_fault(Script::always("*", effect));
            agent.look_up(vec![named("node-1")]).await.unwrap();
            agent.describe().await.unwrap();
            cloud.clear_faults();
        }
        let broken = config(&cloud, "demo", "")
            .replace("api-key = ", "api-key : ")
            .replace("secret-key = ", "secret-key = \"");
        std::fs::write(folder.path().join("cloud.conf"), broken).unwrap();
        assert_eq!(process.terminate().await, Some(0));
        let said = process.said();
        assert!(said.contains("listVirtualMachines"), "calls are logged: {said}");
        for secret in [keys.api_key.as_str(), keys.secret_key.as_str(), "signature="] {
            assert!(!said.contains(secret), "{secret} is in the log");
        }
        host.finish(Duration::from_secs(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_metrics_are_served_over_https_without_the_cloud() {
    let folder = tempfile::tempdir().unwrap();
    let broken = "[Global]\napi-url = http://127.0.0.1:9/client/api\napi-key = A\nsecret-key = S3cretValue\n";
    std::fs::write(folder.path().join("cloud.conf"), broken).unwrap();
    let port = free_port().to_string();
    let mut process = Process::start(
        folder.path(),
        &["--bind-address=127.0.0.1", "--secure-port", &port],
    );
    runtime::host::install_tls_provider();
    let client = reqwest::Client::builder()
        .tls_danger_accept_invalid_certs(true)
        .build()
        .unwrap();
    let get = async |path: &str| {
        let answer = client
            .get(format!("https://127.0.0.1:{port}{path}"))
            .send()
            .await
            .ok()?;
        let status = answer.status().as_u16();
        Some((status, answer.text().await.ok()?))
    };
    let mut ready = None;
    for _ in 0..2000 {
        ready = get("/readyz").await;
        if ready.as_ref().is_some_and(|(status, _)| *status == 200) {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(ready, Some((200, "ok".to_owned())));
    assert_eq!(get("/livez").await, Some((200, "ok".to_owned())));
    let (_, metrics) = get("/metrics").await.unwrap();
    assert!(metrics.contains("cloud_broker_config_good 1"), "{metrics}");
    let (_, configz) = get("/configz").await.unwrap();
    assert!(
        configz.contains("\"apiUrl\":\"http://127.0.0.1:9/client/api\""),
        "{configz}"
    );
    assert!(!configz.contains("S3cret"), "{configz}");
    assert_eq!(process.terminate().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_configuration_ends_with_one_line_for_every_fault() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("cloud.conf"),
        "[Global]\napi-key: S3cret\nregoin = r\n",
    )
    .unwrap();
    let mut process = Process::start(folder.path(), &["--secure-port=0"]);
    assert_eq!(process.code().await, Some(1));
    until(|| process.said().contains("api-key")).await;
    let said = process.said();
    assert!(
        said.contains("cloud.conf:2: no \"=\" behind a key api-key"),
        "{said}"
    );
    assert!(!said.contains("S3cret"), "{said}");
}

#[test]
fn the_reference_of_the_configuration_is_printed() {
    let output = Command::new(env!("CARGO_BIN_EXE_cloud-broker"))
        .arg("--config-reference")
        .output()
        .unwrap();
    assert!(output.status.success());
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        cloud_broker::config::reference()
    );
}

/// An API that is nothing but a TLS handshake and an answer that no server gives.
async fn tls_server(pki: &Pki) -> u16 {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    runtime::host::install_tls_provider();
    let chain = CertificateDer::pem_file_iter(pki.server())
        .unwrap()
        .collect::<Result<Vec<_>, _>>()
        .unwrap();
    let key = PrivateKeyDer::from_pem_file(pki.path("server.key")).unwrap();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio_util::task::TaskTracker::new().spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let mut bytes = [0; 4096];
            let _ = stream.read(&mut bytes).await;
            let _ = stream
                .write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                .await;
            let _ = stream.shutdown().await;
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_not_trusted_is_told_with_the_setting_that_mends_it() {
    let pki = Pki::new();
    let port = tls_server(&pki).await;
    let text =
        format!("[Global]\napi-url = https://127.0.0.1:{port}/client/api\napi-key = A\nsecret-key = S\n");
    for (more, remedy) in [
        (String::new(), "ca-file"),
        (format!("ca-file = {}\n", pki.path("ca.pem")), "check api-url"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("cloud.conf"), format!("{text}{more}")).unwrap();
        let mut process = Process::start(folder.path(), &["--secure-port=0"]);
        until(|| process.said().contains("API_UNREACHABLE")).await;
        let said = process.said();
        let line = said
            .lines()
            .find(|line| line.contains("API_UNREACHABLE"))
            .unwrap_or_default();
        assert!(line.contains(remedy), "{said}");
        assert_eq!(process.terminate().await, Some(0));
    }
}
