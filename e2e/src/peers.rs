//! The Go controllers that this project replaces: to take over what they built, and to compare with.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::cluster::Cluster;
use crate::processes::{Process, Program, free_port};
use crate::proxy::Proxy;
use crate::settings::Settings;

/// A Go controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// Apache CloudStack Kubernetes Provider 1.2.0.
    Apache,
    /// The Leaseweb line of it, 1.8.1.
    Leaseweb,
}

impl Peer {
    /// Its name and version.
    pub fn name(self) -> &'static str {
        match self {
            Self::Apache => "Apache 1.2.0",
            Self::Leaseweb => "Leaseweb 1.8.1",
        }
    }

    fn archive(self) -> &'static str {
        match self {
            Self::Apache => "apache-ccm-1.2.0.xz",
            Self::Leaseweb => "leaseweb-ccm-1.8.1.xz",
        }
    }

    /// What it answers to as `--cloud-provider`.
    pub fn provider(self) -> &'static str {
        match self {
            Self::Apache => "external-cloudstack",
            Self::Leaseweb => "cloudstack",
        }
    }

    /// Its binary, unpacked; none where `shared/peers` is absent.
    pub async fn binary(self, settings: &Settings) -> Result<Option<PathBuf>> {
        let Some(archive) = settings.shared("peers").map(|dir| dir.join(self.archive())) else {
            return Ok(None);
        };
        unpacked(&archive).await.map(Some)
    }

    /// Starts it against a cluster; what its key's role may not ask is answered by the proxy.
    pub async fn start(self, settings: &Settings, place: Place<'_>) -> Result<Option<Process>> {
        let Some(binary) = self.binary(settings).await? else {
            return Ok(None);
        };
        let version = r#"{"listmanagementserversmetricsresponse":{"count":1,"managementserver":
            [{"id":"1","name":"ms","version":"4.22.0.0","state":"Up"}]}}"#;
        place.proxy.can("listManagementServersMetrics", version);
        let elects = place.more.iter().any(|arg| arg.starts_with("--leader-elect="));
        let program = Program::new(self.archive().trim_end_matches(".xz"), binary)
            .arg(format!("--cloud-provider={}", self.provider()))
            .arg(format!("--cloud-config={}", place.config.display()))
            .arg(format!("--kubeconfig={}", place.kubeconfig.display()))
            .args(["--bind-address=127.0.0.1", "--v=4"])
            .arg(format!("--secure-port={}", free_port()?))
            .args(["--authentication-skip-lookup=true"])
            .args(if elects {
                &[][..]
            } else {
                &["--leader-elect=false"][..]
            })
            .args(place.more);
        program.start(place.dir).await.map(Some)
    }
}

/// Where a peer runs.
#[derive(Debug)]
pub struct Place<'a> {
    /// Folder for its log.
    pub dir: &'a Path,
    /// Its cloud configuration.
    pub config: &'a Path,
    /// The administrator's kubeconfig: what rights a peer needs is not the question here.
    pub kubeconfig: &'a Path,
    /// The proxy its configuration points to.
    pub proxy: &'a Proxy,
    /// Further arguments.
    pub more: &'a [&'a str],
}

/// Starts keepalived-cloud-provider, as root: it knows only the way in that pods have, so it gets a mount namespace in
/// which an administrator's token lies where a pod's would. None where the binary is absent.
pub async fn keepalived(
    settings: &Settings,
    cluster: &Cluster,
    token: &str,
    pool: &str,
    dir: &Path,
) -> Result<Option<Process>> {
    let archive = settings
        .shared("peers")
        .map(|dir| dir.join("keepalived-cloud-provider-ccc727f.xz"));
    let Some(archive) = archive else { return Ok(None) };
    let binary = unpacked(&archive).await?;
    let secret = dir.join("keepalived-peer.token");
    std::fs::write(&secret, token)?;
    let script = r#"mount -t tmpfs tmpfs /run && d=/run/secrets/kubernetes.io/serviceaccount && mkdir -p $d &&
        cp "$1" $d/token && cp "$2" $d/ca.crt && printf kube-system > $d/namespace && shift 2 && exec "$@""#;
    let program = Program::new("keepalived-cloud-provider", "/usr/bin/unshare")
        .args(["-m", "bash", "-c", script, "sh"])
        .arg(secret)
        .arg(&cluster.plane.ca_file)
        .arg(binary)
        .arg(format!("--kubeconfig={}", cluster.plane.kubeconfig.display()))
        .args([
            "--leader-elect=false",
            "--address=127.0.0.1",
            "--configure-cloud-routes=false",
        ])
        .args(["--logtostderr", "--v=4", &format!("--port={}", free_port()?)])
        .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        .env("KUBERNETES_SERVICE_PORT", cluster.plane.port()?.to_string())
        .env("KEEPALIVED_NAMESPACE", "kube-system")
        .env("KEEPALIVED_CONFIG_MAP", "vip-configmap")
        .env("KEEPALIVED_SERVICE_CIDR", pool);
    program.start(dir).await.map(Some)
}

async fn unpacked(archive: &Path) -> Result<PathBuf> {
    let dir = Settings::root().join(".cache/peers");
    std::fs::create_dir_all(&dir)?;
    let target = dir.join(archive.file_stem().unwrap_or_default());
    if !target.exists() {
        let script = r#"xz -dc "$1" > "$2.$$" && chmod +x "$2.$$" && mv "$2.$$" "$2""#;
        let unpack = Program::new("xz", "/bin/sh").args(["-c", script, "sh"]);
        unpack.arg(archive).arg(&target).output().await?;
    }
    Ok(target)
}
