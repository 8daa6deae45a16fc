//! A real etcd and kube-apiserver in one process (the Go program in `control-plane/`): built once per content,
//! started in some three seconds, gone when its starter is gone.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::processes::{Process, Program};
use crate::settings::Settings;

/// How long a start may take on a busy machine.
const START: Duration = Duration::from_secs(90);

/// A running control plane.
#[derive(Debug)]
pub struct ControlPlane {
    /// The process; its log is the API server's.
    pub process: Process,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// `https://127.0.0.1:PORT`.
    pub url: String,
    /// The certificate of the authority that signed the server's.
    pub ca_file: PathBuf,
    binary: PathBuf,
}

/// Chosen ports that may turn out to be taken.
const MOST_LOST_PORTS: usize = 3;

/// The control plane's binary, built if need be.
pub async fn binary() -> Result<PathBuf> {
    let script = Settings::root().join("e2e/control-plane/build.sh");
    let out = Program::new("control plane build", script).output().await?;
    let path = out.lines().last().context("the build printed no path")?;
    Ok(PathBuf::from(path))
}

impl ControlPlane {
    /// Starts one whose state lies in `dir`; a folder that was used before continues where it ended.
    pub async fn start(dir: &Path) -> Result<Self> {
        // A port that was free when it was chosen may be somebody else's by the time it is used.
        for _ in 0..MOST_LOST_PORTS {
            match Self::start_on(dir, 0).await {
                Err(error) if format!("{error:#}").contains("address already in use") => {}
                started => return started,
            }
        }
        Self::start_on(dir, 0).await
    }

    /// The same on a given port, so that clients find it again.
    pub async fn start_on(dir: &Path, port: u16) -> Result<Self> {
        let binary = binary().await?;
        let kubeconfig = dir.join("admin.kubeconfig");
        let mut process = Program::new("kube-apiserver", &binary)
            .arg("up")
            .arg(format!("--dir={}", dir.display()))
            .arg(format!("--port={port}"))
            .arg("--stop-on-stdin-eof")
            .holding_stdin()
            .start(dir)
            .await?;
        let line = process.says("READY", START).await?;
        let url = line.trim_start_matches("READY").trim().to_owned();
        Ok(Self {
            process,
            kubeconfig,
            url,
            ca_file: dir.join("pki/ca.crt"),
            binary,
        })
    }

    /// The port of its API.
    pub fn port(&self) -> Result<u16> {
        let port = self.url.rsplit(':').next().unwrap_or_default();
        port.parse().with_context(|| format!("port of {}", self.url))
    }

    /// An administrator's client.
    pub async fn admin(&self) -> Result<kube::Client> {
        client(&self.kubeconfig).await
    }

    /// How to call the kubectl that came with it, for people.
    pub fn kubectl_words(&self) -> String {
        format!("{} kubectl", self.binary.display())
    }

    /// The kubectl that came with it, as administrator.
    pub fn kubectl(&self) -> Program {
        Program::new("kubectl", &self.binary)
            .arg("kubectl")
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
    }
}

/// A client with the credentials of a kubeconfig file.
pub async fn client(kubeconfig: &Path) -> Result<kube::Client> {
    let config = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}
