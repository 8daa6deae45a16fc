//! The Unix socket of a broker: who may open it, and when a file that is in the way may go.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use tokio::net::{UnixListener, UnixStream};

/// Listens on a socket that only its owner may open. Its folder is made, mode 0700, where it is missing. A socket that is in the way is removed
/// only if it is ours and nobody listens on it.
pub(super) async fn bind(path: &Path) -> anyhow::Result<UnixListener> {
    let folder = path.parent().context("the socket's path has no folder")?;
    if !folder.exists() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .with_context(|| format!("folder {} of the socket can't be made", folder.display()))?;
    }
    remove_stale(path).await?;
    let listener =
        UnixListener::bind(path).with_context(|| format!("{} can't be listened on", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .with_context(|| format!("permissions of {} can't be set", path.display()))?;
    Ok(listener)
}

async fn remove_stale(path: &Path) -> anyhow::Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.with_context(|| format!("{} can't be looked at", path.display()))?,
    };
    if !metadata.file_type().is_socket() {
        bail!(
            "{} is in the way and is not a socket; remove it or choose another path",
            path.display()
        );
    }
    if metadata.uid() != own_uid()? {
        bail!(
            "socket {} belongs to another user; remove it or choose another path",
            path.display()
        );
    }
    match UnixStream::connect(path).await {
        Ok(_) => bail!(
            "another process listens on {}; stop it or choose another path",
            path.display()
        ),
        Err(_) => std::fs::remove_file(path).with_context(|| format!("{} can't be removed", path.display())),
    }
}

/// The user this process runs as.
pub(super) fn own_uid() -> anyhow::Result<u32> {
    Ok(std::fs::metadata("/proc/self")
        .context("/proc/self can't be read")?
        .uid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_socket_is_only_for_its_owner() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("run").join("broker.sock");
        let _listener = bind(&path).await.expect("listens");
        let mode = |path: &Path| std::fs::metadata(path).expect("is there").permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().expect("a folder")), 0o700);
    }

    #[tokio::test]
    async fn a_dead_socket_of_ours_is_replaced() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("broker.sock");
        drop(bind(&path).await.expect("listens"));
        assert!(path.exists());
        bind(&path).await.expect("listens again");
    }

    #[tokio::test]
    async fn a_socket_in_use_is_left_alone() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("broker.sock");
        let _first = bind(&path).await.expect("listens");
        let error = bind(&path).await.expect_err("in use");
        assert!(error.to_string().contains("another process listens"), "{error}");
    }

    #[tokio::test]
    async fn a_file_in_the_way_is_left_alone() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("broker.sock");
        std::fs::write(&path, "precious").expect("written");
        assert!(bind(&path).await.is_err());
        assert_eq!(std::fs::read_to_string(&path).expect("still there"), "precious");
    }
}
