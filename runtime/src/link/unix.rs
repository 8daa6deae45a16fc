//! The Unix socket of a broker: who may open it, and when a file that is in the way may go.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use tokio::net::{UnixListener, UnixStream};

/// Listens on a socket. Its folder is made where it is missing. Both are only for their owner; where others may call as well, everybody
/// can open the socket, and who calls is looked at when it is accepted. A socket that is in the way is removed only if it is ours and
/// nobody listens on it.
pub(super) async fn bind(path: &Path, allowed: &[u32]) -> anyhow::Result<UnixListener> {
    let folder = path.parent().context("the socket's path has no folder")?;
    let own = own_uid()?;
    let for_others = allowed.iter().any(|uid| *uid != own);
    let (of_folder, of_socket) = if for_others {
        (0o711, 0o666)
    } else {
        (0o700, 0o600)
    };
    if folder.exists() {
        check_folder(folder, own, for_others)?;
    } else {
        DirBuilder::new()
            .recursive(true)
            .mode(of_folder)
            .create(folder)
            .with_context(|| format!("folder {} of the socket can't be made", folder.display()))?;
    }
    remove_stale(path).await?;
    let listener =
        UnixListener::bind(path).with_context(|| format!("{} can't be listened on", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(of_socket))
        .with_context(|| format!("permissions of {} can't be set", path.display()))?;
    Ok(listener)
}

/// Whoever may change the folder can put a socket of his own in our place.
fn check_folder(folder: &Path, own: u32, for_others: bool) -> anyhow::Result<()> {
    let metadata = std::fs::metadata(folder)
        .with_context(|| format!("folder {} of the socket can't be looked at", folder.display()))?;
    let (owner, mode) = (metadata.uid(), metadata.mode());
    if owner != own && owner != 0 {
        bail!(
            "folder {} of the socket belongs to user {owner}, who could put another socket in its place; choose a folder of user {own}",
            folder.display()
        );
    }
    let is_sticky = mode & 0o1000 != 0;
    if mode & 0o022 != 0 && !is_sticky {
        tracing::warn!(
            folder = %folder.display(), mode = %format!("{:o}", mode & 0o7777),
            "others may write in the folder of the socket and can take it away; better name a folder that the broker makes itself"
        );
    }
    if for_others && mode & 0o001 == 0 {
        tracing::warn!(
            folder = %folder.display(), mode = %format!("{:o}", mode & 0o7777),
            "users of --allow-uid reach the socket only if the folder lets them pass"
        );
    }
    Ok(())
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
        let _listener = bind(&path, &[]).await.expect("listens");
        let mode = |path: &Path| std::fs::metadata(path).expect("is there").permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().expect("a folder")), 0o700);
    }

    #[tokio::test]
    async fn others_who_may_call_can_open_the_socket() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("run").join("broker.sock");
        let others = [own_uid().expect("a user"), 4711];
        let _listener = bind(&path, &others).await.expect("listens");
        let mode = |path: &Path| std::fs::metadata(path).expect("is there").permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o666);
        assert_eq!(mode(path.parent().expect("a folder")), 0o711);
    }

    #[test]
    fn a_folder_of_another_user_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let own = own_uid().expect("a user");
        check_folder(dir.path(), own, false).expect("its own");
        check_folder(Path::new("/"), own, false).expect("that of root");
        // Root can give the folder away; for others it is enough to look as somebody else.
        let (other, looks) = if own == 0 { (4711, own) } else { (own, own + 1) };
        std::os::unix::fs::chown(dir.path(), Some(other), None).expect("given away");
        let refused = check_folder(dir.path(), looks, false).expect_err("another user's");
        assert!(refused.to_string().contains("choose a folder"), "{refused}");
    }

    #[tokio::test]
    async fn a_dead_socket_of_ours_is_replaced() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("broker.sock");
        drop(bind(&path, &[]).await.expect("listens"));
        assert!(path.exists());
        bind(&path, &[]).await.expect("listens again");
    }

    #[tokio::test]
    async fn a_socket_in_use_is_left_alone() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("broker.sock");
        let _first = bind(&path, &[]).await.expect("listens");
        let error = bind(&path, &[]).await.expect_err("in use");
        assert!(error.to_string().contains("another process listens"), "{error}");
    }

    #[tokio::test]
    async fn a_file_in_the_way_is_left_alone() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("broker.sock");
        std::fs::write(&path, "precious").expect("written");
        assert!(bind(&path, &[]).await.is_err());
        assert_eq!(std::fs::read_to_string(&path).expect("still there"), "precious");
    }
}
